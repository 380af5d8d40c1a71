"""What all models for text begin with: numbers of words become vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.indices import require_indices

PADDING = 0


class WordVectors(nn.Module):
    """Numbers of words to their vectors, with a mask of what is there.

    Number 0 is padding, at the end of a text only. A text that is shorter than the windows that slide over it is
    continued with zero vectors up to their width: those count as words, however long the batch is.

    Args:
        words: rows of the table, padding included.
        dim: size of a vector.
        static: keep the vectors as they are.
        dropout: of their numbers.

    Shapes:
        numbers int64 ``[B, L]`` → vectors ``[B, dim, L']`` and mask ``[B, L']`` with L' = max(L, shortest).
    """

    if TYPE_CHECKING:

        def __call__(self, numbers: Tensor, shortest: int = 1) -> tuple[Tensor, Tensor]:
            """See :meth:`forward`."""

    def __init__(self, words: int, dim: int, static: bool, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(words, dim, padding_idx=PADDING)
        nn.init.uniform_(self.table.weight, -0.25, 0.25)
        with torch.no_grad():
            self.table.weight[PADDING] = 0
        self.table.weight.requires_grad_(not static)
        self.dropout = nn.Dropout(dropout)

    def load(self, vectors: Tensor) -> None:
        """Begin with these vectors ``[words, dim]``."""
        if vectors.shape != self.table.weight.shape:
            raise InputError(
                f"the model has word vectors of shape {tuple(self.table.weight.shape)}, got {tuple(vectors.shape)}."
            )
        with torch.no_grad():
            self.table.weight.copy_(vectors)

    def forward(self, numbers: Tensor, shortest: int = 1) -> tuple[Tensor, Tensor]:
        """Look them up."""
        _require_numbers(numbers, self.table.num_embeddings)
        numbers = F.pad(numbers, (0, max(0, shortest - numbers.shape[1])), value=PADDING)
        mask = (numbers != PADDING) | (torch.arange(numbers.shape[1], device=numbers.device) < shortest)
        return self.dropout(self.table(numbers)).transpose(1, 2), mask


def _require_numbers(numbers: Tensor, words: int) -> None:
    if numbers.dtype != torch.int64 or numbers.dim() != 2 or not numbers.shape[1]:
        raise InputError(
            f"expected the numbers of words, int64 of shape [batch, length], got {numbers.dtype} of shape "
            f"{tuple(numbers.shape)}. Vocabulary.encode_batch makes them."
        )
    require_indices(
        numbers,
        words,
        f"the numbers of words must be in 0 … {words - 1}",
        advice=" Was the text encoded with another vocabulary?",
        looked_up=True,
    )


def require_sizes(ngrams: Sequence[int]) -> None:
    """Raise unless these are sizes of n-grams."""
    if not isinstance(ngrams, Sequence) or not ngrams:
        raise InputError(f"ngrams is a list with at least one size of n-grams, such as [3, 4, 5]; got {ngrams!r}.")
    for size in ngrams:
        require_count("a size of n-grams", size)
