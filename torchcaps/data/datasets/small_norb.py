"""SmallNORB from its official files: toys in stereo, from many sides, with splits by viewpoint."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset
from torchcaps.data.files import RemoteFile, check_md5, data_folders, require_file
from torchcaps.data.images import ImageSet
from torchcaps.data.registry import register_dataset
from torchcaps.errors import DataError, FileError
from torchcaps.io import require_regular

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
INFO_COLUMNS = ("instance", "elevation", "azimuth", "lighting")
PROTOCOLS = {
    "instance": ("train", "test"),
    "azimuth": ("train", "test", "familiar"),
    "elevation": ("train", "test", "familiar"),
}
FAMILIAR_AZIMUTHS = (300, 320, 340, 0, 20, 40)
"""Degrees; the files have tens of degrees."""
FAMILIAR_ELEVATIONS = (0, 1, 2)
"""The three smallest of 0 … 8, which are 30, 35, … 70 degrees above the horizon."""

SMALL_NORB_URL = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/"
STEMS = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}
# md5 of the published .gz file, and of what is in it: other ways of packing it are as good. They are what several
# public loaders agree on. The categories of both splits are the same: 0, 1, 2, 3, 4, 0, 1, …
SMALL_NORB_MD5 = {
    ("train", "dat"): ("66054832f9accfe74a0f4c36a75bc0a2", "8138a0902307b32dfa0025a36dfa45ec"),
    ("train", "cat"): ("23c8b86101fbf0904a000b43d3ed2fd9", "fd5120d3f770ad57ebe620eb61a0b633"),
    ("train", "info"): ("51dee1210a742582ff607dfd94e332e3", "19faee774120001fc7e17980d6960451"),
    ("test", "dat"): ("e4ad715691ed5a3a5f138751a4ceb071", "e9920b7f7b2869a8f1a12e945b2c166c"),
    ("test", "cat"): ("5aa791cd7e6016cf957ce9bdb93b8603", "fd5120d3f770ad57ebe620eb61a0b633"),
    ("test", "info"): ("a9454f3864d7fd4bb3ea7fc3eb84924e", "7c5b871cc69dcadec1bf6a18141f5edc"),
}
PARTS = {"dat": (torch.uint8, (2, 96, 96)), "cat": (torch.int32, ()), "info": (torch.int32, (len(INFO_COLUMNS),))}
"""What each file holds of an image: its type and sizes."""

BYTES, INTEGERS = 0x1E3D4C55, 0x1E3D4C54
STORED_DIMENSIONS = 3
MOST_DIMENSIONS = 8


@dataclass(frozen=True)
class ByViewpoint(ImageDataset):
    """A data set of objects from many sides, split by object or by viewpoint.

    Args:
        protocol: "instance" has all training and all test images: the test has other objects of the same categories.
            "azimuth" and "elevation" test other viewpoints as well (Hinton, Sabour and Frosst 2018): "train" has the
            training images from azimuths 300° … 40°, or the three lowest elevations; "test" has the test images from
            all other azimuths or elevations, "familiar" those from the same as in training.
    """

    protocol: Literal["instance", "azimuth", "elevation"] = "instance"
    splits: ClassVar[tuple[str, ...]] = ("train", "test", "familiar")

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise DataError(
                f"{self.name} has the protocols {', '.join(PROTOCOLS)}, not {self.protocol!r}. instance tests other "
                "objects; azimuth and elevation test other objects from other viewpoints.",
                option="protocol",
            )

    def check_split(self, split: str) -> None:
        """Refuse a split that the protocol does not have."""
        if split not in PROTOCOLS[self.protocol]:
            hint = "familiar is a split of the protocols azimuth and elevation." if split == "familiar" else ""
            raise DataError(
                f"{self.name} has the splits {', '.join(PROTOCOLS[self.protocol])} for the protocol {self.protocol}, "
                f"not {split!r}. {hint or 'Validation images are taken from train.'}"
            )


@register_dataset("small-norb")
@dataclass(frozen=True)
class SmallNORB(ByViewpoint):
    """24,300 / 24,300 stereo pairs of toys, 96×96.

    LeCun, Huang and Bottou 2004. The two cameras are the two channels. The files (130 MB for each split) are looked for
    in ``small_norb/`` in a data folder, gzipped or not.

    Args:
        protocol: as in :class:`ByViewpoint`.
    """

    folder: ClassVar[str] = "small_norb"
    downloads: ClassVar[bool] = True

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        self.check_split(split)
        part = "train" if split == "train" else "test"
        images, labels = (_read_part(part, kind, files) for kind in ("dat", "cat"))
        _check_count(part, images, "cat", labels)
        whole = ImageSet(images, labels.long(), CATEGORIES)
        if self.protocol == "instance":
            return whole
        info = _read_part(part, "info", files)
        _check_count(part, images, "info", info)
        familiar = _find_familiar(info, self.protocol)
        return whole[~familiar if split == "test" else familiar]

    def check_files(self, split: str, files: Files = Files()) -> None:
        """The file of viewpoints, which the protocol "instance" does without."""
        self.load_info(split, files)

    def load_info(self, split: str, files: Files = Files()) -> Tensor:
        """How each image was taken, int64 ``[N, 4]``, in the order of the protocol "instance".

        The columns are instance (0 … 9), elevation (0 … 8: 30°, 35°, … 70°), azimuth (0, 2, … 34: tens of degrees) and
        lighting (0 … 5).

        Args:
            split: "train" or "test".
            files: where they are looked for.
        """
        SmallNORB().check_split(split)
        return _read_part(split, "info", files).long()


def read_matrix(path: Path, md5: str | None = None) -> Tensor:
    """A file of NORB's binary matrix format, gzipped or not: uint8 or int32, of the sizes in its header.

    All is little-endian, 32 bits each: a magic number that says the type, the number of dimensions, and the sizes, of
    which three at least are stored also where fewer count. The data follow, the last dimension fastest.

    Args:
        path: the file; gzipped if its name ends in ``.gz``.
        md5: what that of the unpacked content must be; not checked if not given.
    """
    try:
        require_regular(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header, magic, shape = _read_header(file, path)
            wanted = math.prod(shape) * (1 if magic == BYTES else 4)
            content = bytearray()
            while len(content) <= wanted and (part := file.read(1 << 20)):  # no more than that of a file that is wrong
                content += part
    except FileError as error:
        raise DataError(error) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. It may be cut short; fetch it again.") from error
    if len(content) != wanted:
        there = f"only {len(content)}" if len(content) < wanted else "more"
        raise DataError(
            f"{path} is cut short or damaged: its header announces {'×'.join(map(str, shape))} numbers in {wanted} "
            f"bytes, {there} are there. Fetch it again."
        )
    if md5:
        check_md5(path, [header, content], md5)
    if magic == BYTES:
        return torch.frombuffer(content, dtype=torch.uint8).view(*shape)
    return torch.tensor(struct.unpack(f"<{math.prod(shape)}i", content), dtype=torch.int32).view(*shape)


def _read_header(file: io.BufferedIOBase, path: Path) -> tuple[bytes, int, tuple[int, ...]]:
    """The header's bytes, its magic number, and the sizes that count."""
    start = file.read(8)
    magic, dimensions = struct.unpack("<2i", start.ljust(8, b"\0"))
    if magic not in (BYTES, INTEGERS):
        raise DataError(
            f"{path} is not a NORB matrix of bytes or integers: it must begin with {BYTES:#x} or {INTEGERS:#x} "
            f"(little-endian), and begins with {start[:4]!r}. "
            "Files of this name from other sources (MATLAB's .mat) have another format."
        )
    stored = max(dimensions, STORED_DIMENSIONS)
    sizes = file.read(4 * stored) if 1 <= dimensions <= MOST_DIMENSIONS else b""
    shape = struct.unpack(f"<{stored}i", sizes)[:dimensions] if len(sizes) == 4 * stored else ()
    if not shape or min(shape) < 1:
        raise DataError(
            f"{path} is cut short or damaged: its header must give 1 … {MOST_DIMENSIONS} dimensions and a positive "
            f"size for each, and gives {dimensions} dimensions with the sizes {list(shape)}. Fetch it again."
        )
    return start + sizes, magic, shape


