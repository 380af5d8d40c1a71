"""A user's own images in a folder of class folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from torchcaps.data.class_folders import OLD_EXTENSIONS, ClassFile, list_class_folders, number_class_files
from torchcaps.data.dataset import Files
from torchcaps.data.image_files import EXTENSIONS, FileImages, Reading, hash_files, read_image_files
from torchcaps.data.images import ImageSet, check_split
from torchcaps.data.items import Entry, Item
from torchcaps.data.pictures import Fit
from torchcaps.data.splits import NO_TEST, choose_entries
from torchcaps.errors import DataError
from torchcaps.io import make_printable


@dataclass(frozen=True)
class ImageFolder(FileImages):
    """One's own images in a folder that has one folder per class.

    Args:
        path: the folder, see :func:`read_image_folder`.
        image_size: side that the images are brought to; not given: their own if it is small and the same for all.
        unreadable: refuse or skip images that cannot be read.
        fit: how images of another shape are brought to theirs, see :func:`~torchcaps.data.pictures.fit_image`.
        image_shape: channels, height and width that a model was trained for; no option.
    """

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        images, skipped = _read(Path(self.path), split, self.reading, class_names, files)
        if skipped and files.notice:
            files.notice(f"{len(skipped)} unreadable images were skipped, for example {skipped[0]}")
        return images

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        root = Path(self.path)
        files, names = number_class_files(root, list_class_folders(root), class_names)
        return _list_entries(root, files, names)

    def judged_split(self) -> str:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return "all" if "" in list_class_folders(Path(self.path)).parts else "test"


class FolderImages(NamedTuple):
    """The images of a folder, and the files that were left out: one text each, the file's name and why."""

    data: ImageSet
    skipped: tuple[str, ...]


def read_image_folder(
    path: str | os.PathLike[str],
    split: str,
    *,
    image_size: int | None = None,
    unreadable: str = "refuse",
    fit: Fit = "letterbox",
    class_names: Sequence[str] | None = None,
    files: Files = Files(),
) -> FolderImages:
    """Read images (.png, .jpg, .jpeg, .webp, .bmp, .tif, .tiff, .gif) from a folder that has one folder per class.

    If the folder holds ``train/`` and ``test/``, each with class folders, these are the splits and all else in it is
    left out. Otherwise about a fifth of each class is kept for the test, see
    :func:`~torchcaps.data.splits.cut_by_content`. Images may lie deeper inside a class folder; hidden files and
    folders, images outside the class folders, and files of other formats are left out, which is told. The shape is the
    same for both splits: one channel if all images are grey, else three; the size that all have if it is at most 64
    pixels, else 32 x 32, to which :func:`~torchcaps.data.pictures.fit_image` brings them.

    Args:
        path: the folder.
        split: "train", "test" or "all".
        image_size: height and width of the images instead.
        unreadable: "refuse" raises an error if images cannot be read, "skip" leaves them out.
        fit: how images of another shape are brought to theirs: "letterbox", "crop" or "stretch".
        class_names: which label each class has, for a model that is trained already; without it, the sorted names of
            the class folders. Names without a folder are allowed, folders without a name are not.
        files: has the split that a run recorded, if it did, and who is told what was left out.

    Returns:
        The images of the split, sorted by class folder and name, and the files of the split that were skipped.

    Shapes:
        The result's images are uint8 ``[N, C, H, W]``.

    Raises:
        DataError: the folder or its images are not as described; the message says what to do.
    """
    return _read(Path(path), split, Reading(image_size, fit, unreadable), class_names, files)


def _read(root: Path, split: str, reading: Reading, class_names: Sequence[str] | None, files: Files) -> FolderImages:
    check_split(split)
    reading.check()
    listed = list_class_folders(root, OLD_EXTENSIONS if files.counted else EXTENSIONS)
    there, names = number_class_files(root, listed, class_names)
    entries = _list_entries(root, there, names)
    chosen = choose_entries(entries, split, files)
    if not chosen:
        raise DataError(NO_TEST.format(root, "image", "images"))
    if files.notice and files.record is None and not files.counted:
        for sentence in listed.left_out.describe():
            files.notice(sentence)
    # Images that came after a training decide nothing about the shape.
    known = range(len(there)) if files.record is None else files.record.list_known(entries)
    images, bad = read_image_files(root, [file.name for file in there], known, chosen, reading, files)
    wanted = [there[number] for number in chosen]
    kept = [(there[number], entries[number]) for number in chosen if there[number].name not in bad]
    lost = {file.label for file in wanted} - {file.label for file, _ in kept}
    if lost and (split == "train" or not kept):
        raise DataError(
            f"not one {split} image can be read of these classes in {root}: "
            f"{', '.join(names[label] for label in sorted(lost))}. Replace the damaged files."
        )
    labels = torch.tensor([file.label for file, _ in kept], dtype=torch.int64)
    skipped = tuple(f"{file.name}: {bad[file.name]}" for file in wanted if file.name in bad)
    items = tuple(Item(entry.key, entry.name) for _, entry in kept)
    return FolderImages(ImageSet(images, labels, names, items), skipped)


def _list_entries(root: Path, files: list[ClassFile], names: tuple[str, ...]) -> list[Entry]:
    keys = hash_files(root, [file.name for file in files])
    return [
        Entry(key, make_printable(file.name), names[file.label], file.part)
        for key, file in zip(keys, files, strict=True)
    ]
