"""MNIST and Fashion-MNIST from the official files, and the small MNIST that comes with the package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar

import torch

from torchcaps.data.dataset import Files, ImageDataset
from torchcaps.data.files import RemoteFile, data_folders, find_file, require_file
from torchcaps.data.idx import read_idx
from torchcaps.data.images import ImageSet
from torchcaps.data.registry import register_dataset

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
NAMES = {
    ("train", "images"): "train-images-idx3-ubyte.gz",
    ("train", "labels"): "train-labels-idx1-ubyte.gz",
    ("test", "images"): "t10k-images-idx3-ubyte.gz",
    ("test", "labels"): "t10k-labels-idx1-ubyte.gz",
}
# md5 of the published .gz file, and of what is in it: other ways of packing it are as good.
MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte.gz": ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte.gz": ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte.gz": ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
}
FASHION_MD5 = {
    "train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    "train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
    "t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
    "t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
}
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_URL = "https://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package dataset-fashion-mnist puts it


@dataclass(frozen=True)
class IdxImages(ImageDataset):
    """Images and labels in four IDX files."""

    downloads: ClassVar[bool] = True
    class_names: ClassVar[tuple[str, ...]] = DIGITS
    md5: ClassVar[dict[str, tuple[str, str]]] = MNIST_MD5
    url: ClassVar[str] = MNIST_URL

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        self.check_split(split)
        arrays = {}
        for part, dimensions in (("images", 3), ("labels", 1)):
            file = NAMES[split, part]
            packed, content = self.md5[file]
            remote = RemoteFile(file, packed, self.url + file)
            path = require_file(self.name, self.folders(files), remote, files.download, files.progress)
            arrays[part] = read_idx(path, dimensions, content)
        return ImageSet(arrays["images"][:, None], arrays["labels"].long(), self.class_names)

    def folders(self, files: Files) -> list[Path]:
        """Where the files are looked for."""
        return [folder / self.folder for folder in data_folders(files.dir)]


@register_dataset("mnist-mini")
@dataclass(frozen=True)
class MNISTMini(ImageDataset):
    """5,000 / 1,000 digits of MNIST, inside the package.

    As many of each class in proportion (scripts/make_mnist_mini.py).
    """

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        import numpy as np

        self.check_split(split)
        with resources.files("torchcaps.data").joinpath("mnist_mini.npz").open("rb") as file:
            content = np.load(file, allow_pickle=False)
            images, labels = content[f"{split}_images"], content[f"{split}_labels"]
        return ImageSet(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long(), DIGITS)


@register_dataset("mnist")
@dataclass(frozen=True)
class MNIST(IdxImages):
    """60,000 / 10,000 digits, 28×28.

    LeCun, Cortes and Burges; from ``mnist/`` in a data folder.
    """

    folder: ClassVar[str] = "mnist"


@register_dataset("fashion-mnist")
@dataclass(frozen=True)
class FashionMNIST(IdxImages):
    """60,000 / 10,000 clothes, 28×28.

    Xiao, Rasul and Vollgraf 2017; from ``fashion_mnist/`` in a data folder, or Debian's package.
    """

    folder: ClassVar[str] = "fashion_mnist"
    class_names: ClassVar[tuple[str, ...]] = CLOTHES
    md5: ClassVar[dict[str, tuple[str, str]]] = FASHION_MD5
    url: ClassVar[str] = FASHION_URL

    def folders(self, files: Files) -> list[Path]:
        """Also where Debian's package has put them, if it has."""
        debian = [DEBIAN_FASHION] if find_file([DEBIAN_FASHION], NAMES["train", "images"]) else []
        return [*super().folders(files), *debian]
