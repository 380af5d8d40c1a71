"""Files that say which labels images have: CSV, TSV or JSON lines with a column of file names and one of labels."""

from __future__ import annotations

import csv
import io
import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.data.columns import DELIMITERS, FILE_COLUMNS, TABLE_ENDINGS
from torchcaps.data.splits import SPLITS
from torchcaps.errors import DataError, FileError, TorchcapsError
from torchcaps.io import read_text, require_regular

STEMS = ("labels", "metadata")
"""What such a file is called in a folder of images."""
LABEL_COLUMNS = ("label", "labels", "class", "classes", "tag", "tags")
SEVERAL = ("labels", "classes", "tags")
SPLIT_COLUMN = "split"
VALIDATION = ("val", "valid", "validation")
SEPARATORS = ("|", ";")
"""That part the labels in a cell, if any cell has one; the first that is found."""
MOST_BYTES = 500_000_000
"""Of a file of labels: some million images."""
BEGINNING = 100_000
"""Bytes that are looked at to tell what a file is."""


class LabelColumns(NamedTuple):
    """Which columns hold what; None: as they are usually called.

    Attributes:
        file: names of files.
        label: labels.
        separator: between the labels of one image; "" if each has one; None: ``|`` or ``;`` where any cell has it.
    """

    file: str | None = None
    label: str | None = None
    separator: str | None = None


class LabelRow(NamedTuple):
    """One image: its name relative to the folder, its labels, "train", "test" or "", and the line."""

    file: str
    labels: tuple[str, ...]
    part: str
    line: int


class LabelTable(NamedTuple):
    """All images of a file of labels.

    Attributes:
        rows: in the order of the file.
        multi_label: an image may have several labels, or none.
        unused: how many images are of a validation split, which is not used.
        named: all files, those too.
    """

    rows: list[LabelRow]
    multi_label: bool
    unused: int
    named: frozenset[str]


class _Cells(NamedTuple):
    file: str
    label: Any
    split: str | None
    line: int
    column: str  # of the label


class _Found(NamedTuple):
    """What the columns of a file are called."""

    file: str
    label: str
    split: str | None


def find_label_file(folder: Path) -> Path | None:
    """The file of labels in a folder, if it has one; two are refused."""
    there = [folder / f"{stem}{suffix}" for stem in STEMS for suffix in TABLE_ENDINGS]
    there = [path for path in there if path.is_file()]
    if len(there) > 1:
        named = " and ".join(path.name for path in there)
        raise DataError(f"{folder} has {named}, which both could say what its images are. Keep one, or rename one.")
    return there[0] if there else None


def is_label_file(path: Path) -> bool:
    """Whether a file names images that are there: what tells it from a file of texts."""
    try:
        require_regular(path)
        with path.open("rb") as file:
            lines = file.read(BEGINNING).decode("utf-8-sig", "replace").lstrip("\n").split("\n")
        if "text" in re.split(r"\W+", lines[0].lower()):
            return False
        rows = _read_rows("\n".join(lines[:2]), path, LabelColumns())
        return (path.parent / _check_name(next(rows), path)).is_file()
    except (OSError, TorchcapsError, StopIteration, ValueError):
        return False


def read_label_file(path: Path, columns: LabelColumns) -> LabelTable:
    """Read and check a file of labels. Whether the images are there is not looked at.

    Args:
        path: of a .csv, .tsv or .jsonl file in UTF-8.
        columns: which ones are read. A column ``split`` says train or test of each image, if there is one.

    Raises:
        DataError: it is not as described; the message says what to do.
    """
    try:
        content = read_text(path, MOST_BYTES)
    except FileError as error:
        raise DataError(f"{error} Give a .csv, .tsv or .jsonl file with a line for each image.") from None
    cells = list(_read_rows(content.lstrip("\n"), path, columns))
    if not cells:
        raise DataError(f"{path} names no images. Add a line for each.")
    separator = _choose_separator(cells, columns, path)
    rows, multi_label = [], separator is not None or any(isinstance(cell.label, list) for cell in cells)
    names = [_check_name(cell, path) for cell in cells]
    for cell, name in zip(cells, names, strict=True):
        part = _read_split(cell, path)
        if part is None:
            continue
        labels = _split_labels(cell, separator, path)
        if not labels and not multi_label:
            raise DataError(f"line {cell.line} of {path} has no label. Add it or delete the line.")
        rows.append(LabelRow(name, labels, part, cell.line))
    _check_rows(rows, path)
    return LabelTable(rows, multi_label, len(cells) - len(rows), frozenset(names))


def _read_rows(content: str, path: Path, columns: LabelColumns) -> Iterator[_Cells]:
    reading = _read_json if path.suffix.lower() == ".jsonl" else _read_csv
    return reading(content, path, columns)


def _read_csv(content: str, path: Path, columns: LabelColumns) -> Iterator[_Cells]:
    first = content.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        found = _find_columns(header, columns, path)
        places = {name: header.index(name) for name in found if name is not None}
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"line {reader.line_num} of {path} has {len(row)} fields, the header has {len(header)}. Put what "
                    'holds the delimiter into "double quotes".'
                )
            split = None if found.split is None else row[places[found.split]]
            file, label = (row[places[name]].strip() for name in (found.file, found.label))
            yield _Cells(file, label, split, reader.line_num, found.label)
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise DataError(f"{path} is no proper CSV at {where}: {error}. Is a quote not closed?") from error


