"""A user's own texts: CSV or JSON-lines files with a column of texts and one of labels."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchcaps.data.columns import TABLE_ENDINGS
from torchcaps.data.dataset import Files, TextDataset
from torchcaps.data.images import check_split
from torchcaps.data.items import Entry, Item, list_text_items
from torchcaps.data.labels import LABEL, LABELS, check_separator, join_labels, name_label_classes, number_label_names
from torchcaps.data.splits import NO_TEST, SPLITS, choose_entries
from torchcaps.data.text.rows import MOST_NAMED, TextColumns, TextRow, TextTable, read_table
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.tokens import tokenize
from torchcaps.errors import DataError

OTHER_SUFFIXES = {
    ".txt": "A file of plain text says nothing of labels: make a .csv of it whose first line is text,label, or a "
    '.jsonl with a line {"text": …, "label": …} for each text.',
    ".json": 'Put every object on a line of its own, {"text": …, "label": …}, and call it .jsonl.',
    ".ndjson": "Call it .jsonl.",
    ".xlsx": "Save the sheet as CSV UTF-8, with a first line that names the columns.",
    ".xls": "Save the sheet as CSV UTF-8, with a first line that names the columns.",
    ".ods": "Save the sheet as CSV in UTF-8, with a first line that names the columns.",
    ".parquet": "Write it as CSV, such as with pandas.read_parquet(…).to_csv(…, index=False).",
}
"""Files that people keep texts in and that are not read, and what to do with each."""
MOST_LOOKED_AT = 100
"""Files of a folder, to see what it holds."""


class _Parts(NamedTuple):
    """All rows of a user's data: "train" and "test", or "" if it is not yet cut into these."""

    tables: dict[str, TextTable]

    @property
    def several(self) -> bool:
        """Whether a text may have any number of labels."""
        return any(table.several for table in self.tables.values())

    @property
    def rows(self) -> list[TextRow]:
        return [row for table in self.tables.values() for row in table.rows]

    def list_entries(self) -> list[Entry]:
        """By their content; nothing is split into words for it."""
        entries = []
        for part, table in self.tables.items():
            names = [f"{part} line {row.line}".strip() for row in table.rows]
            for item, row in zip(list_text_items((row.text for row in table.rows), names), table.rows, strict=True):
                labels = row.labels if self.several else None
                entries.append(Entry(item.key, item.name, join_labels(row.labels), part, labels))
        return entries


@dataclass(frozen=True)
class TextFile(TextDataset):
    """One's own texts in a .csv, .tsv or .jsonl file, or in a folder with train.csv and test.csv.

    Args:
        path: the file or folder, see :func:`read_text_file`.
        text_column: where the texts are.
        label_column: where the labels are.
        label_separator: between several labels of a text, such as "|".
    """

    path: str
    text_column: str = "text"
    label_column: str = LABEL
    label_separator: str | None = None

    def __post_init__(self) -> None:
        check_separator(self.label_separator)

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
            label_separator=self.label_separator,
            class_names=class_names,
            lower=lower is not False,
            files=files,
        )

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        columns = TextColumns(self.text_column, self.label_column, self.label_separator)
        return _read_parts(Path(self.path), columns).list_entries()

    def judged_split(self) -> str:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return "test" if Path(self.path).is_dir() else "all"


def read_text_file(
    path: str | os.PathLike[str],
    split: str,
    *,
    text_column: str = "text",
    label_column: str = LABEL,
    label_separator: str | None = None,
    class_names: Sequence[str] | None = None,
    lower: bool = True,
    files: Files = Files(),
) -> TextSet:
    """Read texts with one class each, or with any number, from UTF-8 files (or UTF-16 with its byte-order mark).

    A folder with ``train.csv`` and ``test.csv`` (or ``.tsv``, ``.jsonl``) has the splits; of a single file about
    a fifth of each class is kept for the test (:func:`~torchcaps.data.splits.cut_by_content`). CSV needs a
    first line with the columns' names; the delimiter is the one of comma, semicolon and tab that makes the wanted
    columns appear; blank lines are skipped. A line of JSON lines is an object; its label may be a string, a whole
    number, true or false, or a list of these. Other columns are ignored, and told. Texts are split by
    :func:`~torchcaps.data.text.tokens.tokenize`; an empty one, or one without any word, is kept as the empty tuple.

    A text may have any number of labels, also none, if ``label_separator`` is given, if the column is called ``labels``
    (whose cells are split at ``|``) and some text has none or several, or if a label of JSON lines is a list.

    Args:
        path: the file or folder.
        split: "train", "test" or "all".
        text_column: where the texts are.
        label_column: where the labels are; a file without ``label`` may have ``labels``.
        label_separator: between the labels of a text, such as "|".
        class_names: which number each class has, for a model that is trained already; without it, the labels of
            training, sorted: as numbers if all are numbers, else alphabetically.
        lower: make texts lower case.
        files: has the split that a run recorded, if it did, what texts are split into, and who is told.

    Returns:
        The texts of the split in the order of the file, labels int64 ``[N]``, or bool ``[N, K]`` where a text may have
        any number of the K classes.

    Raises:
        DataError: a file is not as described; the message says what to do.
    """
    check_split(split)
    check_separator(label_separator)
    path = Path(path)
    parts = _read_parts(path, TextColumns(text_column, label_column, label_separator))
    entries, rows = parts.list_entries(), parts.rows
    chosen = choose_entries(entries, split, files)
    if not chosen and split == "test":
        raise DataError(NO_TEST.format(path, "text", "texts"))
    # All is checked also when training is asked for: an error should come before the training, not after. Only what
    # came after a run has recorded its data may be of other classes.
    known = range(len(rows)) if files.record is None else files.record.find_known(entries)
    training = [number for number in known if entries[number].part != "test"]
    labels = [label for number in training for label in rows[number].labels]
    names = name_label_classes(labels, class_names, path, "texts")
    _check_known(parts, names, known if files.record is None else chosen, path)
    if split == "train" and files.notice:
        _tell_columns(parts, path, text_column, files.notice)
    picked = [rows[number] for number in chosen]
    tokens = tuple(tokenize(row.text, lower, files.units) for row in picked)
    numbered = number_label_names([row.labels for row in picked], names, parts.several)
    items = tuple(Item(entries[number].key, entries[number].name) for number in chosen)
    return TextSet(tokens, numbered, names, items)


