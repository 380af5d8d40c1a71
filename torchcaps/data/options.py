"""What to train or judge on, as plain data. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

# jsonargparse reads the annotations; Optional works for every Python that is supported.
# ruff: noqa: UP045


@dataclass
class DataOptions:
    """What to train on.

    Args:
        name: a data set (`torchcaps data list`), a folder of class folders of images, an .npz with x and y, or for
            text a .csv, .tsv or .jsonl file, or a folder with train.csv and test.csv.
        dir: folder with data sets; else TORCHCAPS_DATA, then the user's cache.
        download: fetch the data set if it is not there.
        base: the digits that multi-mnist and affine-mnist are made from.
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
        validation: part of the training images or texts that is kept aside to watch training, cut by the seed.
        image_size: side that the images of one's own folder are brought to.
        unreadable: refuse or skip images that cannot be read.
        protocol: split of small-norb and viewpoints: instance, azimuth or elevation.
    """

    name: str = "mnist-mini"
    dir: Optional[str] = None
    download: bool = False
    base: str = "mnist-mini"
    shift: int = 2
    mirror: bool = False
    resize: Optional[int] = None
    standardize: bool = False
    crop: Optional[int] = None
    crops: Literal[1, 13] = 1
    brightness: float = 0.0
    contrast: float = 0.0
    validation: float = 0.1
    image_size: Optional[int] = None
    unreadable: Literal["refuse", "skip"] = "refuse"
    protocol: Literal["instance", "azimuth", "elevation"] = "instance"


@dataclass
class TextOptions:
    """How text is read; image data has no use for it.

    Args:
        vectors: word vectors to begin with, a GloVe or word2vec text file or an .npz; not given: random ones.
        vector_size: size of random vectors; a file has its own.
        least_count: words that come less often in the training texts are unknown ones.
        most_words: keep so many words, the most frequent; not given: all.
        longest: texts are cut after so many words, in training and after.
        text_column: of one's own file, where the texts are.
        label_column: of one's own file, where the labels are.
        fold: which tenth is the test, of mr, subj, cr and mpqa.
        fold_seed: how those are cut into tenths.
    """

    vectors: Optional[str] = None
    vector_size: int = 100
    least_count: int = 1
    most_words: Optional[int] = None
    longest: int = 400
    text_column: str = "text"
    label_column: str = "label"
    fold: int = 0
    fold_seed: int = 0
