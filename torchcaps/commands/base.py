"""What a command is, and how it fails."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


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


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn the package's errors about data, recipes and runs into :class:`CommandError`."""
    from torchcaps.data.images import DataError
    from torchcaps.training.recipes import RecipeError
    from torchcaps.training.runs import RunError

    try:
        yield
    except (DataError, RecipeError, RunError) as error:
        raise CommandError(error) from error
    except OSError as error:
        if error.strerror is None:
            raise
        raise CommandError(f"{error.filename or 'a file'}: {error.strerror}.") from error
