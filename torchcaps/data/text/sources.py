"""Texts as a source of batches, and the training, validation and test texts of a recipe."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.images import Batch, DataError
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.splits import validation_cut
from torchcaps.data.text.benchmarks import BENCHMARKS, text_set
from torchcaps.data.text.own import SUFFIXES, text_file
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.vectors import random_vectors, word_vectors
from torchcaps.data.text.vocabulary import PADDING, Vocabulary

MOST_NUMBERS = 20_000
"""A batch for evaluation holds about so many words, padding included."""


class Texts:
    """A text set as a source: batches of word numbers, padded at the end to the longest text of the batch.

    Args:
        data: the texts.
        vocabulary: their words' numbers; others are unknown words.
        longest: a text is cut after so many words.
    """

    objects, kind = 1, "texts"

    def __init__(self, data: TextSet, vocabulary: Vocabulary, longest: int) -> None:
        if longest < 1:
            raise DataError(f"--text.longest must be at least 1, got {longest}.")
        self.data, self.vocabulary, self.class_names = data, vocabulary, data.class_names
        rows = [vocabulary.encode(text[:longest]) for text in data.texts]
        self.lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.numbers = torch.tensor([number for row in rows for number in row], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def multi_label(self) -> bool:
        """Whether a text may have several classes."""
        return self.data.multi_label

    def batch(self, indices: Tensor, seed: int = 0) -> Batch:
        """Numbers int64 ``[B, L]`` and labels; nothing about it is random."""
        lengths = self.lengths[indices]
        places = torch.arange(int(lengths.max()) if len(lengths) else 0)
        there = places < lengths[:, None]
        at = (self.starts[indices, None] + places).clamp_max(len(self.numbers) - 1)
        numbers = self.numbers[at].masked_fill(~there, PADDING)
        return Batch(numbers, self.data.labels[indices], numbers)

    def evaluation_parts(self, indices: Tensor, batch_size: int) -> list[Tensor]:
        """These texts by length, so that little is padding and a single long text is a batch of its own."""
        order = indices[self.lengths[indices].argsort(stable=True)].tolist()
        parts: list[list[int]] = [[]]
        for index in order:
            width = int(self.lengths[index])
            if parts[-1] and (len(parts[-1]) >= batch_size or (len(parts[-1]) + 1) * width > MOST_NUMBERS):
                parts.append([])
            parts[-1].append(index)
        return [torch.tensor(part, dtype=torch.int64) for part in parts if part]


def is_text(name: str) -> bool:
    """Whether a recipe's data is text: a benchmark of that kind, or a user's own files."""
    path = Path(name)
    if name in BENCHMARKS or path.suffix.lower() in SUFFIXES:
        return True
    return any((path / f"train{suffix}").is_file() for suffix in SUFFIXES)


def keeps_capitals(name: str) -> bool:
    """Whether the capitals of this data matter, as in Kim 2014 those of trec."""
    return name in BENCHMARKS and not BENCHMARKS[name].lower


def load_texts(
    data: DataOptions,
    text: TextOptions,
    split: str,
    class_names: tuple[str, ...] | None = None,
    lower: bool | None = None,
) -> TextSet:
    """A split of a benchmark, or of a user's own file or folder.

    ``class_names`` and ``lower`` are those of a trained model; not given: the data's own.
    """
    if data.name in BENCHMARKS:
        return text_set(data.name, split, data.dir, fold=text.fold, seed=text.fold_seed, lower=lower)
    if text.fold:
        raise DataError(f"--text.fold is for data that is cut into folds; {data.name} is not, so it must be 0.")
    columns = {"text_column": text.text_column, "label_column": text.label_column}
    return text_file(data.name, split, **columns, class_names=class_names, lower=lower is not False)


def text_sources(data: DataOptions, text: TextOptions, seed: int) -> tuple[Texts, Texts | None]:
    """What to train on and what to validate on; the vocabulary is that of the texts to train on.

    The sst sets have validation texts of their own, which are taken instead of a part of training.
    """
    train = load_texts(data, text, "train")
    classes = train.labels.int().argmax(dim=1) if train.multi_label else train.labels
    if len(set(classes.tolist())) < 2:
        raise DataError(f"the training texts of {data.name} are of one class only; a classifier needs at least two.")
    if data.name in BENCHMARKS and "validation" in BENCHMARKS[data.name].splits:
        aside = load_texts(data, text, "validation") if data.validation else train[torch.arange(0)]
    else:
        kept, held_out = validation_cut(classes, data.validation, seed)
        train, aside = train[kept], train[held_out]
    vocabulary = Vocabulary.of(train.texts, text.least_count, text.most_words)
    if not vocabulary.words:
        raise DataError(
            f"no word comes {text.least_count:,} times in the training texts of {data.name}: choose a smaller "
            "--text.least_count, or look at the texts."
        )
    source = Texts(train, vocabulary, text.longest)
    return source, Texts(aside, vocabulary, text.longest) if len(aside) else None


def initial_vectors(text: TextOptions, vocabulary: Vocabulary, seed: int) -> tuple[Tensor, int | None]:
    """Vectors ``[V, D]`` to begin with, and how many words the file of vectors had; None without a file."""
    if text.vectors is None:
        return random_vectors(vocabulary, text.vector_size, sub_seed(seed, Stream.WORD_VECTORS)), None
    return word_vectors(text.vectors, vocabulary, seed=sub_seed(seed, Stream.WORD_VECTORS))