def _read_part(split: str, part: str, files: Files) -> Tensor:
    """The content of one of a split's three files, of the type and sizes that it must have."""
    packed, content = SMALL_NORB_MD5[split, part]
    name = f"{STEMS[split]}-{part}.mat.gz"
    remote = RemoteFile(name, packed, SMALL_NORB_URL + name)
    folders = [folder / SmallNORB.folder for folder in data_folders(files.dir)]
    path = require_file(SmallNORB.name, folders, remote, files.download, files.progress)
    matrix = read_matrix(path, content)
    dtype, sizes = PARTS[part]
    if matrix.dtype != dtype or matrix.shape[1:] != sizes:
        raise DataError(
            f"{path} must hold {dtype} of the sizes {('N', *sizes)}, and holds {matrix.dtype} of "
            f"{tuple(matrix.shape)}. Is it another file of SmallNORB under this name? The right one is "
            f"{SMALL_NORB_URL}{name}."
        )
    return matrix


def _check_count(files: str, images: Tensor, part: str, matrix: Tensor) -> None:
    if len(matrix) != len(images):
        raise DataError(
            f"SmallNORB's files do not belong together: {STEMS[files]}-dat.mat has {len(images)} images, "
            f"{STEMS[files]}-{part}.mat is about {len(matrix)}. Fetch both again."
        )


def _find_familiar(info: Tensor, protocol: str) -> Tensor:
    """Which images are taken from a viewpoint of the training split, bool ``[N]``."""
    seen = info[:, INFO_COLUMNS.index(protocol)]
    if protocol == "azimuth":
        return torch.isin(10 * seen, torch.tensor(FAMILIAR_AZIMUTHS))
    return torch.isin(seen, torch.tensor(FAMILIAR_ELEVATIONS))
