"""Sentences in memory, and how the files that hold them are opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.data.images import check_names
from torchcaps.data.items import Item, join_items, pick_items
from torchcaps.data.options import Units
from torchcaps.data.text.tokens import tokenize
from torchcaps.errors import DataError, FileError
from torchcaps.io import read_bytes, unpack_gzip

Tokens = tuple[str, ...]
SAVE_AS_UTF8 = "Save the file as UTF-8 (a spreadsheet calls it CSV UTF-8), or convert it:"
MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Byte-order marks of other encodings than UTF-8, the longer ones first."""


class RawTexts(NamedTuple):
    """Texts as they were given, and whether they were made lower case when they were split."""

    texts: tuple[str, ...]
    lower: bool


@dataclass(frozen=True)
class TextSet:
    """Texts as tokens, their labels and the classes' names, all fitting together.

    ``labels`` are int64 ``[N]`` where a text has one class, or bool ``[N, K]`` where it may have several of K classes.
    A text may be empty. ``items`` are the texts of one's own data by their content; None where nobody asks. ``raw`` are
    those that can be split in another way, too.
    """

    texts: tuple[Tokens, ...]
    labels: Tensor
    class_names: tuple[str, ...]
    items: tuple[Item, ...] | None = None
    raw: RawTexts | None = None

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
        items, raw = pick_items(self.items, indices), self.raw
        if raw is not None:
            raw = raw._replace(texts=tuple(raw.texts[index] for index in indices.tolist()))
        return TextSet(texts, self.labels[indices], self.class_names, items, raw)

    def __add__(self, more: TextSet) -> TextSet:
        """Both, of the same classes."""
        labels, items = torch.cat([self.labels, more.labels]), join_items(self.items, more.items)
        raw = None
        if self.raw is not None and more.raw is not None and self.raw.lower == more.raw.lower:
            raw = self.raw._replace(texts=self.raw.texts + more.raw.texts)
        return TextSet(self.texts + more.texts, labels, self.class_names, items, raw)

    def split_again(self, lower: bool, units: Units) -> TextSet:
        """The same texts in another way; those that were given as tokens stay as they are."""
        if self.raw is None or (lower, units) == (self.raw.lower, "auto"):
            return self
        texts = tuple(tokenize(text, lower, units) for text in self.raw.texts)
        return replace(self, texts=texts, raw=None)

    def with_flags(self) -> TextSet:
        """The same texts with their labels as flags bool ``[N, K]``, as where a text may have several."""
        if self.multi_label:
            return self
        flags = self.labels[:, None] == torch.arange(len(self.class_names))
        return replace(self, labels=flags)

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
    """The text of a UTF-8 file, with or without a byte-order mark; lines end with a single newline.

    Files in UTF-16 or UTF-32 are read if their byte-order mark says so.
    """
    content = read_content(path)
    encoding = next((name for mark, name in MARKS.items() if content.startswith(mark)), "utf-8-sig")
    start = content[:1000]
    if encoding == "utf-8-sig" and 3 * start.count(0) > len(start):
        raise DataError(
            f"{path} is not UTF-8: every other byte is zero, as in UTF-16 without a byte-order mark. {SAVE_AS_UTF8} "
            "iconv -f UTF-16LE -t UTF-8 old.csv > new.csv."
        )
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise DataError(f"{path} begins as {encoding.upper()} and is none: is it cut short?") from None
        raise DataError(
            f"{path} is not UTF-8: byte {content[error.start] if error.start < len(content) else 0:#04x} at position "
            f"{error.start} does not belong there; it may be Latin-1 or another older encoding. {SAVE_AS_UTF8} iconv "
            "-f WINDOWS-1252 -t UTF-8 old.csv > new.csv."
        ) from error
    return text.replace("\r\n", "\n")
