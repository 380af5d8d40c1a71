"""Benchmarks of sentence classification, from their usual files in ``text/`` of a data folder.

All texts go through :func:`~torchcaps.data.text.tokens.tokenize`. Texts without words are kept as empty tuples: a few
of cr and mpqa are.

The sentences of "mr-mini", which come with the package, are from the sentence polarity data set of Bo Pang and Lillian
Lee (Seeing stars: exploiting class relationships for sentiment categorization with respect to rating scales, ACL
2005), licensed CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/): 5,000 of its sentences were chosen and
tokenised (scripts/make_mr_mini.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from torchcaps.data.dataset import Files, TextDataset
from torchcaps.data.files import data_folders, find_file
from torchcaps.data.options import Units
from torchcaps.data.randomness import numbered_seed, random_bits
from torchcaps.data.registry import register_dataset
from torchcaps.data.text.sets import TextSet, read_content
from torchcaps.data.text.tokens import tokenize
from torchcaps.errors import DataError

FOLDS = 10
MINI_FILE = "mr_mini.txt.gz"
MINI_TRAIN = 4000
"""So many lines of the file are for training, those after them for the test."""
POLARITY = ("negative", "positive")


@dataclass(frozen=True)
class TextBenchmark(TextDataset):
    """A benchmark with a file for each split, a class number and a sentence on every line."""

    folder: ClassVar[str] = "text"
    files_by_split: ClassVar[dict[str, str]] = {}
    class_names: ClassVar[tuple[str, ...]] = POLARITY

    @classmethod
    def find_files(cls, files: Files = Files()) -> dict[str, Path | None]:
        """Where each of its files is, packed or not; None for one that is not there."""
        folders = [folder / cls.folder for folder in data_folders(files.dir)]
        return {name: find_file(folders, f"{name}.gz") for name in sorted(set(cls.files_by_split.values()))}

    def require_file(self, split: str, files: Files) -> Path:
        """The file of a split; if it is not there, an error says where it was looked for."""
        file = self.files_by_split[split]
        path = self.find_files(files)[file]
        if path is None:
            looked = " or ".join(str(folder / self.folder / file) for folder in data_folders(files.dir))
            needed = ", ".join(f"{self.folder}/{name}" for name in self.find_files(files))
            raise DataError(
                f"{self.name} is not here: {Path(file).name} (or the same with .gz) was looked for as {looked}. "
                f"It is not downloaded automatically: put {needed} into a data folder and give that as data.dir or in "
                "TORCHCAPS_DATA. mr-mini needs no files.",
                option="data.dir",
            )
        return path

    def load(
        self,
        split: str,
        files: Files = Files(),
        class_names: tuple[str, ...] | None = None,
        lower: bool | None = None,
    ) -> TextSet:
        """See :class:`~torchcaps.data.dataset.TextDataset`; in the order of the file."""
        self.check_split(split)
        return self.read_split(split, files, self.lower if lower is None else lower)

    def read_split(self, split: str, files: Files, lower: bool) -> TextSet:
        """The texts of a split that there is."""
        return read_lines(self.require_file(split, files), self.class_names, lower, files.units)


@dataclass(frozen=True)
class FoldedBenchmark(TextBenchmark):
    """A benchmark without a test of its own: a tenth is the test of each of ten folds, see :func:`fold_numbers`.

    Args:
        fold: which tenth is the test, 0 … 9.
        fold_seed: how the texts are cut into tenths.
    """

    fold: int = 0
    fold_seed: int = 0

    def __post_init__(self) -> None:
        if self.fold not in range(FOLDS):
            raise DataError(f"the fold of {self.name} must be in 0 … {FOLDS - 1}, got {self.fold!r}.", option="fold")

    def read_split(self, split: str, files: Files, lower: bool) -> TextSet:
        """The fold, or all but the fold."""
        whole = read_lines(self.require_file("all", files), self.class_names, lower, files.units)
        tested = fold_numbers(whole.labels, self.fold_seed) == self.fold
        return whole[tested if split == "test" else ~tested]


@register_dataset("mr-mini")
@dataclass(frozen=True)
class MovieReviewsMini(TextDataset):
    """4,000 / 1,000 sentences of mr."""

    def load(
        self,
        split: str,
        files: Files = Files(),
        class_names: tuple[str, ...] | None = None,
        lower: bool | None = None,
    ) -> TextSet:
        """See :class:`~torchcaps.data.dataset.TextDataset`."""
        self.check_split(split)
        with resources.as_file(resources.files("torchcaps.data.text").joinpath(MINI_FILE)) as path:
            whole = read_lines(path, POLARITY, self.lower if lower is None else lower, files.units)
        chosen = torch.arange(len(whole)) < MINI_TRAIN
        return whole[chosen if split == "train" else ~chosen]


@register_dataset("mr")
@dataclass(frozen=True)
class MovieReviews(FoldedBenchmark):
    """10,662 sentences of movie reviews, ten folds.

    Pang and Lee 2005; two classes.
    """

    files_by_split: ClassVar[dict[str, str]] = {"all": "rt-polarity.all"}


@register_dataset("subj")
@dataclass(frozen=True)
class Subjectivity(FoldedBenchmark):
    """10,000 sentences, ten folds.

    Pang and Lee 2004; subjective or objective.
    """

    files_by_split: ClassVar[dict[str, str]] = {"all": "subj.all"}
    class_names: ClassVar[tuple[str, ...]] = ("subjective", "objective")


@register_dataset("cr")
@dataclass(frozen=True)
class CustomerReviews(FoldedBenchmark):
    """3,775 sentences of customer reviews, ten folds.

    Hu and Liu 2004; two classes.
    """

    files_by_split: ClassVar[dict[str, str]] = {"all": "custrev.all"}


@register_dataset("mpqa")
@dataclass(frozen=True)
class Opinions(FoldedBenchmark):
    """10,606 phrases of opinion, ten folds.

    Wiebe et al. 2005; two classes.
    """

    files_by_split: ClassVar[dict[str, str]] = {"all": "mpqa.all"}


@register_dataset("trec")
@dataclass(frozen=True)
class Questions(TextBenchmark):
    """5,452 / 500 questions, 6 classes.

    Li and Roth 2002; capitals are kept, as in Kim 2014.
    """

    lower: ClassVar[bool] = False
    files_by_split: ClassVar[dict[str, str]] = {"train": "TREC.train.all", "test": "TREC.test.all"}
    class_names: ClassVar[tuple[str, ...]] = (
        "description",
        "entity",
        "abbreviation",
        "human",
        "location",
        "number",
    )


@register_dataset("sst1")
@dataclass(frozen=True)
class StanfordFine(TextBenchmark):
    """8,544 / 2,210 sentences of movie reviews, 5 classes (Stanford treebank).

    Socher et al. 2013; 1,101 validation sentences of its own.
    """

    splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    files_by_split: ClassVar[dict[str, str]] = {
        "train": "stsa.fine.train",
        "validation": "stsa.fine.dev",
        "test": "stsa.fine.test",
    }
    class_names: ClassVar[tuple[str, ...]] = ("very negative", "negative", "neutral", "positive", "very positive")


@register_dataset("sst2")
@dataclass(frozen=True)
class StanfordBinary(TextBenchmark):
    """6,920 / 1,821 sentences of movie reviews, 2 classes (Stanford treebank).

    Socher et al. 2013; 872 validation sentences of its own.
    """

    splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    files_by_split: ClassVar[dict[str, str]] = {
        "train": "stsa.binary.train",
        "validation": "stsa.binary.dev",
        "test": "stsa.binary.test",
    }


def fold_numbers(labels: Tensor, seed: int, folds: int = FOLDS) -> Tensor:
    """Which fold every item is the test of, drawn by seed.

    In every fold a class has the same number of items, up to one, and so has the whole.

    Shapes:
        labels int64 ``[N]`` → int64 ``[N]`` in 0 … folds − 1.
    """
    order = []
    for label in sorted(set(labels.tolist())):
        items = (labels == label).nonzero().flatten()
        order.append(items[random_bits(numbered_seed(seed, label), items, 1)[:, 0].argsort(stable=True)])
    numbers = torch.empty(len(labels), dtype=torch.int64)
    # Dealt like cards, on from one class to the next: the first folds would else get all that is left over.
    numbers[torch.cat(order) if order else torch.empty(0, dtype=torch.int64)] = torch.arange(len(labels)) % folds
    return numbers


def read_lines(path: Path, class_names: tuple[str, ...], lower: bool = True, units: Units = "auto") -> TextSet:
    """A file with a class number, a space and a sentence on every line; UTF-8, or else Latin-1 (both are about)."""
    content = read_content(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # which takes any bytes
    texts, labels = [], []
    # Only at newlines: other characters that Python takes for line ends are inside of sentences.
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        label, _, sentence = line.partition(" ")
        label = label.strip()
        if not (label.isascii() and label.isdigit()):
            problem = f"starts with {label[:40]!r}, which is no number" if label else "has no label"
            raise DataError(f"line {number} of {path} {problem}. Every line must be `label sentence`, as in `0 so so`.")
        if int(label[:9]) >= len(class_names):
            raise DataError(
                f"line {number} of {path} has the label {label[:40]}, expected 0 … {len(class_names) - 1} for "
                f"{', '.join(class_names)}."
            )
        texts.append(tokenize(sentence, lower, units))
        labels.append(int(label))
    return TextSet(tuple(texts), torch.tensor(labels, dtype=torch.int64), class_names)
