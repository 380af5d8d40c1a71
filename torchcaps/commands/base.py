"""What a command is, and how it fails."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from torchcaps.errors import TorchcapsError
from torchcaps.io import printable

NO_MEMORY = "there is not enough memory. Choose smaller images, a smaller model or smaller batches."


def say(text: str = "", to: TextIO | None = None, end: str = "\n") -> None:
    """Print, with control characters spelled out: names of files and classes may come from anyone."""
    print(printable(text), end=end, file=to, flush=True)


class CommandError(Exception):
    """What a user can do something about; printed without a traceback."""

    def __init__(self, message: object, code: int = 2) -> None:
        super().__init__(str(message))
        self.code = code


@dataclass(frozen=True)
class Command:
    """A name's worth of the command line."""

    summary: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    takes_overrides: bool = False


def _spelled(option: str | None) -> str:
    """How the option that an error is about is spelled on the command line."""
    if option is None:
        return ""
    return f" (--{option if '.' in option else f'data.{option}'})"


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn the package's errors about data, recipes and runs, and too little memory, into :class:`CommandError`."""
    try:
        yield
    except TorchcapsError as error:
        raise CommandError(f"{error}{_spelled(error.option)}") from error
    except MemoryError as error:
        raise CommandError(NO_MEMORY) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # so says torch
            raise
        raise CommandError(NO_MEMORY) from error
    except OSError as error:
        if error.strerror is None:
            raise
        raise CommandError(f"{error.filename or 'a file'}: {error.strerror}.") from error
