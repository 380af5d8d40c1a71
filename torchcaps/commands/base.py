"""What a command is, and how it fails."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TextIO

from torchcaps.errors import TorchcapsError
from torchcaps.io import dump_json, make_printable

NO_MEMORY = "there is not enough memory. Choose smaller images, a smaller model or smaller batches."


def say(text: str = "", to: TextIO | None = None, end: str = "\n") -> None:
    """Print, with control characters spelled out: names of files and classes may come from anyone."""
    print(make_printable(text), end=end, file=to, flush=True)


def say_json(value: Any, indent: int | None = 2) -> None:
    """Print plain data as JSON, in letters that stdout can take."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    say(dump_json(value, indent, ascii_only=encoding not in ("utf-8", "utf8")))


class CommandError(Exception):
    """What a user can do something about; printed without a traceback."""

    def __init__(self, message: object, code: int = 2) -> None:
        super().__init__(str(message))
        self.code = code


@dataclass(frozen=True)
class Command:
    """A name's worth of the command line.

    Args:
        summary: what it does, in a few words.
        examples: of its use.
        add_arguments: adds its options to a parser.
        run: does it, and returns the exit code.
        parse: reads its words where a parser of argparse will not do; it has the options of ``add_arguments``, too.
    """

    summary: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    parse: Callable[[Sequence[str]], argparse.Namespace] | None = None


_options: ContextVar[frozenset[str] | None] = ContextVar("torchcaps_options", default=None)


@contextmanager
def spelling(options: Iterable[str]) -> Iterator[None]:
    """Within this context a command runs that has these options, and messages speak of no others."""
    token = _options.set(frozenset(options))
    try:
        yield
    finally:
        _options.reset(token)


def spell_as_option(error: TorchcapsError) -> str:
    """An error's message, in which the option that it is about is spelled as the command spells it, if it has it."""
    message, option = str(error), error.option
    if option is None:
        return message
    name = {"data.name": "--data", "data.dir": "--data-dir"}.get(option, f"--{option.replace('_', '-')}")
    if name not in (_options.get() or (name,)):
        return message
    places = list(re.finditer(rf"(?<![\w.-]){re.escape(option)}(?![\w.])", message))
    if not places:
        return message if name in message else f"{message} ({name})"
    place = places[0] if places[0].start() == 0 else places[-1]  # elsewhere it may be an ordinary word
    return f"{message[: place.start()]}{name}{message[place.end() :]}"


@contextmanager
def user_errors(spell: Callable[[TorchcapsError], str] = spell_as_option) -> Iterator[None]:
    """Turn the package's errors about data, recipes and runs, and too little memory, into :class:`CommandError`.

    Args:
        spell: gives the message as somebody at the command line is to read it.
    """
    try:
        yield
    except TorchcapsError as error:
        raise CommandError(spell(error)) from error
    except MemoryError as error:
        raise CommandError(NO_MEMORY) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # so says torch
            raise
        raise CommandError(NO_MEMORY) from error
    except BrokenPipeError:  # who read what is printed has left
        raise
    except OSError as error:
        if error.strerror is None or isinstance(error, BrokenPipeError):  # who read stdout has left: no error
            raise
        raise CommandError(f"{error.filename or 'a file'} cannot be read or written: {error.strerror}.") from error
