"""Single items of a user's own data, known by their content: wherever a file is moved to, it is the same item."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.data.labels import join_labels
from torchcaps.errors import FileError
from torchcaps.io import read_bytes

KEY_BYTES = 16
"""Of a hash: among 10¹² items two that differ share one with a chance of 10⁻¹⁵."""


BETWEEN = " | "
"""Names of classes in the label of an item that has several."""


class Item(NamedTuple):
    """What one item of a set is: the hash of its content, and where it is found."""

    key: str
    name: str


class Entry(NamedTuple):
    """One item of all that a user's data has.

    Attributes:
        key: hash of its content, without its label.
        name: where it is: a file, relative to the user's folder, or a place in one.
        label: the name of its class, or of several.
        part: "train" or "test" where the data itself says so, else empty.
        labels: the names one by one, where an item may have any number of classes; None where it has one.
    """

    key: str
    name: str
    label: str
    part: str = ""
    labels: tuple[str, ...] | None = None


def hash_content(content: bytes) -> str:
    """The key of an item."""
    return hashlib.blake2b(content, digest_size=KEY_BYTES).hexdigest()


def hash_file(path: Path) -> str:
    """The key of a file; it is read once in a process, unless it is written again."""
    try:
        status = os.stat(path)
        return _hash_file(path, status.st_mtime_ns, status.st_size)
    except (OSError, FileError):  # which is told when its content is wanted
        return hash_content(os.fsencode(path.name))


@lru_cache(maxsize=1_000_000)
def _hash_file(path: Path, _: int, __: int) -> str:
    return hash_content(read_bytes(path))


def list_image_items(images: Tensor, what: str) -> tuple[Item, ...]:
    """Items of images ``[N, …]``; ``what`` is what they are called, such as the name of an array."""
    rows = images.contiguous().numpy()
    return tuple(Item(hash_content(row.tobytes()), f"{what}[{number}]") for number, row in enumerate(rows))


def list_text_items(texts: Iterable[str], names: Sequence[str]) -> tuple[Item, ...]:
    """Items of texts; white space around one does not count."""
    # Halves of characters, which JSON can hold, have no code in UTF-8 and are kept as they are.
    keys = (hash_content(text.strip().encode("utf-8", "surrogatepass")) for text in texts)
    return tuple(Item(key, name) for key, name in zip(keys, names, strict=True))


def name_labels(labels: Tensor, class_names: Sequence[str]) -> list[str]:
    """Labels int64 ``[N]``, or flags bool ``[N, K]``, as the names of the classes."""
    if labels.dim() == 1:
        return [class_names[label] for label in labels.tolist()]
    return [join_labels(names or ()) for names in name_each(labels, class_names)]


def name_each(labels: Tensor, class_names: Sequence[str]) -> list[tuple[str, ...] | None]:
    """Of flags bool ``[N, K]`` the names of each item's classes; None for items that have one, int64 ``[N]``."""
    if labels.dim() == 1:
        return [None] * len(labels)
    return [tuple(name for name, there in zip(class_names, row, strict=True) if there) for row in labels.tolist()]


def pick_items(items: tuple[Item, ...] | None, chosen: Tensor) -> tuple[Item, ...] | None:
    """Those of indices int64 ``[M]``, or where a mask bool ``[N]`` is True."""
    if items is None:
        return None
    return tuple(items[number] for number in torch.arange(len(items))[chosen].tolist())


def join_items(first: tuple[Item, ...] | None, second: tuple[Item, ...] | None) -> tuple[Item, ...] | None:
    """Both, if both are known."""
    return None if first is None or second is None else first + second
