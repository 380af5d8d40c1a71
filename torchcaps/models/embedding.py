"""What all models for text begin with: token ids become vectors."""

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
    """Token ids to word vectors, with a mask of what is there.

    Id 0 is padding, at the end of a text only. A text that is shorter than the windows that slide over it is
    continued with zero vectors up to their width: those count as words, however long the batch is.

    Args:
        words: rows of the table, padding included.
        dim: size of a vector.
        static: keep the vectors as they are.
        dropout: of the entries of the vectors.

    Shapes:
        token ids int64 ``[B, L]`` → vectors ``[B, dim, L']`` and mask ``[B, L']`` with L' = max(L, shortest).
    """

    if TYPE_CHECKING:

        def __call__(self, token_ids: Tensor, shortest: int = 1) -> tuple[Tensor, Tensor]:
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

    def forward(self, token_ids: Tensor, shortest: int = 1) -> tuple[Tensor, Tensor]:
        """Look them up."""
        _require_token_ids(token_ids, self.table.num_embeddings)
        token_ids = F.pad(token_ids, (0, max(0, shortest - token_ids.shape[1])), value=PADDING)
        mask = (token_ids != PADDING) | (torch.arange(token_ids.shape[1], device=token_ids.device) < shortest)
        return self.dropout(self.table(token_ids)).transpose(1, 2), mask


def _require_token_ids(token_ids: Tensor, words: int) -> None:
    if token_ids.dtype != torch.int64 or token_ids.dim() != 2 or not token_ids.shape[1]:
        raise InputError(
            f"expected token ids, int64 of shape [batch, length], got {token_ids.dtype} of shape "
            f"{tuple(token_ids.shape)}. Vocabulary.encode_batch makes them."
        )
    require_indices(
        token_ids,
        words,
        f"the token ids must be in 0 … {words - 1}",
        advice=" Was the text encoded with another vocabulary?",
        looked_up=True,
    )


def require_sizes(ngrams: Sequence[int]) -> None:
    """Raise unless these are sizes of n-grams."""
    if not isinstance(ngrams, Sequence) or not ngrams:
        raise InputError(f"ngrams is a list with at least one size of n-grams, such as [3, 4, 5]; got {ngrams!r}.")
    for size in ngrams:
        require_count("a size of n-grams", size)
