"""Sentences in memory, and how the files that hold them are opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.images import check_names
from torchcaps.data.items import Item, join_items, pick_items
from torchcaps.errors import DataError, FileError
from torchcaps.io import read_bytes, unpack_gzip

Tokens = tuple[str, ...]


@dataclass(frozen=True)
class TextSet:
    """Texts as tokens, their labels and the classes' names, all fitting together.

    ``labels`` are int64 ``[N]`` where a text has one class, or bool ``[N, K]`` where it may have several of K classes.
    A text may be empty. ``items`` are the texts of one's own data by their content; None where nobody asks.
    """

    texts: tuple[Tokens, ...]
    labels: Tensor
    class_names: tuple[str, ...]
    items: tuple[Item, ...] | None = None

    def __post_init__(self) -> None:
        check_names(self.class_names)
        if any(isinstance(text, str) for text in self.texts):
            raise DataError("texts must be tuples of tokens, got a string. Split it with torchcaps.data.text.tokens.")
        count, classes = len(self.texts), len(self.class_names)
        fits = self.labels.shape == ((count, classes) if self.multi_label else (count,))
        if self.labels.dtype not in (torch.int64, torch.bool) or not fits:
            raise DataError(
                f"{count} texts of {classes} classes need labels int64 [{count}] or bool [{count}, {classes}], got "
                f"{self.labels.dtype} of shape {tuple(self.labels.shape)}."
            )
        if count and not self.multi_label and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < classes:
            raise DataError(
                f"labels must be in 0 … {classes - 1} for {classes} classes, got values from "
                f"{int(self.labels.min())} to {int(self.labels.max())}."
            )

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, chosen: Tensor) -> TextSet:
        """The texts of indices int64 ``[M]``, or those where a mask bool ``[N]`` is True."""
        indices = torch.arange(len(self))[chosen]
        if indices.dim() != 1:
            raise DataError(f"texts are chosen by indices [M] or a mask [N], got shape {tuple(chosen.shape)}.")
        texts = tuple(self.texts[index] for index in indices.tolist())
        return TextSet(texts, self.labels[indices], self.class_names, pick_items(self.items, indices))

    def __add__(self, more: TextSet) -> TextSet:
        """Both, of the same classes."""
        labels, items = torch.cat([self.labels, more.labels]), join_items(self.items, more.items)
        return TextSet(self.texts + more.texts, labels, self.class_names, items)

    @property
    def multi_label(self) -> bool:
        """Whether a text may have several classes."""
        return self.labels.dtype == torch.bool


def read_content(path: Path) -> bytes:
    """All bytes of a file, unpacked if its name ends in ``.gz``; a file without content is refused."""
    try:
        content = read_bytes(path)
        if path.suffix == ".gz":
            content = unpack_gzip(content, path)
    except FileError as error:
        raise DataError(error) from error
    if not content.strip():
        raise DataError(f"{path} is empty. Expected lines of text.")
    return content


def read_utf8(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark; lines end with a single newline."""
    content = read_content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8: byte {content[error.start] if error.start < len(content) else 0:#04x} at position "
            f"{error.start} does not belong there. Save the file as UTF-8."
        ) from error
    return text.replace("\r\n", "\n")
