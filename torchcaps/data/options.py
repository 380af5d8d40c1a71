"""What to train or judge on, as plain data. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from torchcaps.errors import DataError

# jsonargparse reads the annotations; Optional works for every Python that is supported.
# ruff: noqa: UP045

IN_MEMORY = "in-memory"
"""What data that has no name and no file is called in a recipe."""
CROPS = (1, 13)
"""Patches per image at test: the centre, or a 3×3 grid and its four centres."""


@dataclass
class DataOptions:
    """What to train on.

    Args:
        name: a data set (`torchcaps data list`), a folder of class folders of images, an .npz with x and y, or for
            text a .csv, .tsv or .jsonl file, or a folder with train.csv and test.csv.
        options: of that data set, for example base, protocol, image_size, unreadable, fold, text_column.
        dir: folder with data sets; else TORCHCAPS_DATA, then the user's cache.
        download: fetch the data set if it is not there.
        validation: part of the training images or texts that is kept aside to watch training, cut by the seed.
        sampling: shuffled has every training item once in an epoch; balanced draws as many of each class, rare ones
            several times.
        shift: training images are shifted by up to so many pixels (multi-mnist and affine-mnist have their own).
        mirror: in training half of the images have left and right exchanged; not multi-mnist and affine-mnist, as the
            next six.
        resize: shorter side that the images are brought to.
        standardize: every image gets mean 0 and variance 1.
        crop: side of a square patch: from a random place in training (give shift 0), from the centre otherwise.
        crops: at test the mean of the scores of 1 patch (the centre) or of 13 (a 3×3 grid and its four centres).
        brightness: in training up to so much is added to an image, either way; 1 is white, or with standardize one
            standard deviation.
        contrast: in training an image's differences from its mean are multiplied by 1 ± up to so much.
    """

    name: str = "mnist-mini"
    options: dict[str, Any] = field(default_factory=dict)
    dir: Optional[str] = None
    download: bool = False
    validation: float = 0.1
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    shift: int = 2
    mirror: bool = False
    resize: Optional[int] = None
    standardize: bool = False
    crop: Optional[int] = None
    crops: Literal[1, 13] = 1
    brightness: float = 0.0
    contrast: float = 0.0

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise DataError("data.name is empty: give the name of a data set, a folder or a file.", option="data.name")
        if not isinstance(self.options, dict):
            raise DataError(f"data.options must be keys with values, got {self.options!r:.60}.", option="data.options")
        if not 0 <= self.validation < 1:
            raise DataError(
                f"data.validation is a part of the training data, in [0, 1); got {self.validation}.",
                option="data.validation",
            )
        if self.sampling not in ("shuffled", "balanced"):
            raise DataError(
                f"data.sampling must be shuffled or balanced, got {self.sampling!r:.60}.", option="data.sampling"
            )
        check_preparation(self.resize, self.crop, self.crops, "data.")
        check_augmentation(self.shift, self.brightness, self.contrast, "data.")


@dataclass
class TextOptions:
    """How text is read; image data has no use for it.

    Args:
        vectors: word vectors to begin with, a GloVe or word2vec text file or an .npz; not given: random ones.
        vector_size: size of random vectors; a file has its own.
        min_count: words that come less often in the training texts are unknown ones.
        max_words: keep so many words, the most frequent; not given: all.
        max_length: texts are cut after so many words, in training and after.
    """

    vectors: Optional[str] = None
    vector_size: int = 100
    min_count: int = 1
    max_words: Optional[int] = None
    max_length: int = 400

    def __post_init__(self) -> None:
        for name in ("vector_size", "min_count", "max_words", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"text.{name} must be at least 1, got {value}.", option=f"text.{name}")


def check_preparation(resize: int | None, crop: int | None, crops: int, prefix: str = "") -> None:
    """Refuse numbers that no image can be prepared by; ``prefix`` is what the names of the options begin with."""
    for name, value in (("resize", resize), ("crop", crop)):
        if value is not None and value < 1:
            raise DataError(f"{prefix}{name} is a number of pixels, at least 1; got {value}.", option=f"{prefix}{name}")
    if crops not in CROPS:
        raise DataError(f"{prefix}crops must be 1 (the centre) or 13, got {crops}.", option=f"{prefix}crops")
    if crops > 1 and crop is None:
        raise DataError(
            f"{prefix}crops {crops} needs the side of the patches: give {prefix}crop, such as 32.",
            option=f"{prefix}crop",
        )


def check_augmentation(shift: int, brightness: float, contrast: float, prefix: str = "") -> None:
    """Refuse numbers that no training image can be changed by; ``prefix`` as in :func:`check_preparation`."""
    if not 0 <= shift < math.inf:
        raise DataError(f"{prefix}shift is a number of pixels, at least 0; got {shift}.", option=f"{prefix}shift")
    if not 0 <= brightness < math.inf:
        raise DataError(
            f"{prefix}brightness is the most that is added, at least 0; got {brightness}.",
            option=f"{prefix}brightness",
        )
    if not 0 <= contrast <= 1:
        raise DataError(
            f"{prefix}contrast is the most that a factor differs from 1, in [0, 1]; got {contrast}.",
            option=f"{prefix}contrast",
        )
