"""Any number of labels per image, as flags: which of K classes each of N images has, bool ``[N, K]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.data.labels import make_flags, sort_names
from torchcaps.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def flag_indices(labels: Tensor, classes: int) -> Tensor:
    """Labels int64 ``[N]`` as flags bool ``[N, K]``: each item has one class."""
    return torch.nn.functional.one_hot(labels, classes).bool()


def are_flags(shape: tuple[int, ...], kind: str) -> bool:
    """Whether labels of a shape and of numpy's kind of type can be flags, not one label per item."""
    return len(shape) == 2 and kind in "biu" and (kind == "b" or shape[1] > 1)


def read_flags(values: NDArray[Any], what: str, class_names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Flags from an array ``[N, K]``, and the names of the K classes.

    Args:
        values: truth values, or whole numbers of 0 and 1 if the classes are named.
        what: the array in a sentence, such as "y in own.npz".
        class_names: of the columns; not given: their numbers.
    """
    count = values.shape[1]
    if count < 2:
        raise DataError(f"{what} has one column only: a model of several labels needs two classes or more.")
    if class_names is not None and (len(class_names) != count or len(set(class_names)) < count):
        raise DataError(
            f"{what} has {count} columns, so class_names must be as many different names; got {list(class_names)}."
        )
    if values.dtype.kind != "b":
        _check_numbers(values, what, class_names)
    names = tuple(map(str, range(count))) if class_names is None else tuple(class_names)
    return torch.from_numpy(values.astype(bool)), names


def _check_numbers(values: NDArray[Any], what: str, class_names: Sequence[str] | None) -> None:
    if not set(values.flatten().tolist()) <= {0, 1}:
        raise DataError(
            f"{what} must be one label per image, [N] or [N, 1], or flags of 0 and 1 for each class, [N, K]; got shape "
            f"{values.shape} with values up to {values.max()}."
        )
    if (values.sum(axis=1) == 1).all():
        raise DataError(
            f"{what} has a single 1 in each row of {values.shape[1]}. If each image has one class, give "
            "y.argmax(axis=1); if it may have several, y.astype(bool)."
        )
    if class_names is None:
        raise DataError(
            f"{what} looks like flags, 0 and 1 for each of {values.shape[1]} classes. Give y.astype(bool), or "
            "class_names with a name for each column."
        )


def name_flags(rows: Sequence[Any], what: str, class_names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Flags from a list of names for each item, and the names of the classes.

    Args:
        rows: a list, tuple or set of texts for each item; it may be empty.
        what: they are, in a sentence.
        class_names: all that there may be; not given: those that are there, sorted.
    """
    named: list[list[str]] = []
    for at, row in enumerate(rows):
        if not isinstance(row, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in row):
            raise DataError(
                f"{what} must be a list of names for each image, or one label for each; number {at} is {row!r:.60}. "
                "Flags are given as an array of truth values [N, K]."
            )
        named.append(list(row))
    there = {name for row in named for name in row}
    names = sort_names(there) if class_names is None else tuple(class_names)
    if len(names) < 2 or len(set(names)) < len(names):
        raise DataError(f"{what} must have two or more different classes, got {list(names)}.")
    unknown = sorted(there - set(names))
    if unknown:
        raise DataError(f"{what} has labels that are no class: {unknown[:5]}; the classes are {list(names[:10])}.")
    return make_flags(named, names), names
