"""A user's own texts: CSV or JSON-lines files with a column of texts and one of labels."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from torchcaps.data.dataset import Files, TextDataset
from torchcaps.data.images import check_split
from torchcaps.data.items import Entry, list_text_items
from torchcaps.data.splits import SPLITS, choose_from_sets, list_set_entries
from torchcaps.data.text.sets import TextSet, read_utf8
from torchcaps.data.text.tokens import tokenize
from torchcaps.errors import DataError

SUFFIXES = (".csv", ".tsv", ".jsonl")
DELIMITERS = ",;\t"


class _Row(NamedTuple):
    text: str
    label: str
    line: int


class _Columns(NamedTuple):
    text: str
    label: str


@dataclass(frozen=True)
class TextFile(TextDataset):
    """One's own texts in a .csv, .tsv or .jsonl file, or in a folder with train.csv and test.csv.

    Args:
        path: the file or folder, see :func:`read_text_file`.
        text_column: where the texts are.
        label_column: where the labels are.
    """

    path: str
    text_column: str = "text"
    label_column: str = "label"

    @property
    def title(self) -> str:
        """Its path."""
        return self.path

    def load(
        self,
        split: str,
        files: Files = Files(),
        class_names: tuple[str, ...] | None = None,
        lower: bool | None = None,
    ) -> TextSet:
        """See :class:`~torchcaps.data.dataset.TextDataset`."""
        return read_text_file(
            self.path,
            split,
            text_column=self.text_column,
            label_column=self.label_column,
            class_names=class_names,
            lower=lower is not False,
            files=files,
        )

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        columns = _Columns(self.text_column, self.label_column)
        return list_set_entries(_read_sets(Path(self.path), columns, class_names, lower=True))

    def judged_split(self) -> str:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return "test" if Path(self.path).is_dir() else "all"


def read_text_file(
    path: str | os.PathLike[str],
    split: str,
    *,
    text_column: str = "text",
    label_column: str = "label",
    class_names: Sequence[str] | None = None,
    lower: bool = True,
    files: Files = Files(),
) -> TextSet:
    """Read texts with one class each, from UTF-8 files.

    A folder with ``train.csv`` and ``test.csv`` (or ``.tsv``, ``.jsonl``) has the splits; of a single file about
    a fifth of each class is kept for the test (:func:`~torchcaps.data.splits.cut_by_content`). CSV needs a
    first line with the columns' names; the delimiter is the one of comma, semicolon and tab that makes the wanted
    columns appear; blank lines are skipped. A line of JSON lines is an object; its label may be a string, a whole
    number, true or false. Other columns are ignored. Texts are split by :func:`~torchcaps.data.text.tokens.tokenize`;
    an empty one, or one without any word, is kept as the empty tuple.

    Args:
        path: the file or folder.
        split: "train", "test" or "all".
        text_column: where the texts are.
        label_column: where the labels are.
        class_names: which number each class has, for a model that is trained already; without it, the labels of
            training, sorted: as numbers if all are numbers, else alphabetically.
        lower: make texts lower case.
        files: has the split that a run recorded, if it did.

    Returns:
        The texts of the split in the order of the file, labels int64 ``[N]``.

    Raises:
        DataError: a file is not as described; the message says what to do.
    """
    check_split(split)
    path, columns = Path(path), _Columns(text_column, label_column)
    return choose_from_sets(_read_sets(path, columns, class_names, lower), split, files, path, "text")


def _read_sets(path: Path, columns: _Columns, class_names: Sequence[str] | None, lower: bool) -> dict[str, TextSet]:
    """The texts of "train" and "test", or of "" if they are not yet cut into these."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}. Give a .csv or .jsonl file, or a folder with train.csv.")
    # Both splits are read also when training is asked for: an error should come before the training, not after.
    parts = {part: _read_rows(file, columns) for part, file in _find_files(path).items()}
    training = parts.get("", parts.get("train", []))
    names = name_text_classes([row.label for row in training], class_names, path)
    return {part: _make_text_set(rows, names, part, path, lower) for part, rows in parts.items()}


def _find_files(path: Path) -> dict[str, Path]:
    """The files of "train" and "test", or one of "" that is not yet cut into these."""
    if not path.is_dir():
        if path.suffix.lower() not in SUFFIXES:
            raise DataError(f"{path} must end in {', '.join(SUFFIXES)}, so that its format is known. Rename it.")
        return {"": path}
    files = {}
    for split in SPLITS:
        there = [path / f"{split}{suffix}" for suffix in SUFFIXES if (path / f"{split}{suffix}").is_file()]
        if len(there) != 1:
            outcome = f"found {' and '.join(file.name for file in there)}" if there else "there is none"
            raise DataError(
                f"{path} must have one file {split}.csv, .tsv or .jsonl, {outcome}. A single file, of which a fifth is "
                "kept for the test, is given by its own path."
            )
        files[split] = there[0]
    return files


