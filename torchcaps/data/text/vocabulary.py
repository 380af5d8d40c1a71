"""The words that a model knows, and texts as token ids."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.checks import require_count
from torchcaps.data.text.sets import read_utf8
from torchcaps.errors import DataError

PADDING = 0
UNKNOWN = 1
FIRST = 2
HEADER = "torchcaps vocabulary, words: "


@dataclass(frozen=True)
class Vocabulary:
    """Words and their token ids: 0 is padding, 1 any unknown word, ``words[i]`` has the id i + 2.

    The length is that of an embedding's table: the words and these two.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        bad = next((word for word in self.words if word.split() != [word]), None)
        if bad is not None:
            raise DataError(f"a word must have characters and no space among them, got {bad!r}. Tokenise the texts.")
        if len(set(self.words)) < len(self.words):
            twice = Counter(self.words).most_common(1)[0][0]
            raise DataError(f"the words of a vocabulary must be different, {twice!r} comes twice.")

    def __len__(self) -> int:
        return len(self.words) + FIRST

    @classmethod
    def from_texts(cls, texts: Iterable[Sequence[str]], min_count: int = 1, max_words: int | None = None) -> Vocabulary:
        """The words of texts, the most frequent first, equally frequent ones in alphabetical order.

        Args:
            texts: tokens of each; take those of training only.
            min_count: words that come less often are left out.
            max_words: keep only so many words, the first ones.
        """
        require_count("min_count", min_count)
        if max_words is not None:
            require_count("max_words", max_words)
        counts = Counter(word for text in texts for word in text)
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(kept, key=lambda word: (-counts[word], word))[:max_words]))

    @cached_property
    def token_ids(self) -> dict[str, int]:
        """The id of every word."""
        return {word: token_id for token_id, word in enumerate(self.words, FIRST)}

    @cached_property
    def fingerprint(self) -> str:
        """Another one for other words, or for the same in another order."""
        return hashlib.sha256("\n".join(self.words).encode("utf-8", "surrogatepass")).hexdigest()

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of every token. An empty text becomes one unknown word: a model needs a position to look at."""
        return [self.token_ids.get(token, UNKNOWN) for token in tokens] or [UNKNOWN]

    def encode_batch(self, texts: Sequence[Sequence[str]], min_length: int = 1) -> Tensor:
        """Texts as token ids int64 ``[B, L]``, filled up with 0 at the end; the mask of what is there is ``ids != 0``.

        L is the length of the longest text, at least ``min_length`` (a convolution needs as many words as it is wide).
        Unknown words are present positions, and so is the one of an empty text: every row of the mask has a True.
        """
        require_count("min_length", min_length)
        rows = [self.encode(text) for text in texts]
        ids = torch.full((len(rows), max([min_length, *map(len, rows)])), PADDING, dtype=torch.int64)
        for row, token_ids in enumerate(rows):
            ids[row, : len(token_ids)] = torch.tensor(token_ids)
        return ids

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a UTF-8 file: a first line with the number of words, then a word per line in the order of ids."""
        lines = [f"{HEADER}{len(self.words)}", *self.words]
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read what :meth:`save` has written; a file that is cut short or something else is refused."""
        header, *words = read_utf8(Path(path)).removesuffix("\n").split("\n")
        count = header.removeprefix(HEADER)
        if count == header or not (count.isascii() and count.isdigit() and len(count) < 12):
            raise DataError(f"{path} is no saved vocabulary: its first line must be {HEADER!r} and their number.")
        if len(words) != int(count):
            raise DataError(
                f"{path} is cut short or was changed: it announces {count} words and has {len(words)}. Save it again."
            )
        try:
            return cls(tuple(words))
        except DataError as error:
            raise DataError(f"{path} was changed: {error}") from error
