"""Data sets by name, and the training, validation and test source of a recipe's data."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torchcaps.checks import require_choice
from torchcaps.data.composed import AffineDigits, MultiDigits, ShiftedDigits
from torchcaps.data.files import Progress
from torchcaps.data.images import DataError, Images, ImageSet, ImageSource
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import AugmentedImages, Preparation, PreparedImages
from torchcaps.data.splits import validation_cut

Notice = Callable[[str], None]


@dataclass(frozen=True)
class DataSet:
    """A data set that has a name: where its loader is and what it takes, what it holds, whether it can be fetched."""

    loader: str
    description: str
    folder: str = ""
    fetched: bool = True
    takes: tuple[str, ...] = ("data_dir",)

    def load(self, split: str, **options: object) -> ImageSet:
        """One split; the module is imported when it is needed."""
        module, name = self.loader.split(":")
        loaded: ImageSet = getattr(importlib.import_module(f"torchcaps.data.{module}"), name)(split, **options)
        return loaded


DATA_SETS = {
    "mnist-mini": DataSet("mnist:mnist_mini", "5,000 / 1,000 digits of MNIST, inside the package", fetched=False),
    "mnist": DataSet("mnist:mnist", "60,000 / 10,000 digits, 28×28", "mnist"),
    "fashion-mnist": DataSet("mnist:fashion_mnist", "60,000 / 10,000 clothes, 28×28", "fashion_mnist"),
    "cifar10": DataSet("cifar10:cifar10", "50,000 / 10,000 photographs, 32×32 in colour", "cifar10"),
    "small-norb": DataSet(
        "small_norb:small_norb",
        "24,300 / 24,300 stereo pairs of toys, 96×96",
        "small_norb",
        takes=("data_dir", "protocol"),
    ),
    "affnist": DataSet("affnist:affnist", "MNIST under affine transformations, 40×40", "affnist", fetched=False),
    "viewpoints": DataSet(
        "viewpoints:viewpoints",
        "24,300 / 24,300 rendered pictures of five kinds of bodies, 40×40, made on the fly",
        fetched=False,
        takes=("protocol",),
    ),
}
COMPOSED = {
    "multi-mnist": "two digits over each other, 36×36, made on the fly from --data.base",
    "affine-mnist": "trained on shifted digits, tested on affine ones, 40×40, made on the fly from --data.base",
}
DIGIT_SETS = ("mnist-mini", "mnist", "fashion-mnist")


def load_images(
    options: DataOptions,
    split: str,
    progress: Progress | None = None,
    notice: Notice | None = None,
    class_names: tuple[str, ...] | None = None,
) -> ImageSet:
    """The ``train`` or ``test`` images of a data set by name, or of a user's folder or .npz by path.

    ``class_names`` are those of a model that is trained already; a folder's classes are then numbered by them.
    """
    name = options.base if options.name in COMPOSED else options.name
    if options.name in COMPOSED and name not in DIGIT_SETS:
        raise DataError(f"--data.base of {options.name} must be one of {', '.join(DIGIT_SETS)}; got {name!r}.")
    if options.image_size is not None and not Path(options.name).is_dir():
        raise DataError(f"--data.image_size is for a folder of one's own images; {options.name} has its own size.")
    if name not in DATA_SETS:
        return _own_images(options, split, notice, class_names)
    choices: dict[str, object] = {"data_dir": options.dir, "protocol": options.protocol}
    extra = {key: choices[key] for key in DATA_SETS[name].takes}
    if DATA_SETS[name].fetched:
        extra |= {"download": options.download, "progress": progress}
    return DATA_SETS[name].load(split, **extra)


def _own_images(
    options: DataOptions, split: str, notice: Notice | None, class_names: tuple[str, ...] | None
) -> ImageSet:
    path = Path(options.name)
    if not path.exists():
        if os.sep in options.name or path.suffix:
            raise DataError(f"{options.name} is not there: no such folder or .npz file.")
        try:
            require_choice("data set", options.name, [*DATA_SETS, *COMPOSED])
        except ValueError as error:
            raise DataError(f"{error} One's own images: a folder of class folders, or an .npz with x and y.") from None
    own = importlib.import_module("torchcaps.data.own")
    if path.is_dir():
        chosen = {"image_size": options.image_size, "unreadable": options.unreadable, "class_names": class_names}
        found = own.image_folder(path, split, **chosen)
    else:
        found = own.image_arrays(path, split)
    if found.skipped and notice:
        notice(f"{len(found.skipped)} unreadable images were skipped, for example {found.skipped[0]}")
    images: ImageSet = found.data
    return images


def preparation_of(options: DataOptions) -> Preparation:
    """What the options do to an image before a model sees it, in training and after."""
    preparation = Preparation(options.resize, options.standardize, options.crop, options.crops)
    augmented = options.mirror or options.brightness or options.contrast
    if options.name in COMPOSED and (preparation != Preparation() or augmented):
        raise DataError(
            f"{options.name} makes its own canvas: --data.mirror, resize, standardize, crop, crops, brightness and "
            "contrast are for other data. Leave them out."
        )
    return preparation


def _check_augmentation(options: DataOptions) -> None:
    if options.crop is not None and options.shift:
        raise DataError(
            f"--data.crop {options.crop} takes training patches from random places, which is a shift already: give "
            f"--data.shift 0 with it, got {options.shift}."
        )
    if not options.brightness >= 0:
        raise DataError(f"--data.brightness is the most that is added, at least 0; got {options.brightness}.")
    if not 0 <= options.contrast <= 1:
        raise DataError(f"--data.contrast is the most that a factor differs from 1, in [0, 1]; got {options.contrast}.")


def _check_pixels(options: DataOptions, data: ImageSet) -> None:
    """Refuse images in which nothing can be seen, and a shift after which nothing is left."""
    low, high = int(data.images.min()), int(data.images.max())
    if low == high:
        raise DataError(f"all training images of {options.name} are of one colour ({low} of 255): nothing can be seen.")
    if high == 1:
        raise DataError(
            f"the pixels of {options.name} are 0 and 1 where 255 is white, so all is black. Multiply them by 255, or "
            "save them as floating-point numbers in 0 … 1."
        )
    height, width = data.image_shape[1:]
    if options.name not in COMPOSED and options.shift >= min(height, width):
        raise DataError(
            f"--data.shift {options.shift} moves images of {height}×{width} out of sight: choose at most "
            f"{min(height, width) - 1}."
        )


def training_sources(
    options: DataOptions, seed: int, progress: Progress | None = None, notice: Notice | None = None
) -> tuple[ImageSource, ImageSource | None]:
    """What to train on and what to validate on; both come from the training images, the test images are not read."""
    preparation = preparation_of(options)
    _check_augmentation(options)
    data = load_images(options, "train", progress, notice)
    if int((data.labels.bincount() > 0).sum()) < 2:
        raise DataError(f"the training images of {options.name} show one class only; a classifier needs at least two.")
    _check_pixels(options, data)
    train, validation = validation_cut(data.labels, options.validation, seed)
    held_out = data[validation]
    if options.name == "multi-mnist":
        return MultiDigits(data[train]), MultiDigits(held_out) if len(held_out) else None
    if options.name == "affine-mnist":
        return ShiftedDigits(data[train]), ShiftedDigits(held_out) if len(held_out) else None
    if preparation == Preparation() and not options.brightness and not options.contrast:
        return Images(data[train], options.shift, options.mirror), Images(held_out) if len(held_out) else None
    source = AugmentedImages(
        data[train], preparation, options.shift, options.mirror, options.brightness, options.contrast
    )
    central = replace(preparation, crops=1)  # training is watched by one patch of each image
    return source, PreparedImages(held_out, central) if len(held_out) else None


def evaluation_source(
    options: DataOptions,
    split: str = "test",
    notice: Notice | None = None,
    class_names: tuple[str, ...] | None = None,
) -> ImageSource:
    """What a trained model is judged on."""
    preparation = preparation_of(options)
    data = load_images(options, split, None, notice, class_names)
    if options.name == "multi-mnist":
        return MultiDigits(data)
    if options.name == "affine-mnist":
        return AffineDigits(data)
    return Images(data) if preparation == Preparation() else PreparedImages(data, preparation)
