"""Rows of a CSV or JSON-lines file: texts and their labels, and what to say of a file that has none."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.data.columns import DELIMITERS
from torchcaps.data.labels import LABEL, LABELS, SEPARATOR, choose_separator, require_different, split_labels
from torchcaps.data.text.sets import read_utf8
from torchcaps.errors import DataError

MOST_NAMED = 10
"""Columns that a sentence names."""
LIKELY = {
    "text": ("text", "texts", "content", "sentence", "review", "comment", "message", "body", "document", "tweet",
             "post", "question", "description", "title", "utterance"),
    "label": (LABEL, LABELS, "category", "categories", "class", "target", "sentiment", "polarity", "topic", "tag",
              "tags", "rating", "stars", "intent", "emotion", "y"),
}  # fmt: skip
"""What people call the two columns, the likeliest first."""


class TextRow(NamedTuple):
    """A text as it is in a file, its labels, and its line."""

    text: str
    labels: tuple[str, ...]
    line: int


class TextColumns(NamedTuple):
    """Where texts and labels are; ``separator`` is between the labels of a cell, None for one label."""

    text: str = "text"
    label: str = LABEL
    separator: str | None = None


class TextTable(NamedTuple):
    """All that a file has.

    Attributes:
        rows: in their order.
        several: the file itself says that a text may have any number of labels.
        label: the column that the labels are in.
        unread: its other columns.
    """

    rows: list[TextRow]
    several: bool
    label: str
    unread: tuple[str, ...]


def read_table(path: Path, columns: TextColumns) -> TextTable:
    """Read a file of texts.

    Args:
        path: a .csv, .tsv or .jsonl.
        columns: that are wanted. A file without the column ``label`` may have ``labels`` instead.
    """
    content = read_utf8(path)
    read = _read_json_table if path.suffix.lower() == ".jsonl" else _read_csv_table
    table = read(content, path, columns)
    if not table.rows:
        raise DataError(f"{path} has a header but no texts. Add a line for each text.")
    return table


def _is_several(rows: Sequence[TextRow], columns: TextColumns) -> bool:
    return columns.separator is not None or any(len(row.labels) != 1 for row in rows)


# ---------------------------------------------------------------- CSV


def _guess_delimiter(line: str, columns: TextColumns) -> str:
    """The delimiter that shows most of the wanted columns, then most columns at all, in the header."""

    def score(delimiter: str) -> tuple[int, int]:
        try:
            header = _strip(next(csv.reader([line], delimiter=delimiter), []))
        except csv.Error:  # a field that is too long: with this delimiter it is no header
            return 0, 0
        return (columns.text in header) + (_choose_label_column(header, columns) in header), len(header)

    return max(DELIMITERS, key=score)


def _strip(header: Sequence[str]) -> list[str]:
    return [name.strip() for name in header]


def _choose_label_column(header: Sequence[str], columns: TextColumns) -> str:
    """The wanted column of labels; ``labels`` where the usual one is not there."""
    return LABELS if columns.label == LABEL and LABEL not in header and LABELS in header else columns.label


def _read_csv_table(content: str, path: Path, columns: TextColumns) -> TextTable:
    content = content.lstrip("\n")
    delimiter = _guess_delimiter(content.split("\n", 1)[0], columns)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    rows = []
    try:
        header = _strip(next(reader))
        label = _choose_label_column(header, columns)
        places = _find_columns(header, {"text": columns.text, "label": label}, path)
        separator = choose_separator(label, columns.separator)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"line {reader.line_num} of {path} has {len(row)} fields, the header has {len(header)}. Put texts "
                    'that hold the delimiter or quotes into "double quotes".'
                )
            text, cell = (row[place] for place in places)
            rows.append(TextRow(text, _read_cell(cell, separator, reader.line_num, path, label), reader.line_num))
    except csv.Error as error:
        raise DataError(
            f"{path} is no proper CSV at line {reader.line_num}: {error}. Is a quote not closed? Texts of more than "
            f"{csv.field_size_limit():,} characters go into a .jsonl file."
        ) from error
    unread = tuple(name for name in header if name not in (columns.text, label))
    return TextTable(rows, _is_several(rows, columns), label, unread)


def _read_cell(cell: str, separator: str | None, line: int, path: Path, column: str) -> tuple[str, ...]:
    if separator is None:
        return (_require_label(cell.strip(), line, path, column),)
    try:
        return split_labels(cell, separator)
    except DataError as error:
        raise DataError(f"line {line} of {path}: {error}") from None


def _find_columns(header: list[str], wanted: Mapping[str, str], path: Path) -> list[int]:
    """Where the wanted columns are, texts or labels by their role."""
    wrong = [role for role, column in wanted.items() if header.count(column) != 1]
    if not wrong:
        return [header.index(column) for column in wanted.values()]
    column = wanted[wrong[0]]
    number = "no column" if column not in header else "more than one column"
    there = ", ".join(map(repr, header[:MOST_NAMED])) + (", …" if len(header) > MOST_NAMED else "")
    likely = {role: name for role in wrong if (name := find_likely_column(header, role)) not in (None, wanted[role])}
    if likely:
        where = " and ".join(f"the {role}s in {name!r}" for role, name in likely.items())
        options = " and ".join(f"data.options.{role}_column={name}" for role, name in likely.items())
        advice = f"If {where} are meant, give {options}; or rename them."
    else:
        advice = f"Give data.options.{wrong[0]}_column, or rename it in the file, whose first line names the columns."
    raise DataError(
        f"{path} has {number} {column!r}; its columns are {there:.500}. {advice}",
        option=f"data.options.{wrong[0]}_column",
    )


def find_likely_column(header: Sequence[str], role: str) -> str | None:
    """The column that people would put texts or labels into, ``role`` says which; None if none looks like it."""
    plain = {name.strip().lower(): name for name in reversed(header)}
    return next((plain[name] for name in LIKELY[role] if name in plain), None)


def _require_label(label: str, line: int, path: Path, column: str) -> str:
    if not label:
        raise DataError(
            f"line {line} of {path} has no label in the column {column!r}. Add it or delete the line. Where texts may "
            f"have any number of labels, none among them, the column is called {LABELS!r}, or "
            f"data.options.label_separator says what is between them, such as {SEPARATOR!r}."
        )
    return label


# ---------------------------------------------------------------- JSON lines


def _read_json_table(content: str, path: Path, columns: TextColumns) -> TextTable:
    rows: list[TextRow] = []
    lists, keys, label = False, dict.fromkeys([columns.text]), columns.label
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"line {number} of {path} is no JSON: {error}. Every line must be an object of its own."
            ) from error
        if not isinstance(entry, dict):
            wanted = f"{columns.text}, {columns.label}"
            raise DataError(f"line {number} of {path} must be a JSON object with {wanted}, got {entry!r:.60}.")
        if not rows:
            label = _choose_label_column(list(entry), columns)
        rows.append(_read_json_row(entry, number, path, columns._replace(label=label)))
        lists = lists or isinstance(entry[label], list)
        keys |= dict.fromkeys(entry)
    unread = tuple(key for key in keys if key not in (columns.text, label))
    return TextTable(rows, lists or _is_several(rows, columns), label, unread)


def _read_json_row(entry: dict[str, Any], line: int, path: Path, columns: TextColumns) -> TextRow:
    if columns.text not in entry:
        _find_columns(list(entry), {"text": columns.text, "label": columns.label}, path)
    text, label = entry[columns.text], entry.get(columns.label)
    if not isinstance(text, str):
        raise DataError(f"{columns.text!r} in line {line} of {path} must be a string, got {text!r:.60}.")
    if label is None:
        there = ", ".join(map(repr, entry))
        likely = None if columns.label in entry else find_likely_column(list(entry), "label")
        hint = "" if likely is None else f" If the labels are in {likely!r}, give data.options.label_column={likely}."
        raise DataError(
            f"line {line} of {path} has no label in {columns.label!r}; it has {there:.500}. Add it or delete the "
            f"line; a text without any of several labels has [].{hint}",
            option="data.options.label_column",
        )
    if isinstance(label, list):
        return TextRow(text, _read_list(label, line, path, columns), line)
    name, separator = _name_label(label, line, path, columns), choose_separator(columns.label, columns.separator)
    return TextRow(text, _read_cell(name, separator, line, path, columns.label), line)


def _read_list(values: list[Any], line: int, path: Path, columns: TextColumns) -> tuple[str, ...]:
    labels = tuple(_name_label(value, line, path, columns) for value in values)
    if not all(labels):
        raise DataError(f"line {line} of {path} has an empty label in {columns.label!r}. Leave it out of the list.")
    try:
        require_different(labels)
    except DataError as error:
        raise DataError(f"line {line} of {path}: {error}") from None
    return labels


def _name_label(label: Any, line: int, path: Path, columns: TextColumns) -> str:
    if not isinstance(label, str | int):  # true and false are integers too
        raise DataError(
            f"{columns.label!r} in line {line} of {path} must be a string, a whole number or a list of these, got "
            f"{label!r:.60}."
        )
    return json.dumps(label) if isinstance(label, bool) else str(label).strip()
