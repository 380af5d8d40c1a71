"""CIFAR-10 from its official binary version, packed or unpacked."""

from __future__ import annotations

import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset
from torchcaps.data.files import DownloadProgress, RemoteFile, check_md5, data_folders, fetch, read_parts
from torchcaps.data.images import ImageSet
from torchcaps.data.registry import register_dataset
from torchcaps.errors import DataError, FileError
from torchcaps.io import read_bytes

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = RemoteFile(
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
)
UNPACKED = "cifar-10-batches-bin"
BATCHES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
IMAGE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
"""Bytes of an image: its label, then its red, green and blue plane."""


@register_dataset("cifar10")
@dataclass(frozen=True)
class CIFAR10(ImageDataset):
    """50,000 / 10,000 photographs, 32×32 in colour.

    Krizhevsky 2009; from ``cifar10/`` in a data folder, which holds the archive ``cifar-10-binary.tar.gz`` (162 MB) as
    published, or ``cifar-10-batches-bin/`` unpacked from it.
    """

    folder: ClassVar[str] = "cifar10"
    downloads: ClassVar[bool] = True

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        self.check_split(split)
        folders = [folder / self.folder for folder in data_folders(files.dir)]
        source = _find_source(folders, files.download, files.progress)
        contents = _read_folder(source, BATCHES[split]) if source.is_dir() else _read_archive(source, BATCHES[split])
        parts = [_read_records(content, name) for name, content in contents]
        images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return ImageSet(images, labels, CIFAR10_CLASSES)


def _find_source(folders: list[Path], download: bool, progress: DownloadProgress | None) -> Path:
    """The archive or the unpacked folder; where both are, the archive, as only that has a published checksum."""
    for folder in folders:
        if (folder / ARCHIVE.name).is_file():
            return folder / ARCHIVE.name
        if (folder / UNPACKED).is_dir():
            return folder / UNPACKED
    if download:
        return fetch(ARCHIVE, folders[0], progress)
    looked = " or ".join(str(folder / name) for folder in folders for name in (ARCHIVE.name, f"{UNPACKED}{os.sep}"))
    raise DataError(
        f"cifar10 is not here: neither the archive nor what it unpacks to was found as {looked}. "
        f"Run `torchcaps data get cifar10`, or put the file from {ARCHIVE.url} into one of these folders."
    )


def _read_folder(folder: Path, names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    contents = []
    for name in names:
        try:
            contents.append((str(folder / name), read_bytes(folder / name, most=10_000 * RECORD)))
        except FileError as error:
            raise DataError(f"{error} Unpack {ARCHIVE.name} again, or put it beside {folder}.") from error
    return contents


def _read_archive(archive: Path, names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """The batches in the order asked for. Read in memory: no path in an archive can then write anywhere."""
    check_md5(archive, read_parts(archive), ARCHIVE.md5)
    contents = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:  # one pass, since going back in a gzipped file means unpacking it from the start
                name = member.name.removeprefix(f"{UNPACKED}/")
                if name in names and member.isfile() and (file := tar.extractfile(member)):
                    contents[name] = file.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(f"{archive} cannot be read: {error}. Delete it and fetch it again.") from error
    absent = [name for name in names if name not in contents]
    if absent:
        raise DataError(
            f"{archive} has no {UNPACKED}/{absent[0]}. It must be the binary version of CIFAR-10, {ARCHIVE.url}."
        )
    return [(f"{archive}: {UNPACKED}/{name}", contents[name]) for name in names]


def _read_records(content: bytes, name: str) -> tuple[Tensor, Tensor]:
    """Images uint8 ``[N, 3, 32, 32]`` and labels int64 ``[N]`` of one batch."""
    if not content or len(content) % RECORD:
        raise DataError(
            f"{name} is cut short or damaged: it must be a multiple of {RECORD} bytes (a label, 32×32 pixels in three "
            f"colours), and has {len(content)}. Fetch {ARCHIVE.name} again."
        )
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, RECORD)
    labels = rows[:, 0].long()
    if int(labels.max()) >= len(CIFAR10_CLASSES):
        raise DataError(
            f"{name} is not a batch of CIFAR-10: labels must be in 0 … {len(CIFAR10_CLASSES) - 1}, and one is "
            f"{int(labels.max())}. CIFAR-100 and the Python version have other formats; {ARCHIVE.name} is needed."
        )
    return rows[:, 1:].reshape(-1, *IMAGE), labels
