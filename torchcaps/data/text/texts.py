"""Texts as a source of batches."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data.images import Batch
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.vocabulary import PADDING, Vocabulary
from torchcaps.errors import DataError

MOST_TOKENS = 20_000
"""A batch for evaluation holds about so many words, padding included."""


class Texts:
    """A text set as a source: batches of token ids, padded at the end to the longest text of the batch.

    Args:
        data: the texts.
        vocabulary: the ids of their words; others are unknown words.
        max_length: a text is cut after so many words.
    """

    objects, kind = 1, "texts"

    def __init__(self, data: TextSet, vocabulary: Vocabulary, max_length: int) -> None:
        if max_length < 1:
            raise DataError(f"max_length must be at least 1, got {max_length}.", option="max_length")
        self.data, self.vocabulary, self.class_names = data, vocabulary, data.class_names
        rows = [vocabulary.encode(text[:max_length]) for text in data.texts]
        self.lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.token_ids = torch.tensor([token_id for row in rows for token_id in row], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def multi_label(self) -> bool:
        """Whether a text may have several classes."""
        return self.data.multi_label

    def batch(self, indices: Tensor, seed: int = 0) -> Batch:
        """Token ids int64 ``[B, L]`` and labels; nothing about it is random."""
        lengths = self.lengths[indices]
        places = torch.arange(int(lengths.max()) if len(lengths) else 0)
        there = places < lengths[:, None]
        at = (self.starts[indices, None] + places).clamp_max(len(self.token_ids) - 1)
        token_ids = self.token_ids[at].masked_fill(~there, PADDING)
        return Batch(token_ids, self.data.labels[indices], token_ids)

    def evaluation_parts(self, indices: Tensor, batch_size: int) -> list[Tensor]:
        """These texts by length, so that little is padding and a single long text is a batch of its own."""
        order = indices[self.lengths[indices].argsort(stable=True)].tolist()
        parts: list[list[int]] = [[]]
        for index in order:
            width = int(self.lengths[index])
            if parts[-1] and (len(parts[-1]) >= batch_size or (len(parts[-1]) + 1) * width > MOST_TOKENS):
                parts.append([])
            parts[-1].append(index)
        return [torch.tensor(part, dtype=torch.int64) for part in parts if part]
