"""What to train or judge on, as plain data. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from torchcaps.errors import DataError

# torchcaps/typed.py reads the annotations; Optional works for every Python that is supported.
# ruff: noqa: UP045

IN_MEMORY = "in-memory"
"""What data that has no name and no file is called in a recipe."""
Units = Literal["auto", "words", "characters"]
UNITS: tuple[Units, ...] = ("auto", "words", "characters")
"""What texts are split into; see :func:`torchcaps.data.text.tokens.tokenize`."""
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
        mirror: in training half of the images have left and right exchanged; not multi-mnist and affine-mnist, as all
            that follow.
        resize: shorter side that the images are brought to.
        standardize: every image gets mean 0 and variance 1.
        crop: side of a square patch: from a random place in training (give shift 0), from the centre otherwise.
        crops: at test the mean of the scores of 1 patch (the centre) or of 13 (a 3×3 grid and its four centres).
        brightness: in training up to so much is added to an image, either way; 1 is white, or with standardize one
            standard deviation.
        contrast: in training an image's differences from its mean are multiplied by 1 ± up to so much.
        rotation: in training images are turned by up to so many degrees, either way, around their middle.
        scale: in training images are enlarged by a factor of 1 ± up to so much.
        shear: in training images are slanted by up to so many degrees, either way.
        erasing: the probability that a rectangle of a training image, 2 to 33 % of it, is filled with noise.
        saturation: in training colours differ from grey 1 ± up to so much times; RGB only.
        hue: in training colours are turned by up to so much of the circle of hues, either way, 0.5 at most; RGB only.
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
    rotation: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    erasing: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

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
        check_augmentation(vars(self), "data.")


@dataclass
class TextOptions:
    """How text is read; image data has no use for it.

    Args:
        vectors: word vectors to begin with, a GloVe or word2vec text file or an .npz; not given: random ones.
        vector_size: size of random vectors; a file has its own.
        min_count: words that come less often in the training texts are unknown ones.
        max_words: keep so many words, the most frequent; not given: all.
        max_length: texts are cut after so many words, in training and after.
        units: what texts are split into: words, with auto but for scripts that have no spaces between them (Chinese,
            Japanese, Thai, Lao, Khmer, Burmese), whose characters are read one by one; or characters in every script.
    """

    vectors: Optional[str] = None
    vector_size: int = 100
    min_count: int = 1
    max_words: Optional[int] = None
    max_length: int = 400
    units: Units = "auto"

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


AUGMENTATIONS = {
    "shift": (math.inf, False, "is a number of pixels, at least 0"),
    "brightness": (math.inf, False, "is the most that is added, at least 0"),
    "contrast": (1, True, "is the most that a factor differs from 1, in [0, 1]"),
    "rotation": (180, True, "is the most degrees that images are turned by, in [0, 180]"),
    "scale": (1, False, "is the most that a factor differs from 1, in [0, 1)"),
    "shear": (90, False, "is the most degrees that images are slanted by, in [0, 90)"),
    "erasing": (1, True, "is a probability, in [0, 1]"),
    "saturation": (1, True, "is the most that a factor differs from 1, in [0, 1]"),
    "hue": (0.5, True, "is a part of the circle of hues, in [0, 0.5]"),
}
"""How much a training image may be changed: the most, whether that itself is allowed, and both as a rule."""


def check_augmentation(given: Mapping[str, Any], prefix: str = "") -> None:
    """Refuse numbers that no training image can be changed by; ``prefix`` as in :func:`check_preparation`."""
    for name, (most, itself, rule) in AUGMENTATIONS.items():
        if not (0 <= given[name] < most or (itself and given[name] == most)):
            raise DataError(f"{prefix}{name} {rule}; got {given[name]}.", option=f"{prefix}{name}")