def _read_parts(path: Path, columns: TextColumns) -> _Parts:
    if not path.exists():
        raise DataError(f"there is no file or folder {path}. Give a .csv or .jsonl file, or a folder with train.csv.")
    return _Parts({part: read_table(file, columns) for part, file in _find_files(path).items()})


def _find_files(path: Path) -> dict[str, Path]:
    """The files of "train" and "test", or one of "" that is not yet cut into these."""
    if not path.is_dir():
        suffix = path.suffix.lower()
        if suffix not in TABLE_ENDINGS:
            advice = OTHER_SUFFIXES.get(suffix, "Rename it.")
            raise DataError(f"{path} must end in {', '.join(TABLE_ENDINGS)}, so that its format is known. {advice}")
        return {"": path}
    files = {}
    for split in SPLITS:
        there = [path / f"{split}{suffix}" for suffix in TABLE_ENDINGS if (path / f"{split}{suffix}").is_file()]
        if len(there) != 1:
            outcome = f"found {' and '.join(file.name for file in there)}" if there else "there is none"
            raise DataError(
                f"{path} must have one file {split}.csv, .tsv or .jsonl, {outcome}. A single file, of which a fifth is "
                "kept for the test, is given by its own path."
            )
        files[split] = there[0]
    return files


def explain_text_folder(path: Path) -> str | None:
    """What to do with a folder that holds texts in a way that is not read; None for any other folder."""
    try:
        entries = sorted(path.iterdir())[:MOST_LOOKED_AT]
        folders = [entry for entry in entries if entry.is_dir()]
        inside = [file for folder in folders for file in itertools.islice(folder.iterdir(), MOST_LOOKED_AT)]
    except OSError:  # which is told when its content is wanted
        return None
    tables = [entry.name for entry in entries if entry.suffix.lower() in TABLE_ENDINGS and entry not in folders]
    if tables and len(tables) == len(entries):
        return f"give the path of {tables[0]} itself, or call the files train.csv and test.csv."
    if inside and all(file.suffix.lower() == ".txt" for file in inside):
        return (
            "it has a file for each text. Write them into one .csv whose first line is text,label, with a line for "
            "each of them."
        )
    return None


def _check_known(parts: _Parts, names: tuple[str, ...], numbers: Iterable[int], path: Path) -> None:
    """Refuse labels that are no class, among the rows of these numbers."""
    rows, wanted, first = parts.rows, set(numbers), 0
    for part, table in parts.tables.items():
        here = [rows[number] for number in range(first, first + len(table.rows)) if number in wanted]
        first += len(table.rows)
        unknown = sorted({label for row in here for label in row.labels} - set(names))
        if unknown:
            shown = f"the {part} file" if part else "the file"
            raise DataError(
                f"{path}: {shown} has classes that training does not know: {', '.join(unknown[:5])}; known are "
                f"{', '.join(names[:10])}. Add texts of these classes to training or take them out."
            )


def _tell_columns(parts: _Parts, path: Path, text_column: str, tell: Callable[[str], None]) -> None:
    """What is read of the files, where that could be taken otherwise."""
    unread = list(dict.fromkeys(name for table in parts.tables.values() for name in table.unread))
    label = next(iter(parts.tables.values())).label
    if unread:
        shown = ", ".join(map(repr, unread[:MOST_NAMED])) + (", …" if len(unread) > MOST_NAMED else "")
        tell(f"Of {path} the columns {text_column!r} and {label!r} are read; left out: {shown}.")
    if parts.several:
        each = [row.labels for row in parts.rows]
        names = sorted({name for labels in each for name in labels})
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        none = sum(1 for labels in each if not labels)
        more = f", {none:,} have none" if none else ""
        tell(
            f"A text of {path} may have any number of {len(names):,} labels ({shown}): "
            f"{sum(map(len, each)) / len(each):.2f} on average{more}."
        )
    elif label == LABELS:
        tell(f"Every text of {path} has exactly one label in {label!r}, so the classes exclude each other.")
