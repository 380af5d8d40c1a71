"""What a command could not read: counted, listed when all else is done, and written to a file if that is asked for."""

from __future__ import annotations

import csv
import sys
from types import TracebackType
from typing import TextIO

from torchcaps.commands.base import say, spell_as_option
from torchcaps.errors import TorchcapsError
from torchcaps.io import make_printable

MOST_LISTED = 20
"""Inputs that cannot be read and are named; of more only the number is told."""


class Unread:
    """Inputs that cannot be read. Of however many, only the first are kept.

    Args:
        file: where all are written as they come, as CSV; None: nowhere.
    """

    def __init__(self, file: str | None = None) -> None:
        self.count, self._first = 0, list[str]()
        self._file: TextIO | None = None
        if file is not None:
            self._file = open(file, "w", encoding="utf-8", errors="backslashreplace", newline="")  # noqa: SIM115
            self._write("input", "error")

    def __enter__(self) -> Unread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, name: str, error: TorchcapsError) -> None:
        """Take note of an input, and why it cannot be read."""
        reason = self._shorten(error)
        self.count += 1
        if self.count <= MOST_LISTED:
            self._first.append(reason if name in reason else f"{name}: {reason}")
        self._write(name, reason)

    def _write(self, *fields: str) -> None:
        if self._file is not None:
            csv.writer(self._file, lineterminator="\n").writerow(map(make_printable, fields))

    @staticmethod
    def _shorten(error: TorchcapsError) -> str:
        """The bare reason if there is one: what to do about a single image is not said a hundred times."""
        from torchcaps.data.pictures import UnreadableError

        return str(error.__cause__) if isinstance(error.__cause__, UnreadableError) else spell_as_option(error)

    def tell(self, answered: int, kind: str) -> None:
        """Say on stderr how many there were, which, and why."""
        if not self.count:
            return
        total = answered + self.count
        said = f"{self.count:,} of {total:,} {kind}" if total > 1 else f"the only {kind.removesuffix('s')}"
        say(f"torchcaps: {said} could not be read:", sys.stderr)
        for line in self._first:
            say(f"  {line}", sys.stderr)
        if self.count > len(self._first):
            rest = "they are all in the file of --errors" if self._file else "--errors FILE writes all of them"
            say(f"  and {self.count - len(self._first):,} more; {rest}", sys.stderr)
