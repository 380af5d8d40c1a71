"""What a user points at to have it classified: files, folders, patterns, lists of files, and columns of tables.

Everything is found piece by piece, so that a million files take no more memory than one. What cannot be read is told
and left out; what is left out for another reason is counted.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import chain
from typing import BinaryIO

from torchcaps.data.columns import FILE_COLUMNS, TABLE_ENDINGS, read_column
from torchcaps.data.image_files import EXTENSIONS
from torchcaps.errors import DataError, FileError, TorchcapsError
from torchcaps.io import open_regular, split_stream

STREAM = "-"
"""Stands for what is piped in."""


@dataclass
class Tally:
    """What is to be told about inputs when all are read.

    Args:
        on_error: told of what cannot be read: what it is called, and why.
        left_out: how many were passed over, by what they are: hidden, a name's ending, empty lines.
        labelled: tables that have a column of labels, too.
        tables: files that were read line by line and look like tables.
    """

    on_error: Callable[[str, TorchcapsError], None]
    left_out: Counter[str] = field(default_factory=Counter)
    labelled: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    def refuse(self, name: str, message: object, option: str | None = None) -> None:
        """Tell of something that cannot be read."""
        self.on_error(name, DataError(message, option=option))


def find_images(
    names: Iterable[str],
    tally: Tally,
    *,
    listed: BinaryIO | None = None,
    separator: bytes = b"\n",
    column: str | None = None,
) -> Iterator[str]:
    """The image files in what a user names, in its order; those of a folder or a pattern in that of the alphabet.

    Args:
        names: files; folders, with all that is in them; patterns such as ``**/*.jpg``; tables (.csv, .tsv, .jsonl)
            with a column of files, which lie in the table's folder; ``-``, which stands for ``listed``.
        tally: told what is no image, and what was left out.
        listed: names of files, one in each line, from anywhere.
        separator: stands between them.
        column: of tables; everything that is no image by its name is then one. Not given: one of ``FILE_COLUMNS``.
    """
    wanted = FILE_COLUMNS if column is None else (column,)
    for name in names:
        if name == STREAM and listed is not None:
            pieces = _refuse_too_long(split_stream(listed, separator), "stdin", tally)
            found = _list_files(pieces, separator, tally) if column is None else _read_files(pieces, "", wanted, tally)
            yield from found
            continue
        for file in find_files(name, EXTENSIONS, tally):
            if not _is_table(file, column is not None):
                yield file
            elif (stream := open_input(file, tally, pipes=file == name)) is not None:
                with stream:
                    lines = _refuse_too_long(split_stream(stream), file, tally)
                    yield from _read_files(lines, file, wanted, tally)


def _is_table(file: str, column_given: bool) -> bool:
    return file.lower().endswith(TABLE_ENDINGS) or (column_given and not file.lower().endswith(EXTENSIONS))


def _list_files(pieces: Iterable[bytes], separator: bytes, tally: Tally) -> Iterator[str]:
    for piece in pieces:
        name = os.fsdecode(piece.rstrip(b"\r") if separator == b"\n" else piece)
        if os.path.isdir(name):  # `find` lists them beside the files in them
            tally.left_out["folders of the list"] += 1
        elif name.strip():
            yield name


def _read_files(lines: Iterator[bytes], table: str, wanted: Sequence[str], tally: Tally) -> Iterator[str]:
    """Files of a column; those of a table with a name are in its folder, and stay there."""
    what = table or "stdin"
    for value, line in read_column(lines, what, wanted, tally):
        inside = os.path.normpath(value)
        leads_out = os.path.isabs(inside) or inside.split(os.sep)[0] == os.pardir
        if not value.strip():
            tally.refuse(f"line {line} of {what}", f"line {line} of {what} names no file.")
        elif table and leads_out:
            tally.refuse(
                value,
                f"{value} leads out of the folder of {table}. Give the table on stdin, as {STREAM}, to have its files "
                "looked for anywhere.",
            )
        else:
            yield os.path.join(os.path.dirname(table), value)


def find_files(name: str, endings: tuple[str, ...], tally: Tally) -> Iterator[str]:
    """The files in what a user names: a file itself, all of a folder with certain endings, or what fits a pattern."""
    if os.path.isdir(name):
        yield from _walk(name, endings, tally)
    elif os.path.lexists(name) or not glob.has_magic(name):
        yield name
    else:
        files = _match(name, endings, tally)
        first = next(files, None)
        if first is None:
            tally.refuse(name, f"nothing fits the pattern {name}.")
        else:
            yield from chain([first], files)


def _walk(
    folder: str, endings: tuple[str, ...], tally: Tally, fits: Callable[[Sequence[str]], bool] = lambda _: True
) -> Iterator[str]:
    """Files of a folder and of those in it; nothing hidden, and no folder that is only linked, which may go in circles.

    Args:
        folder: where to begin.
        endings: of the names; empty: any.
        tally: counts the others.
        fits: whether a file is meant, by the parts of its path from the folder on.
    """

    def refuse(error: OSError) -> None:
        tally.refuse(error.filename, f"{error.filename} cannot be opened: {error.strerror}.")

    for place, folders, files in os.walk(folder, onerror=refuse):
        shown = sorted(name for name in folders if not name.startswith("."))
        linked = [name for name in shown if os.path.islink(os.path.join(place, name))]
        tally.left_out["hidden"] += len(folders) - len(shown)
        tally.left_out["linked folders"] += len(linked)
        folders[:] = [name for name in shown if name not in linked]
        for name in sorted(files):
            path = os.path.join(place, name)
            if not fits(os.path.relpath(path, folder).split(os.sep)):
                continue
            if name.startswith("."):
                tally.left_out["hidden"] += 1
            elif _has_ending(name, endings, tally):
                yield path


def _has_ending(name: str, endings: tuple[str, ...], tally: Tally) -> bool:
    if not endings or name.lower().endswith(endings):
        return True
    tally.left_out[os.path.splitext(name)[1].lower()[:9] or "without an ending"] += 1
    return False


def _match(pattern: str, endings: tuple[str, ...], tally: Tally) -> Iterator[str]:
    """Files that fit a pattern, with any ending if it says how names end; folders that fit with all that is in them."""
    if re.fullmatch(r"\.\w+", os.path.splitext(pattern)[1]):
        endings = ()
    parts = pattern.replace(os.sep, "/").split("/")
    if "**" not in parts:
        for path in sorted(glob.glob(pattern)):
            if os.path.isdir(path):
                yield from _walk(path, endings, tally)
            elif _has_ending(path, endings, tally):
                yield path
        return
    # Not by glob, which follows linked folders in circles.
    head, tail = parts[: parts.index("**")], parts[parts.index("**") :]
    for folder in sorted(glob.glob("/".join([*head, ""]))) if head else ["."]:
        for path in _walk(folder, endings, tally, lambda names: _fit(names, tail)):
            yield path if head else os.path.relpath(path)


def _fit(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path fit those of a pattern, of which ``**`` fits any number, also none."""
    if not pattern or pattern == ["**"]:
        return not names or bool(pattern)
    if pattern[0] == "**":
        return any(_fit(names[start:], pattern[1:]) for start in range(len(names)))
    return bool(names) and fnmatch(names[0], pattern[0]) and _fit(names[1:], pattern[1:])


def open_input(name: str, tally: Tally, pipes: bool) -> BinaryIO | None:
    """A file to be read piece by piece; None if it cannot be opened, which is told.

    Args:
        name: of the file.
        tally: told.
        pipes: whether a pipe will do, which may never end; where a user names it, it is meant.
    """
    try:
        return open(name, "rb") if pipes else open_regular(name)
    except FileError as error:
        tally.refuse(name, error)
    except (OSError, ValueError) as error:
        tally.refuse(name, f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.")
    return None


def _refuse_too_long(pieces: Iterator[bytes], name: str, tally: Tally) -> Iterator[bytes]:
    """The same pieces; where they cannot go on, that is told."""
    try:
        yield from pieces
    except (FileError, OSError) as error:
        tally.refuse(name, f"{name} cannot be read further: {error}")
