"""AffNIST from its official MATLAB files: digits of MNIST under affine transformations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset
from torchcaps.data.files import data_folders
from torchcaps.data.images import ImageSet
from torchcaps.data.registry import register_dataset
from torchcaps.errors import DataError

AFFNIST_CLASSES = tuple("0123456789")
AFFNIST_URL = "https://www.cs.toronto.edu/~tijmen/affNIST/"
SIDE = 40
PLACES = {
    "train": ("training_and_validation_batches/*.mat", "training.mat", "train.mat"),
    "test": ("test.mat", "test_batches/*.mat"),
}
"""Files of each split in the order in which they are looked for; the first that is there counts."""


@register_dataset("affnist")
@dataclass(frozen=True)
class AffNIST(ImageDataset):
    """MNIST under affine transformations, 40×40.

    MNIST's digits, each transformed in 32 ways (Tieleman 2013), from ``affnist/`` in a data folder. Put ``test.mat`` or
    ``test_batches/`` there for "test", ``training_and_validation_batches/``, ``training.mat`` or ``train.mat`` for
    "train". All training batches together need 3 GB of memory, and twice that while they are read. The versions
    "transformed" and "just_centered" have the same names: which it is depends on what was put there. It is not
    fetched, as there is no published checksum to check a download with.
    """

    folder: ClassVar[str] = "affnist"

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        self.check_split(split)
        paths = _find([folder / self.folder for folder in data_folders(files.dir)], PLACES[split], files.download)
        parts = [_read(file) for file in paths]
        images, labels = (torch.cat(tensors) if len(paths) > 1 else tensors[0] for tensors in zip(*parts, strict=True))
        return ImageSet(images, labels, AFFNIST_CLASSES)


def _find(folders: list[Path], places: tuple[str, ...], download: bool) -> list[Path]:
    for folder in folders:
        for place in places:
            paths = [file for file in folder.glob(place) if file.is_file()]
            if paths:
                return sorted(paths, key=lambda file: (len(file.name), file.name))  # 2.mat comes before 10.mat
    looked = " or ".join(str(folder / place) for folder in folders for place in places)
    refusal = "It is not downloaded automatically, as no checksums are published. " if download else ""
    raise DataError(
        f"affnist is not here: it was looked for as {looked}. "
        f"{refusal}Fetch the files from {AFFNIST_URL}, unpack them, and put them into one of these folders."
    )


def _read(path: Path) -> tuple[Tensor, Tensor]:
    """Images uint8 ``[N, 1, 40, 40]`` and labels int64 ``[N]`` of one file."""
    fields = _read_fields(path)
    pixels, labels = _read_numbers(fields, "image", path), _read_numbers(fields, "label_int", path)
    if pixels.dtype != "uint8" or pixels.ndim != 2 or pixels.shape[0] != SIDE * SIDE:
        raise _make_error(path, f"image must be uint8 [{SIDE * SIDE}, N], and is {pixels.dtype} {list(pixels.shape)}")
    count = pixels.shape[1]
    if labels.size != count or not count:
        raise _make_error(
            path, f"label_int must have one number for each image, and has {labels.size} for {count} images"
        )
    if not (labels == labels.round()).all() or labels.min() < 0 or labels.max() >= len(AFFNIST_CLASSES):
        raise _make_error(path, f"labels must be whole numbers 0 … 9, and are in {labels.min()} … {labels.max()}")
    # A column is an image, its rows one after another: unlike what MATLAB's reshape makes of it, nothing is transposed.
    images = torch.from_numpy(pixels.T).reshape(count, 1, SIDE, SIDE).contiguous()
    return images, torch.from_numpy(labels.reshape(-1).astype("int64"))


def _read_fields(path: Path) -> Any:
    """The struct in an affNIST file, as a numpy record."""
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError("affNIST comes as MATLAB files, which are read with scipy: `pip install scipy`.") from error
    try:
        content = loadmat(path, variable_names=["affNISTdata"])
    except Exception as error:  # a damaged file makes scipy raise errors of nearly any kind
        raise DataError(
            f"{path} cannot be read as a MATLAB file: {type(error).__name__}: {error}. "
            f"It is cut short or damaged; fetch it again from {AFFNIST_URL}."
        ) from error
    data = content.get("affNISTdata")
    if getattr(data, "size", 0) != 1 or data.dtype.names is None:
        raise _make_error(path, "it must have one struct affNISTdata, and has none or something else under that name")
    return data.reshape(-1)[0]


def _read_numbers(fields: Any, name: str, path: Path) -> Any:
    """A field that is a numeric array; anything else that MATLAB can store is refused."""
    if name not in fields.dtype.names:
        raise _make_error(path, f"affNISTdata must have the field {name}, and has {', '.join(fields.dtype.names)}")
    array = fields[name]
    if getattr(getattr(array, "dtype", None), "kind", None) not in ("u", "i", "f"):
        kind = getattr(array, "dtype", type(array).__name__)
        raise _make_error(path, f"the field {name} must be an array of numbers, and is of the type {kind}")
    return array


def _make_error(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is not a file of affNIST: {reason}. Fetch it again from {AFFNIST_URL}.")
