"""What a run remembers of its data: which item was in which split, in the file ``split.csv`` of its folder."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.data.items import KEY_BYTES, Entry, Item
from torchcaps.errors import DataError, FileError
from torchcaps.io import read_text, require_inside, write_text

RECORD = "split.csv"
COLUMNS = ("split", "key", "label", "item")
PARTS = ("train", "validation", "test")
BEFORE = "before"
"""In the place of a split: an item of other data, which the weights were trained on before."""
MOST_RECORD = 1_000_000_000
"""Bytes of a record: some 10 million items."""
MOST_NAMED = 5
"""Items that a sentence names."""


class Row(NamedTuple):
    """One item: its split, the hash of its content, the name of its class, and where it was."""

    split: str
    key: str
    label: str
    name: str


class Changes(NamedTuple):
    """How data differs from what was recorded of it: names of items. Copies are new, and of what was trained on."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    def describe(self) -> str:
        """As a list in a sentence; empty if nothing has changed."""
        words = {"missing": "missing", "changed": "changed", "relabelled": "with another label", "new": "new"}
        said = []
        for field, what in words.items():
            names: tuple[str, ...] = getattr(self, field)
            if names:
                shown = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
                said.append(f"{len(names):,} {what} ({shown})")
        return "; ".join(said)


class _Found(NamedTuple):
    """Where the rows of a record are among the items that there are, and what has changed."""

    places: list[int | None]  # of each row
    new: list[int]
    changes: Changes


@dataclass(frozen=True)
class SplitRecord:
    """Which items a run trained on, watched and tested, in their order.

    Args:
        rows: all items.
        with_new: items that came later count to the test.
        before: keys of items that the weights were trained on before, by another run that this one began with.
    """

    rows: tuple[Row, ...]
    with_new: bool = False
    before: frozenset[str] = frozenset()

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same items with the same labels, wherever they are and however they are called."""
        return make_fingerprint((row.key, row.label) for row in self.rows)

    @cached_property
    def trained(self) -> frozenset[str]:
        """Keys of all items that training has seen, also those that it was watched by."""
        return frozenset(row.key for row in self.rows if row.split != "test") | self.before

    def matches(self, entries: Sequence[Entry]) -> bool:
        """Whether these are the same items with the same labels."""
        return make_fingerprint((entry.key, entry.label) for entry in entries) == self.fingerprint

    def compare(self, entries: Sequence[Entry]) -> Changes:
        """What differs in the data that there is."""
        return self._find(entries).changes

    def list_known(self, entries: Sequence[Entry]) -> list[int]:
        """Which items are those of the record, of whatever split; what came later is none of them."""
        return [place for place in self._find(entries).places if place is not None]

    def choose(self, entries: Sequence[Entry], split: str) -> list[int]:
        """Which items are those of a split, in the order of the record; train has those to validate on, too.

        What has another content than it had is left out: it is neither what was trained on nor what was not.
        """
        found = self._find(entries)
        wanted = ("train", "validation") if split == "train" else (split,)
        pairs = zip(self.rows, found.places, strict=True)
        chosen = [place for row, place in pairs if row.split in wanted and place is not None]
        if self.with_new and split == "test":
            chosen += [number for number in found.new if entries[number].key not in self.trained]
        if not chosen and not any(row.split in wanted for row in self.rows):
            raise DataError(
                f"this run had no {split} items when it was trained: give other data, or count new items to the test."
            )
        if not chosen:
            raise DataError(
                f"none of the {split} items that this run recorded is there any more: has its data been replaced?"
            )
        return chosen

    def find_known(self, entries: Sequence[Entry]) -> list[int]:
        """Which of the items that there are were recorded, and are as they were but for their label."""
        return sorted(place for place in self._find(entries).places if place is not None)

    def cut_validation(self, items: Sequence[Item]) -> tuple[Tensor, Tensor]:
        """Indices to train on and to validate on, of the items that :meth:`choose` gave for train."""
        watched = {row.key for row in self.rows if row.split == "validation"}
        aside = torch.tensor([item.key in watched for item in items], dtype=torch.bool)
        return (~aside).nonzero()[:, 0], aside.nonzero()[:, 0]

    def _find(self, entries: Sequence[Entry]) -> _Found:
        alike: dict[tuple[str, str], list[int]] = defaultdict(list)  # of the same content and label, last first
        for number in reversed(range(len(entries))):
            alike[entries[number].key, entries[number].label].append(number)
        found = [there.pop() if (there := alike.get((row.key, row.label))) else None for row in self.rows]
        left: dict[str, list[int]] = defaultdict(list)
        for (key, _), numbers in alike.items():
            left[key] += numbers
        relabelled = []
        for place, row in enumerate(self.rows):
            if found[place] is None and left.get(row.key):
                number = found[place] = left[row.key].pop()
                relabelled.append(entries[number].name)
        lost = [row.name for row, place in zip(self.rows, found, strict=True) if place is None]
        rest = sorted(number for numbers in left.values() for number in numbers)
        changed = {entries[number].name for number in rest} & set(lost)  # another content under the same name
        missing = tuple(name for name in lost if name not in changed)
        new = [number for number in rest if entries[number].name not in changed]
        names = tuple(entries[number].name for number in new)
        copies = tuple(entries[number].name for number in new if entries[number].key in self.trained)
        edited = tuple(name for name in lost if name in changed)
        return _Found(found, new, Changes(missing, edited, tuple(relabelled), names, copies))

    def write(self, folder: Path) -> None:
        """Into a run folder."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self.rows)
        writer.writerows((BEFORE, key, "", "") for key in sorted(self.before))
        write_text(folder / RECORD, text.getvalue())


