"""Which items are trained on, watched and tested: cuts by the content of an item, by counting, or as a run recorded."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from torchcaps.data.items import BETWEEN, Entry, Item, name_labels
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.errors import DataError

if TYPE_CHECKING:
    from torchcaps.data.dataset import Files

SPLITS = ("train", "test")
ALL = "all"
"""The split of one's own data that has every item."""
TESTED = 0.2
"""The part of one's own data that is kept for the test."""
COUNT_SEED = 0
NO_TEST = "{} has one {} per class (equal ones count once), so none can be kept for the test. Add {} to the classes."


class ItemSet(Protocol):
    """What image sets and text sets have in common."""

    @property
    def labels(self) -> Tensor:
        """One per item, or flags."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called."""

    @property
    def items(self) -> tuple[Item, ...] | None:
        """By their content, if anyone asked."""

    def __len__(self) -> int: ...


Set = TypeVar("Set", bound=ItemSet)


def cut_validation(labels: Tensor, part: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to train on and indices to validate on: ``part`` of every class, chosen by the seed."""
    _check_part(part)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(sub_seed(seed, Stream.VALIDATION)))
    aside = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1 if len(labels) else 0):
        members = order[labels[order] == label]
        aside[members[: round(part * len(members))]] = True
    return (~aside).nonzero()[:, 0], aside.nonzero()[:, 0]


def cut_by_content(keys: Sequence[str], labels: Sequence[str], part: float, purpose: str) -> Tensor:
    """Which items are kept aside when about ``part`` of them is, each by a hash of its own content.

    What other items there are does not matter, so adding, removing or renaming some never moves another; the same
    content twice is never on both sides. Only where that would leave a class without an item on one side, the one
    nearest to the limit changes sides; a class of a single content stays in training.

    Args:
        keys: hash of each item's content.
        labels: its class, or the name of several.
        part: in [0, 1).
        purpose: another one gives another cut.

    Returns:
        True for the items kept aside.
    """
    _check_part(part)
    places = {key: _place(key, purpose) for key in keys}
    aside = {key for key, place in places.items() if place < part}
    classes: dict[str, set[str]] = defaultdict(set)
    for key, label in zip(keys, labels, strict=True):
        for name in label.split(BETWEEN):  # of several labels each counts: a set of them may come only once
            classes[name].add(key)
    for label in sorted(classes) if part else ():
        members = sorted(classes[label], key=places.__getitem__)
        if len(members) > 1 and not aside & set(members):
            aside.add(members[0])
        if aside.issuperset(members):
            aside.discard(members[-1])
    return torch.tensor([key in aside for key in keys], dtype=torch.bool)


def choose_strata(labels: Tensor) -> Tensor:
    """One class for each item, of which a part is kept aside: its own, or of several flags the one that is rarest.

    Shapes:
        int64 ``[N]`` or bool ``[N, K]`` → int64 ``[N]``; an item without any flag has class K.
    """
    if labels.dim() == 1:
        return labels
    counts = labels.sum(dim=0).expand_as(labels)
    rarest = torch.where(labels, counts, len(labels) + 1).argmin(dim=1)
    return torch.where(labels.any(dim=1), rarest, labels.shape[1])


def rank_by_content(keys: Sequence[str], labels: Sequence[str], part: float, purpose: str) -> Tensor:
    """Which items are kept aside when ``part`` of every class is, and at least one, in an order of their content.

    Unlike :func:`cut_by_content` it keeps the part exactly, and an item that is added may move others: good for what
    training is watched by, which a run records, not for a test that several runs share. The same content twice is on
    one side.

    Args:
        keys: hash of each item's content.
        labels: its class, or the name of several.
        part: in [0, 1).
        purpose: another one gives another cut.
    """
    _check_part(part)
    members: dict[str, dict[str, int]] = defaultdict(Counter)
    for key, label in zip(keys, labels, strict=True):
        members[label][key] += 1
    aside: set[str] = set()
    for counts in members.values() if part else ():
        wanted = max(1, round(part * sum(counts.values())))
        for key in sorted(counts, key=lambda key: _place(key, purpose))[: len(counts) - 1]:  # one at least stays
            if wanted < 1:
                break
            aside.add(key)
            wanted -= counts[key]
    return torch.tensor([key in aside for key in keys], dtype=torch.bool)


def cut_stratified(labels: Tensor, seed: int) -> Tensor:
    """Which items are kept for the test when it gets a fifth of each class, drawn by seed: as version 0.1 did.

    A class with two or more items gives at least one. Runs that recorded no split were cut so; new ones are cut by
    :func:`cut_by_content`, because here every item that is added moves others.

    Args:
        labels: class of each item, in an order that is the same on every machine.
        seed: another seed gives another cut.

    Shapes:
        labels int64 ``[N]`` → bool ``[N]``.
    """
    tested = torch.zeros(len(labels), dtype=torch.bool)
    for label in set(labels.tolist()):
        items = (labels == label).nonzero().flatten()
        count = max(1, (len(items) + 2) // 5) if len(items) > 1 else 0  # a fifth, rounded to the nearest
        order = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))
        tested[items[order[:count]]] = True
    return tested


def choose_entries(entries: Sequence[Entry], split: str, files: Files) -> list[int]:
    """Which of all items of one's own data are those of a split, in the order that training sees them in.

    Args:
        entries: all items.
        split: "train", "test" or "all".
        files: has the run's record of its split, if there is one.
    """
    if split == ALL:
        return list(range(len(entries)))
    if files.record is not None:
        return files.record.choose(entries, split)
    if any(entry.part for entry in entries):
        return [number for number, entry in enumerate(entries) if entry.part == split]
    labels = [entry.label for entry in entries]
    if files.counted:
        numbers = {label: number for number, label in enumerate(sorted(set(labels)))}
        tested = cut_stratified(torch.tensor([numbers[label] for label in labels]), COUNT_SEED)
    else:
        tested = cut_by_content([entry.key for entry in entries], labels, TESTED, "test")
    return (tested if split == "test" else ~tested).nonzero()[:, 0].tolist()


def list_set_entries(parts: dict[str, Set]) -> list[Entry]:
    """The entries of sets whose names are the parts that the data itself has, or "" for one without."""
    return [
        Entry(item.key, item.name, label, part)
        for part, data in parts.items()
        for item, label in zip(data.items or (), name_labels(data.labels, data.class_names), strict=True)
    ]


def choose_from_sets(parts: dict[str, Set], split: str, files: Files, where: object, kind: str) -> Set:
    """The items of a split among those of some sets, whose names are as in :func:`list_set_entries`.

    Args:
        parts: all items.
        split: "train", "test" or "all".
        files: see :func:`choose_entries`.
        where: the data in a sentence.
        kind: what an item is called.
    """
    chosen = choose_entries(list_set_entries(parts), split, files)
    if not chosen and split == "test":
        raise DataError(NO_TEST.format(where, kind, f"{kind}s"))
    whole = next(iter(parts.values()))
    for more in list(parts.values())[1:]:
        whole = whole + more  # type: ignore[operator]
    picked: Set = whole[torch.tensor(chosen, dtype=torch.int64)]  # type: ignore[index]
    return picked


def _place(key: str, purpose: str) -> float:
    """A number in [0, 1) that belongs to a content."""
    digest = hashlib.blake2b(f"{purpose} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _check_part(part: float) -> None:
    if not 0 <= part < 1:
        raise DataError(
            f"data.validation is the part of the training data kept aside, in [0, 1); got {part}.",
            option="data.validation",
        )