def _read_rows(path: Path, columns: _Columns) -> list[_Row]:
    content = read_utf8(path)
    rows = (
        _read_json_rows(content, path, columns)
        if path.suffix.lower() == ".jsonl"
        else _read_csv_rows(content, path, columns)
    )
    if not rows:
        raise DataError(f"{path} has a header but no texts. Add a line for each text.")
    return rows


def _guess_delimiter(line: str, columns: _Columns) -> str:
    """The delimiter that shows most of the wanted columns, then most columns at all, in the header."""

    def score(delimiter: str) -> tuple[int, int]:
        try:
            header = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # a field that is too long: with this delimiter it is no header
            return 0, 0
        return sum(column in header for column in columns), len(header)

    return max(DELIMITERS, key=score)


def _read_csv_rows(content: str, path: Path, columns: _Columns) -> list[_Row]:
    content = content.lstrip("\n")
    delimiter = _guess_delimiter(content.split("\n", 1)[0], columns)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    rows = []
    try:
        header = next(reader)
        places = [_find_column(header, column, path) for column in columns]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"line {reader.line_num} of {path} has {len(row)} fields, the header has {len(header)}. Put texts "
                    'that hold the delimiter or quotes into "double quotes".'
                )
            text, label = (row[place] for place in places)
            line = reader.line_num
            rows.append(_Row(text, _require_label(label.strip(), line, path, columns.label), line))
    except csv.Error as error:
        raise DataError(
            f"{path} is no proper CSV at line {reader.line_num}: {error}. Is a quote not closed? Texts of more than "
            f"{csv.field_size_limit():,} characters go into a .jsonl file."
        ) from error
    return rows


def _find_column(header: list[str], column: str, path: Path) -> int:
    if header.count(column) != 1:
        number = "no column" if column not in header else "more than one column"
        raise DataError(
            f"{path} has {number} {column!r}; its columns are {', '.join(map(repr, header))}. Give text_column and "
            "label_column, or rename them in the file."
        )
    return header.index(column)


def _require_label(label: str, line: int, path: Path, column: str) -> str:
    if not label:
        raise DataError(f"line {line} of {path} has no label in the column {column!r}. Add it or delete the line.")
    return label


def _read_json_rows(content: str, path: Path, columns: _Columns) -> list[_Row]:
    rows = []
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"line {number} of {path} is no JSON: {error}. Every line must be an object of its own."
            ) from error
        rows.append(_read_json_row(entry, number, path, columns))
    return rows


def _read_json_row(entry: object, line: int, path: Path, columns: _Columns) -> _Row:
    if not isinstance(entry, dict):
        raise DataError(f"line {line} of {path} must be a JSON object with {', '.join(columns)}, got {entry!r:.60}.")
    text, label = entry.get(columns.text), entry.get(columns.label)
    if columns.text not in entry:
        _find_column(list(entry), columns.text, path)
    if not isinstance(text, str):
        raise DataError(f"{columns.text!r} in line {line} of {path} must be a string, got {text!r:.60}.")
    if label is None:
        there = ", ".join(map(repr, entry))
        raise DataError(
            f"line {line} of {path} has no label in {columns.label!r}; it has {there}. Add it or delete the line."
        )
    if not isinstance(label, str | int):  # true and false are integers too
        raise DataError(
            f"{columns.label!r} in line {line} of {path} must be a string or a whole number, got {label!r:.60}."
        )
    named = json.dumps(label) if isinstance(label, bool) else str(label).strip()
    return _Row(text, _require_label(named, line, path, columns.label), line)


def name_text_classes(labels: Sequence[str], given: Sequence[str] | None, where: object) -> tuple[str, ...]:
    """The names of the classes: those given, else the labels, sorted: as numbers if all are numbers."""
    present = set(labels)
    if given is None and len(present) == 1:
        raise DataError(
            f"{where} has one class only: {min(present)!r}; a classifier needs at least two. Add texts of another "
            "class."
        )
    if given is not None:
        if len(given) < 2 or len(set(given)) < len(given):
            raise DataError(f"class_names must be two or more different ones, got {list(given)}.")
        return tuple(given)
    if all(_whole_number(label) for label in present):
        return tuple(sorted(present, key=lambda label: (int(label), label)))
    return tuple(sorted(present))


def _whole_number(label: str) -> bool:
    digits = label.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _make_text_set(rows: list[_Row], names: tuple[str, ...], part: str, path: Path, lower: bool) -> TextSet:
    number = {name: index for index, name in enumerate(names)}
    unknown = sorted({row.label for row in rows} - set(names))
    if unknown:
        shown = f"the {part} file" if part else "the file"
        raise DataError(
            f"{path}: {shown} has classes that training does not know: {', '.join(unknown[:5])}; known are "
            f"{', '.join(names[:10])}. Add texts of these classes to training or take them out."
        )
    labels = torch.tensor([number[row.label] for row in rows], dtype=torch.int64)
    where = [f"{part or path.name} line {row.line}" for row in rows]
    items = list_text_items((row.text for row in rows), where)
    return TextSet(tuple(tokenize(row.text, lower) for row in rows), labels, names, items)