def make_fingerprint(items: Iterable[tuple[str, str]]) -> str:
    """Of keys and labels, whatever their order."""
    digest = hashlib.sha256()
    for key, label in sorted(items):
        digest.update(f"{key} {label}\n".encode())
    return digest.hexdigest()


def make_record(
    entries: Sequence[Entry], train: Sequence[Item], validation: Sequence[Item], test: Sequence[int]
) -> SplitRecord:
    """The record of a training that begins.

    Args:
        entries: all items of the data.
        train: those to train on, in their order in the data.
        validation: those to validate on.
        test: numbers of the entries to test on.
    """
    label = {(entry.key, entry.name): entry.label for entry in entries}
    order = {(entry.key, entry.name): number for number, entry in enumerate(entries)}
    rows = [
        Row(split, item.key, label[item], item.name)
        for split, items in (("train", train), ("validation", validation))
        for item in items
    ]
    rows.sort(key=lambda row: order[row.key, row.name])  # together they are what is cut again when a run is resumed
    tested = [Row("test", entries[number].key, entries[number].label, entries[number].name) for number in test]
    return SplitRecord((*rows, *tested))


def read_record(folder: Path) -> SplitRecord | None:
    """What a run recorded; None if it is of a version, or of data, without. Nothing in it is believed."""
    if not (folder / RECORD).exists():
        return None
    require_inside(folder, RECORD)
    try:
        lines = list(csv.reader(io.StringIO(read_text(folder / RECORD, MOST_RECORD), newline=""), strict=True))
    except (csv.Error, FileError) as error:
        raise DataError(f"{folder / RECORD} cannot be read: {error}. Without it nobody knows the test items.") from None
    if not lines or tuple(lines[0]) != COLUMNS:
        raise DataError(f"{folder / RECORD} must have the columns {', '.join(COLUMNS)}.")
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(COLUMNS) or line[0] not in (*PARTS, BEFORE) or not _is_key(line[1]):
            raise DataError(f"line {number} of {folder / RECORD} is no record of an item: {', '.join(line)!r:.80}.")
    rows = [Row(*line) for line in lines[1:]]
    before = frozenset(row.key for row in rows if row.split == BEFORE)
    return SplitRecord(tuple(row for row in rows if row.split != BEFORE), before=before)


def _is_key(text: str) -> bool:
    return len(text) == 2 * KEY_BYTES and set(text) <= set("0123456789abcdef")


def count_shared(record: SplitRecord) -> list[str]:
    """Names of the test items whose content is also trained on."""
    return [row.name for row in record.rows if row.split == "test" and row.key in record.trained]


def list_contradictions(entries: Sequence[Entry]) -> list[str]:
    """Names of the contents that come with different labels, by the first item of each."""
    labels: dict[str, set[str]] = defaultdict(set)
    first: dict[str, str] = {}
    for entry in entries:
        labels[entry.key].add(entry.label)
        first.setdefault(entry.key, entry.name)
    return [first[key] for key, different in labels.items() if len(different) > 1]


def count_trained(record: SplitRecord, items: Sequence[Item]) -> int:
    """How many of these items the run has trained on, or was watched by."""
    return sum(1 for item in items if item.key in record.trained)