def _read_json(content: str, path: Path, columns: LabelColumns) -> Iterator[_Cells]:
    found: _Found | None = None
    for line, text in enumerate(content.split("\n"), 1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {line} of {path} is no JSON: {error}. Every line must be an object.") from error
        if not isinstance(entry, dict):
            raise DataError(f"line {line} of {path} must be a JSON object with file and label, got {entry!r:.60}.")
        found = found or _find_columns(list(entry), columns, path)
        file, label, split = entry.get(found.file), entry.get(found.label), entry.get(found.split or SPLIT_COLUMN)
        if not isinstance(file, str) or not (split is None or isinstance(split, str)):
            raise DataError(f"{found.file!r} in line {line} of {path} must be a text, got {file!r:.60}.")
        yield _Cells(file, _read_json_label(label, found.label, line, path), split, line, found.label)


def _read_json_label(label: Any, column: str, line: int, path: Path) -> str | list[str]:
    parts = label if isinstance(label, list) else [label]
    if any(not isinstance(part, (str, int)) or isinstance(part, bool) for part in parts):
        raise DataError(
            f"{column!r} in line {line} of {path} must be a text, a whole number or a list of these, got {label!r:.60}."
        )
    named = [str(part).strip() for part in parts]
    return named if isinstance(label, list) else named[0]


def _find_columns(header: Sequence[str], columns: LabelColumns, path: Path) -> _Found:
    file = _find_column(header, columns.file, FILE_COLUMNS, "the images' files", "file_column", path)
    label = _find_column(header, columns.label, LABEL_COLUMNS, "their labels", "label_column", path)
    split = next((name for name in header if name.lower() == SPLIT_COLUMN), None)
    return _Found(file, label, split)


def _find_column(
    header: Sequence[str], wanted: str | None, usual: Sequence[str], what: str, option: str, path: Path
) -> str:
    there = [name for name in header if (name == wanted if wanted is not None else name.lower() in usual)]
    if len(there) == 1:
        return there[0]
    named = f"{wanted!r}" if wanted is not None else f"of {what} ({', '.join(usual)})"
    number = "no column" if not there else "more than one column"
    shown = ", ".join(map(repr, header[:20]))
    raise DataError(
        f"{path} has {number} {named}; its columns are {shown}. Give data.options.{option}, or rename it in the file.",
        option=f"data.options.{option}",
    )


def _choose_separator(cells: Sequence[_Cells], columns: LabelColumns, path: Path) -> str | None:
    """What parts the labels of one cell; None if each has one."""
    if columns.separator is not None:
        return columns.separator or None
    texts = [cell.label for cell in cells if isinstance(cell.label, str)]
    for separator in SEPARATORS:
        if any(separator in text for text in texts):
            return separator
    column = cells[0].column
    several = column.lower() in SEVERAL
    doubtful = next((text for text in texts if several and (" " in text or "," in text)), None)
    if doubtful is not None:
        raise DataError(
            f"is {doubtful!r:.60} in the column {column!r} of {path} one label, or several? Say what parts them "
            "with data.options.label_separator, such as a space or a comma, or that nothing does with an empty text.",
            option="data.options.label_separator",
        )
    return None


def _split_labels(cell: _Cells, separator: str | None, path: Path) -> tuple[str, ...]:
    if isinstance(cell.label, list):
        parts = cell.label
    elif separator is None:
        parts = [cell.label]
    else:
        parts = cell.label.split(None if separator == " " else separator)
    labels = [part.strip() for part in parts if part.strip()]
    if len(set(labels)) < len(labels):
        raise DataError(f"line {cell.line} of {path} has a label twice: {cell.label!r:.60}.")
    return tuple(labels)


def _read_split(cell: _Cells, path: Path) -> str | None:
    """The split of an image, "" if the file has none, None if it is one that is not used."""
    if cell.split is None:
        return ""
    split = cell.split.strip().lower()
    split = {"training": "train", "testing": "test"}.get(split, split)
    if split in VALIDATION:
        return None
    if split not in SPLITS:
        raise DataError(
            f"the split in line {cell.line} of {path} must be train or test, got {cell.split!r:.60}. Without the "
            "column a fifth of the images is kept for the test."
        )
    return split


def _check_name(cell: _Cells, path: Path) -> str:
    """A file's name that stays inside of the folder, with slashes."""
    name = cell.file.replace("\\", "/")
    normal = posixpath.normpath(name)
    leaves = posixpath.isabs(name) or os.path.isabs(cell.file) or ":" in name.split("/")[0] or ".." in name.split("/")
    if not name or "\0" in name or leaves or normal == ".":
        raise DataError(
            f"line {cell.line} of {path} names the file {cell.file!r:.80}: names are relative to the folder of "
            f"{path.name}, and stay inside of it."
        )
    return normal


def _check_rows(rows: Sequence[LabelRow], path: Path) -> None:
    """Refuse a file that comes twice, and splits of which one is empty."""
    lines: dict[str, int] = {}
    for row in rows:
        if row.file in lines:
            raise DataError(
                f"{row.file} is in lines {lines[row.file]} and {row.line} of {path}. Give each image one line; several "
                "labels go into one cell, with | between them."
            )
        lines[row.file] = row.line
    parts = {row.part for row in rows}
    for part in SPLITS:
        if parts != {""} and part not in parts:
            raise DataError(f"the column split of {path} has no {part} images. Add some, or delete the column.")
