"""Networks for text without capsules, to compare with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchcaps.checks import require_count
from torchcaps.models.base import Model
from torchcaps.models.embedding import WordVectors, require_sizes
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import register_model


class TextCNN(Model):
    """N-gram filters with ReLU, the maximum of each over the text, dropout, logits (Kim 2014, arXiv 1408.5882).

    Args:
        shape: rows of the table of word vectors, padding included, and their size.
        classes: number of classes.
        ngrams: sizes of the n-grams.
        filters: for each of them.
        static: keep the word vectors as they are ("CNN-static"), or train them too ("CNN-non-static").
        dropout: of the maxima, and of the word vectors.

    Shapes:
        token ids int64 ``[B, L]``, 0 for padding at the end → :class:`ModelOutput` with logits as scores.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        classes: int,
        *,
        ngrams: Sequence[int],
        filters: int,
        static: bool,
        dropout: tuple[float, float],
    ) -> None:
        super().__init__()
        require_sizes(ngrams)
        require_count("filters", filters)
        words, dim = shape
        self.shortest = max(ngrams)
        self.words = WordVectors(words, dim, static, dropout[0])
        self.ngrams = nn.ModuleList(nn.Conv1d(dim, filters, ngram) for ngram in ngrams)
        self.classifier = nn.Sequential(nn.Dropout(dropout[1]), nn.Linear(filters * len(ngrams), classes))

    def load_vectors(self, vectors: Tensor) -> None:
        """Begin with these word vectors ``[words, dim]``."""
        self.words.load(vectors)

    def forward(self, token_ids: Tensor, target: Tensor | None = None) -> ModelOutput:
        """Classify texts."""
        vectors, mask = self.words(token_ids, self.shortest)
        maxima = []
        for conv in self.ngrams:
            features = torch.relu(conv(vectors))  # [B, filters, L − n + 1]
            there = mask[:, None, mask.shape[1] - features.shape[2] :]  # an n-gram whose last word is there
            maxima.append(features.masked_fill(~there, 0).amax(dim=2))
        return ModelOutput(self.classifier(torch.cat(maxima, dim=1)))


class TextLSTM(Model):
    """The last state of an LSTM over the words, or of two that read in both directions; dropout, logits.

    Args:
        shape: rows of the table of word vectors, padding included, and their size.
        classes: number of classes.
        hidden: size of a state.
        directions: 1, or 2 to read from the end too.
        static: keep the word vectors as they are.
        dropout: of the last state, and of the word vectors.

    Shapes:
        token ids int64 ``[B, L]``, 0 for padding at the end → :class:`ModelOutput` with logits as scores.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        classes: int,
        *,
        hidden: int,
        directions: int,
        static: bool,
        dropout: tuple[float, float],
    ) -> None:
        super().__init__()
        require_count("hidden", hidden)
        words, dim = shape
        self.words = WordVectors(words, dim, static, dropout[0])
        self.readers = nn.ModuleList(nn.LSTM(dim, hidden, batch_first=True) for _ in range(directions))
        self.classifier = nn.Sequential(nn.Dropout(dropout[1]), nn.Linear(hidden * directions, classes))

    def load_vectors(self, vectors: Tensor) -> None:
        """Begin with these word vectors ``[words, dim]``."""
        self.words.load(vectors)

    def forward(self, token_ids: Tensor, target: Tensor | None = None) -> ModelOutput:
        """Classify texts."""
        vectors, mask = self.words(token_ids)
        vectors, last = vectors.transpose(1, 2), mask.sum(dim=1) - 1  # [B, L, dim], [B]
        states, turned = [], vectors
        for backwards, reader in enumerate(self.readers):
            if backwards:  # every text turned round in its own length, so that padding stays at the end
                places = (last[:, None] - torch.arange(mask.shape[1], device=mask.device)).clamp_min(0)
                turned = vectors.gather(1, places[:, :, None].expand_as(vectors))
            read, _ = reader(turned)
            states.append(read[torch.arange(read.shape[0], device=read.device), last])
        return ModelOutput(self.classifier(torch.cat(states, dim=1)))


@register_model("text-cnn", reads="words")
def text_cnn(
    shape: tuple[int, int],
    classes: int,
    *,
    ngrams: Sequence[int] = (3, 4, 5),
    filters: int = 100,
    static: bool = False,
    dropout: float = 0.5,
    word_dropout: float = 0.0,
) -> TextCNN:
    """Kim's convolutional network for sentences (2014), non-static unless told otherwise."""
    return TextCNN(shape, classes, ngrams=ngrams, filters=filters, static=static, dropout=(word_dropout, dropout))


@register_model("text-lstm", reads="words")
def text_lstm(
    shape: tuple[int, int],
    classes: int,
    *,
    hidden: int = 128,
    static: bool = False,
    dropout: float = 0.5,
    word_dropout: float = 0.0,
) -> TextLSTM:
    """An LSTM that reads a text from the beginning."""
    return TextLSTM(shape, classes, hidden=hidden, directions=1, static=static, dropout=(word_dropout, dropout))


@register_model("text-bilstm", reads="words")
def text_bilstm(
    shape: tuple[int, int],
    classes: int,
    *,
    hidden: int = 128,
    static: bool = False,
    dropout: float = 0.5,
    word_dropout: float = 0.0,
) -> TextLSTM:
    """Two LSTMs, one from the beginning and one from the end."""
    return TextLSTM(shape, classes, hidden=hidden, directions=2, static=static, dropout=(word_dropout, dropout))
