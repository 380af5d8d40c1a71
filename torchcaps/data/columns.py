"""One column of a table, row by row: .csv and .tsv with the names of the columns in the first line, or .jsonl."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from torchcaps.errors import FileError
from torchcaps.io import parse_json

TABLE_ENDINGS = (".csv", ".tsv", ".jsonl")
DELIMITERS = ",;\t"
FILE_COLUMNS = ("file", "filename", "file_name", "image", "image_path", "path")
"""Where a table has the names of files, unless one is told."""
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


class ColumnValue(NamedTuple):
    """What a row has in the column, and the line in which it ends, from 1."""

    value: str
    line: int


class Telling(Protocol):
    """Who is told of rows that cannot be read; a :class:`~torchcaps.data.inputs.Tally` is one."""

    labelled: list[str]

    def refuse(self, name: str, message: object, option: str | None = None) -> None:
        """Tell of something that cannot be read."""


def read_column(
    lines: Iterator[bytes], table: str, wanted: Sequence[str], tell: Telling, label: str = "label"
) -> Iterator[ColumnValue]:
    """The rows of one column of a table.

    Rows that cannot be read are told and left out. A table of JSON lines is known by the brace it begins with; of any
    other the delimiter is the one of comma, semicolon and tab that makes a wanted column appear.

    Args:
        lines: of the table, UTF-8.
        table: what it is called.
        wanted: names of the column; the first that is there is read.
        tell: told what cannot be read, and of tables that have labels, too.
        label: the column that these would be in.
    """
    for blank, first in enumerate(lines):
        start = first.removeprefix(_UTF8_MARK)
        if start.startswith(_UTF16_MARKS):
            tell.refuse(table, f"{table} is UTF-16. Save it as UTF-8.")
            return
        if start.strip():
            read = _read_json if start.lstrip().startswith(b"{") else _read_csv
            yield from read(chain([start], lines), blank, table, wanted, tell, label)
            return
    tell.refuse(table, f"{table} is empty. Expected a line with the names of the columns, and a line for each row.")


def _read_csv(
    lines: Iterator[bytes], before: int, table: str, wanted: Sequence[str], tell: Telling, label: str
) -> Iterator[ColumnValue]:
    texts = (line.removesuffix(b"\r").decode("utf-8", "surrogateescape") + "\n" for line in lines)
    first = next(texts)
    reader = csv.reader(chain([first], texts), delimiter=_guess_delimiter(first, wanted), strict=True)
    header, place = None, 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = before + reader.line_num
            where = f"line {line} of {table}"
            tell.refuse(where, f"{where} is no proper CSV: {error}.")
            continue
        line = before + reader.line_num
        if header is None:
            header = [name.strip() for name in row]
            column = _choose_column(header, table, wanted, tell)
            if column is None:
                return
            place = header.index(column)
            if label in header and label != column:
                tell.labelled.append(table)
        elif len(row) == len(header):
            if _is_utf8(row[place], line, table, tell):
                yield ColumnValue(row[place], line)
        elif row:
            where = f"line {line} of {table}"
            tell.refuse(
                where,
                f"{where} has {len(row)} fields, the header has {len(header)}. Put what holds the "
                'delimiter or quotes into "double quotes".',
            )


def _guess_delimiter(line: str, wanted: Sequence[str]) -> str:
    """The delimiter that shows a wanted column in the header, or else most columns."""

    def score(delimiter: str) -> tuple[bool, int]:
        try:
            header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
        except csv.Error:
            return False, 0
        return any(name in header for name in wanted), len(header)

    return max(DELIMITERS, key=score)


def _choose_column(header: Sequence[str], table: str, wanted: Sequence[str], tell: Telling) -> str | None:
    """The first of the wanted names that a table has, once."""
    chosen = next((name for name in wanted if name in header), None)
    if chosen is not None and header.count(chosen) == 1:
        return chosen
    names = ", ".join(map(repr, header))[:300]
    number = "more than one" if chosen is not None else "no"
    said = repr(chosen) if chosen is not None else " nor ".join(map(repr, wanted))
    tell.refuse(table, f"{table} has {number} {said} among {names}. Say by column which of them to read.", "column")
    return None


def _read_json(
    lines: Iterator[bytes], before: int, table: str, wanted: Sequence[str], tell: Telling, label: str
) -> Iterator[ColumnValue]:
    labelled = False
    for line, content in enumerate(lines, start=before + 1):
        where = f"line {line} of {table}"
        text = content.decode("utf-8", "surrogateescape")
        if not text.strip() or not _is_utf8(text, line, table, tell):
            continue
        try:
            entry = parse_json(text, where)
        except FileError as error:
            tell.refuse(where, error)
            continue
        if not isinstance(entry, dict):
            tell.refuse(where, f"{where} must be a JSON object, got {entry!r:.60}.")
            continue
        column = _choose_column(list(entry), where, wanted, tell)
        if column is None:
            continue
        if not isinstance(entry[column], str):
            tell.refuse(where, f"{column!r} in {where} must be a string, got {entry[column]!r:.60}.")
            continue
        if label in entry and label != column and not labelled:
            labelled = True
            tell.labelled.append(table)
        yield ColumnValue(entry[column], line)


def _is_utf8(text: str, line: int, table: str, tell: Telling) -> bool:
    """Whether a text was decoded without bytes that do not belong there; else it is told."""
    if text.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in text):
        return True
    where = f"line {line} of {table}"
    tell.refuse(where, f"{where} is not UTF-8. Save the file as UTF-8.")
    return False
