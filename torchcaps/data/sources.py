"""What to train, to validate and to test on: sources of batches from a data set and the options of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset, TextDataset
from torchcaps.data.flags import flag_indices
from torchcaps.data.images import ImageSet, ImageSource, check_brightness
from torchcaps.data.items import name_each
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.preparation import Augmentation, Preparation
from torchcaps.data.record import MOST_NAMED
from torchcaps.data.sampling import find_strata
from torchcaps.data.splits import ItemSet, cut_validation, rank_by_content
from torchcaps.data.text.notices import tell_losses, tell_scripts
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import DataError


def training_sources(
    dataset: ImageDataset, options: DataOptions, seed: int, files: Files = Files()
) -> tuple[ImageSource, ImageSource | None]:
    """What to train on and what to validate on; both come from the training images, the test images are not read.

    Args:
        dataset: the images.
        options: how they are prepared and changed, and which part is kept aside.
        seed: of the cut.
        files: where they are looked for.
    """
    preparation, augmentation = Preparation.from_options(options), Augmentation.from_options(options)
    dataset.check_preparation(preparation, augmentation)
    data = dataset.load("train", files)
    _check_classes(data, dataset.title)
    _check_pixels(data, dataset.title)
    if not dataset.makes_canvas:
        _check_shift(augmentation, data.image_shape)
        _check_colours(augmentation, data.image_shape)
    train, aside = _cut_validation(data, find_strata(data.labels), options.validation, seed, files)
    source = dataset.training_source(data[train], preparation, augmentation)
    return source, dataset.validation_source(data[aside], preparation) if len(aside) else None


def evaluation_source(
    dataset: ImageDataset,
    preparation: Preparation = Preparation(),
    split: str = "test",
    files: Files = Files(),
    class_names: tuple[str, ...] | None = None,
    multi_label: bool = False,
) -> ImageSource:
    """What a trained model is judged on.

    Args:
        dataset: the images.
        preparation: what is done to each, as in training.
        split: of the data set.
        files: where they are looked for.
        class_names: those of the model, see :meth:`~torchcaps.data.dataset.ImageDataset.load`.
        multi_label: the model answers any number of classes; images of one class each have that one.
    """
    dataset.check_preparation(preparation)
    data = dataset.load(split, files, class_names)
    check_brightness(data.images, dataset.title)
    if multi_label and not data.multi_label:
        data = replace(data, labels=flag_indices(data.labels, len(data.class_names)))
    return dataset.evaluation_source(data, preparation)


def text_sources(
    dataset: TextDataset, data: DataOptions, text: TextOptions, seed: int, files: Files = Files()
) -> tuple[Texts, Texts | None]:
    """What to train on and what to validate on; the vocabulary is that of the texts to train on.

    Validation texts of the data set's own are taken instead of a part of training.

    Args:
        dataset: the texts.
        data: which part is kept aside.
        text: which words are known, and where texts are cut.
        seed: of the cut.
        files: where they are looked for.
    """
    files = files._replace(units=text.units)
    train = dataset.load("train", files)
    classes = train.labels.int().argmax(dim=1) if train.multi_label else train.labels
    there = train.labels.any(dim=0) if train.multi_label else train.labels.bincount() > 0
    if int(there.sum()) < 2:
        raise DataError(
            f"the training texts of {dataset.title} are of one class only; a classifier needs at least two."
        )
    if files.notice:
        tell_losses(train, text.max_length, files.notice)
        tell_scripts(train.texts, text.units, files.notice)
    if "validation" in dataset.splits:
        aside = dataset.load("validation", files) if data.validation else train[torch.arange(0)]
    else:
        kept, held_out = _cut_validation(train, classes, data.validation, seed, files)
        train, aside = train[kept], train[held_out]
        if len(aside) and train.multi_label and files.notice:
            _tell_unwatched(train, aside, files.notice)
    vocabulary = Vocabulary.from_texts(train.texts, text.min_count, text.max_words)
    if not vocabulary.words:
        raise DataError(
            f"no word comes {text.min_count:,} times in the training texts of {dataset.title}: choose a smaller "
            "min_count, or look at the texts.",
            option="text.min_count",
        )
    source = Texts(train, vocabulary, text.max_length)
    return source, Texts(aside, vocabulary, text.max_length) if len(aside) else None


def _cut_validation(data: ItemSet, classes: Tensor, part: float, seed: int, files: Files) -> tuple[Tensor, Tensor]:
    """Indices to train on and to validate on: as recorded, of one's own data by content, else by the seed alone."""
    if data.items is None or files.counted:
        return cut_validation(classes, part, seed)
    if files.record is not None:
        return files.record.cut_validation(data.items)
    numbers = [str(label) for label in classes.tolist()]
    each = [one if several is None else several
            for one, several in zip(numbers, name_each(data.labels, data.class_names), strict=True)]  # fmt: skip
    aside = rank_by_content([item.key for item in data.items], each, part, f"validation {seed}")
    return (~aside).nonzero()[:, 0], aside.nonzero()[:, 0]


def _tell_unwatched(train: TextSet, aside: TextSet, tell: Callable[[str], None]) -> None:
    """Tell of labels that no text to validate on has: training is not watched for them."""
    missing = (train.labels.any(dim=0) & ~aside.labels.any(dim=0)).nonzero()[:, 0].tolist()
    if missing:
        names = ", ".join(train.class_names[number] for number in missing[:MOST_NAMED])
        more = ", …" if len(missing) > MOST_NAMED else ""
        tell(
            f"None of the {len(aside):,} texts to validate on has the labels {names}{more}: there are too few texts "
            "that have them."
        )


def _check_classes(data: ImageSet, title: str) -> None:
    """Refuse images that are all of one class, or have all the same labels."""
    if data.multi_label and bool((data.labels == data.labels[:1]).all()):
        raise DataError(f"the training images of {title} all have the same labels: there is nothing to tell apart.")
    if not data.multi_label and int((data.labels.bincount() > 0).sum()) < 2:
        raise DataError(f"the training images of {title} show one class only; a classifier needs at least two.")


def _check_pixels(data: ImageSet, title: str) -> None:
    """Refuse images in which nothing can be seen."""
    low, high = int(data.images.min()), int(data.images.max())
    if low == high:
        raise DataError(f"all training images of {title} are of one colour ({low} of 255): nothing can be seen.")
    check_brightness(data.images, title)


def _check_shift(augmentation: Augmentation, image_shape: tuple[int, int, int]) -> None:
    """Refuse a shift after which nothing is left."""
    _, height, width = image_shape
    if augmentation.shift >= min(height, width):
        raise DataError(
            f"shift {augmentation.shift} moves images of {height}×{width} out of sight: choose at most "
            f"{min(height, width) - 1}.",
            option="data.shift",
        )


def _check_colours(augmentation: Augmentation, image_shape: tuple[int, int, int]) -> None:
    """Refuse to change the colours of images that have none."""
    given = [name for name in ("saturation", "hue") if getattr(augmentation, name)]
    if given and image_shape[0] != 3:
        what = "grey" if image_shape[0] == 1 else f"of {image_shape[0]} channels"
        raise DataError(
            f"{' and '.join(given)} would change the colours of RGB images, and these are {what}: leave it out; "
            "brightness and contrast are for all.",
            option=f"data.{given[0]}",
        )
