"""Texts in what a user points at to have them classified: lines of files, and columns of tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import BinaryIO

from torchcaps.data.columns import DELIMITERS, TABLE_ENDINGS, read_column
from torchcaps.data.image_files import EXTENSIONS
from torchcaps.data.inputs import STREAM, Tally, find_files, open_input
from torchcaps.errors import FileError
from torchcaps.io import split_stream

TEXT_ENDINGS = (".txt", *TABLE_ENDINGS)
"""Of files that are read in a folder."""
_MARKS = (b"\xff\xfe", b"\xfe\xff")


def find_texts(
    names: Iterable[str],
    tally: Tally,
    *,
    listed: BinaryIO | None = None,
    separator: bytes = b"\n",
    column: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
) -> Iterator[str]:
    """The texts in what a user names, in its order.

    Every line of a file is one, without white space around it; empty lines are counted and left out. Of tables (.csv,
    .tsv, .jsonl) one column is read, also where it is empty: as many answers as rows.

    Args:
        names: files; folders, of which .txt files and tables are read; patterns such as ``**/*.txt``; ``-``, which
            stands for ``listed``.
        tally: told what cannot be read, and what was left out.
        listed: texts, one in each line.
        separator: stands between these.
        column: of tables; everything is then one. Not given: ``text_column`` of files that end as tables do.
        text_column: the usual one.
        label_column: where labels would be; they are not needed.
    """
    wanted, known = (column or text_column,), {text_column, label_column, "text", "label"}
    for name in names:
        streamed = name == STREAM and listed is not None
        for file in [name] if streamed else find_files(name, TEXT_ENDINGS, tally):
            if not streamed and file.lower().endswith(EXTENSIONS):
                tally.refuse(file, f"{file} is an image by its name, and this model reads texts.")
                continue
            what = "stdin" if streamed else file
            stream = listed if streamed else open_input(file, tally, pipes=file == name)
            if stream is None:
                continue
            pieces = split_stream(stream, separator if streamed else b"\n")
            try:
                if column is not None or (not streamed and file.lower().endswith(TABLE_ENDINGS)):
                    for value, _ in read_column(pieces, what, wanted, tally, label_column):
                        yield value
                else:
                    yield from _read_lines(pieces, what, known, tally)
            except (FileError, OSError) as error:
                tally.refuse(what, f"{what} cannot be read further: {error}")
            finally:
                if not streamed:
                    stream.close()


def _read_lines(lines: Iterator[bytes], what: str, known: Collection[str], tally: Tally) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.startswith(_MARKS):
            tally.refuse(what, f"{what} is UTF-16. Save it as UTF-8.")
            return
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            where, reason = f"line {number} of {what}", f"{error.reason} at byte {error.start}"
            tally.refuse(where, f"{where} is not UTF-8: {reason}. Save it as UTF-8.")
            continue
        if number == 1 and _looks_like_table(text, known):
            tally.tables.append(what)
        if text:
            yield text
        else:
            tally.left_out["empty lines"] += 1


def _looks_like_table(line: str, known: Collection[str]) -> bool:
    """Whether the first line of a file is an object of JSON, or has names of columns."""
    if line.startswith('{"') and line.endswith("}"):
        return True
    for delimiter in DELIMITERS:
        names = [name.strip(' "').lower() for name in line.split(delimiter)]
        if len(names) > 1 and max(map(len, names)) < 40 and any(name in known for name in names):
            return True
    return False
