"""Labels of one's own data: the classes that are named in it, and items that have any number of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import DataError

LABEL, LABELS = "label", "labels"
"""Columns that are looked for: of one label, or of any number."""
SEPARATOR = "|"
"""Between the labels of a cell."""


def split_labels(cell: str, separator: str) -> tuple[str, ...]:
    """The labels in a cell of a table; an empty one has none.

    White space around each does not count, and neither does a separator too many. A label that comes twice is refused.

    Args:
        cell: such as "comedy | drama".
        separator: between them.
    """
    labels = tuple(label for part in cell.split(separator) if (label := part.strip()))
    require_different(labels)
    return labels


def require_different(labels: Sequence[str]) -> None:
    """Refuse a label that comes twice among those of one item."""
    twice = next((label for number, label in enumerate(labels) if label in labels[:number]), None)
    if twice is not None:
        raise DataError(f"the label {twice!r:.60} is there twice. Give it once.")


def check_separator(separator: str | None) -> None:
    """Refuse a separator that parts nothing."""
    if separator == "":
        raise DataError(
            f"label_separator must be what is between labels, such as {SEPARATOR!r}, not empty.",
            option="label_separator",
        )


def choose_separator(column: str, separator: str | None) -> str | None:
    """Where the cells of a column are split: as is asked for, or if it is called ``labels`` at ``|``, else nowhere."""
    return SEPARATOR if separator is None and column == LABELS else separator


def join_labels(labels: Sequence[str]) -> str:
    """The labels of an item as one text, whatever their order was."""
    return f" {SEPARATOR} ".join(sorted(labels))


def make_flags(labels: Sequence[Sequence[str]], class_names: Sequence[str]) -> Tensor:
    """Which of the classes each item has, bool ``[N, K]``; all labels are known to be among the names."""
    column = {name: number for number, name in enumerate(class_names)}
    flags = torch.zeros(len(labels), len(class_names), dtype=torch.bool)
    for row, names in enumerate(labels):
        flags[row, [column[name] for name in names]] = True
    return flags


def number_label_names(labels: Sequence[Sequence[str]], class_names: Sequence[str], several: bool) -> Tensor:
    """Labels as a set has them: int64 ``[N]`` where each item has one, or flags bool ``[N, K]`` for any number."""
    if several:
        return make_flags(labels, class_names)
    number = {name: index for index, name in enumerate(class_names)}
    return torch.tensor([number[names[0]] for names in labels], dtype=torch.int64)


def name_label_classes(labels: Sequence[str], given: Sequence[str] | None, where: object, kind: str) -> tuple[str, ...]:
    """The names of the classes: those given, else the labels, sorted: as numbers if all are numbers.

    Args:
        labels: all that come.
        given: those of a trained model.
        where: the data in a sentence.
        kind: what its items are called, such as texts.
    """
    present = set(labels)
    if given is not None:
        if len(given) < 2 or len(set(given)) < len(given):
            raise DataError(f"class_names must be two or more different ones, got {list(given)}.")
        return tuple(given)
    if len(present) < 2:
        there = f"one class only: {min(present)!r}" if present else "no labels"
        raise DataError(f"{where} has {there}; a classifier needs at least two. Add {kind} of another class.")
    return sort_names(present)


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of classes in their order: by number if all are whole numbers, else alphabetically."""
    there = set(names)
    if all(_is_whole_number(name) for name in there):
        return tuple(sorted(there, key=lambda name: (int(name), name)))
    return tuple(sorted(there))


def _is_whole_number(label: str) -> bool:
    digits = label.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


class EachLabels(NamedTuple):
    """The labels of each item, whether it may have any number of them, and the classes' names if they are known."""

    labels: list[tuple[str, ...]]
    several: bool
    class_names: Sequence[str] | None


def list_each_labels(labels: Any, class_names: Sequence[str] | None = None) -> EachLabels:
    """Labels in memory as the names of classes.

    Args:
        labels: a label for each item, a string or a whole number, or a list of them; or flags bool ``[N, K]``.
        class_names: the classes in the order of their numbers; not given: the labels are names, those of flags numbers.
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise DataError(f"labels must be a list, an array or a tensor, got {labels!r:.60}.")
    shape = tuple(getattr(labels, "shape", ()))
    values = list(labels.tolist()) if hasattr(labels, "tolist") else list(labels)
    if len(shape) == 2 and "bool" in str(getattr(labels, "dtype", "")):
        names = [str(number) for number in range(shape[1])] if class_names is None else list(class_names)
        if len(names) != shape[1]:
            raise DataError(f"flags of {shape[1]} classes need as many class_names, got {len(names)}.")
        flagged = [tuple(name for name, there in zip(names, row, strict=True) if there) for row in values]
        return EachLabels(flagged, True, names)
    several = any(isinstance(value, (list, tuple, set, frozenset)) for value in values)
    each = [_name_each(value) for value in values]
    present = {label for names in each for label in names}
    numbers = class_names is not None and all(label.isdigit() for label in present) and not present <= set(class_names)
    if class_names is not None and numbers and present:
        highest = max(map(int, present))
        if highest >= len(class_names):
            raise DataError(f"labels must be in 0 … {len(class_names) - 1} for the class names, got {highest}.")
        each = [tuple(class_names[int(label)] for label in names) for names in each]
    return EachLabels(each, several, class_names)


def _name_each(value: Any) -> tuple[str, ...]:
    """The labels of one item."""
    if not isinstance(value, (list, tuple, set, frozenset)):
        return (_format_label(value),)
    labels = tuple(_format_label(label) for label in value)
    require_different(labels)
    return tuple(sorted(labels)) if isinstance(value, (set, frozenset)) else labels


def _format_label(label: Any) -> str:
    if isinstance(label, bool) or not isinstance(label, (str, int)):
        raise DataError(f"a label must be a string or a whole number, got {label!r:.60}.")
    return str(label)
