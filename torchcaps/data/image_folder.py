"""A user's own images in a folder of class folders."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset
from torchcaps.data.image_arrays import check_class_names
from torchcaps.data.images import ImageSet, check_split
from torchcaps.data.items import Entry, Item, hash_file
from torchcaps.data.pictures import UnreadableError, fit_image, open_image, require_pillow
from torchcaps.data.splits import NO_TEST, SPLITS, choose_entries
from torchcaps.errors import DataError
from torchcaps.io import make_printable
from torchcaps.machine import require_memory

EXTENSIONS = (".png", ".jpg", ".jpeg")
SPLIT_LIKE = {"train", "training", "test", "testing", "val", "valid", "validation"}
LARGEST_KEPT = 64
DEFAULT_SIZE = 32
THREADS = max(2, min(4, os.cpu_count() or 2))  # Pillow decodes in parallel, but small images are mostly Python
Result = TypeVar("Result")


@dataclass(frozen=True)
class ImageFolder(ImageDataset):
    """One's own images in a folder that has one folder per class.

    Args:
        path: the folder, see :func:`read_image_folder`.
        image_size: side that the images are brought to; not given: their own if it is small and the same for all.
        unreadable: refuse or skip images that cannot be read.
    """

    path: str
    image_size: int | None = None
    unreadable: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        if self.image_size is not None and self.image_size < 1:
            raise DataError(f"image_size must be at least 1, got {self.image_size}.", option="image_size")

    @property
    def title(self) -> str:
        """Its path."""
        return self.path

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        images, skipped = read_image_folder(
            self.path,
            split,
            image_size=self.image_size,
            unreadable=self.unreadable,
            class_names=class_names,
            files=files,
        )
        if skipped and files.notice:
            files.notice(f"{len(skipped)} unreadable images were skipped, for example {skipped[0]}")
        return images

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        root = Path(self.path)
        files, names = _list_files(root, class_names)
        return _list_entries(root, files, names)

    def judged_split(self) -> str:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return "all" if "" in _list_parts(Path(self.path)) else "test"

    def fit_to(self, image_shape: tuple[int, int, int]) -> ImageFolder:
        """The same images, as high and as wide as those that a model was trained on are high."""
        return replace(self, image_size=image_shape[1])


class FolderImages(NamedTuple):
    """The images of a folder, and the files that were left out: one text each, the file's name and why."""

    data: ImageSet
    skipped: tuple[str, ...]


class _File(NamedTuple):
    name: str  # relative to the user's folder, with slashes on every machine
    label: int
    part: str  # "train" or "test" if the folder has these, else empty


class _Look(NamedTuple):
    grey: bool
    size: tuple[int, int] | None  # upright width and height, None if larger than what is kept


def read_image_folder(
    path: str | os.PathLike[str],
    split: str,
    *,
    image_size: int | None = None,
    unreadable: str = "refuse",
    class_names: Sequence[str] | None = None,
    files: Files = Files(),
) -> FolderImages:
    """Read images (.png, .jpg, .jpeg) from a folder that has one folder per class.

    If the folder holds ``train/`` and ``test/``, each with class folders, these are the splits and all else in it is
    ignored. Otherwise about a fifth of each class is kept for the test, see
    :func:`~torchcaps.data.splits.cut_by_content`. Images may lie deeper inside a class folder; hidden files and
    folders, and images outside the class folders, are ignored. The shape is the same for both splits: one channel if
    all images are grey, else three; the size that all have if it is at most 64 pixels, else 32 x 32, to which
    :func:`fit_image` brings them.

    Args:
        path: the folder.
        split: "train", "test" or "all".
        image_size: height and width of the images instead.
        unreadable: "refuse" raises an error if images cannot be read, "skip" leaves them out.
        class_names: which label each class has, for a model that is trained already; without it, the sorted names of
            the class folders. Names without a folder are allowed, folders without a name are not.
        files: has the split that a run recorded, if it did.

    Returns:
        The images of the split, sorted by class folder and name, and the files of the split that were skipped.

    Shapes:
        The result's images are uint8 ``[N, C, H, W]``.

    Raises:
        DataError: the folder or its images are not as described; the message says what to do.
    """
    check_split(split)
    if unreadable not in ("refuse", "skip"):
        raise DataError(f'unreadable must be "refuse" or "skip", got {unreadable!r}.', option="unreadable")
    if image_size is not None and image_size < 1:
        raise DataError(f"image_size must be at least 1, got {image_size}.", option="image_size")
    require_pillow()
    root = Path(path)
    there, names = _list_files(root, class_names)
    entries = _list_entries(root, there, names)
    chosen = choose_entries(entries, split, files)
    if not chosen:
        raise DataError(NO_TEST.format(root, "image", "images"))
    recorded = chosen if files.record is not None else range(len(there))  # images that came later decide nothing
    looks, bad = _run_each(_look, [there[number].name for number in recorded], root)
    wanted = [there[number] for number in chosen]
    images, more_bad = _read_all(
        root, [file.name for file in wanted if file.name not in bad], _read_shape(looks, image_size)
    )
    bad |= more_bad
    if bad and unreadable == "refuse":
        _refuse(root, bad, len(there))
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


def _list_entries(root: Path, files: list[_File], names: tuple[str, ...]) -> list[Entry]:
    with ThreadPoolExecutor(THREADS) as pool:
        keys = pool.map(lambda file: hash_file(root / file.name), files)
        return [
            Entry(key, make_printable(file.name), names[file.label], file.part)
            for key, file in zip(keys, files, strict=True)
        ]


def _look(path: Path) -> _Look:
    """What the shape of all images depends on. Large images are not decoded for it."""
    from PIL import ImageOps

    with open_image(path) as image:
        grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
        small = max(image.size) <= LARGEST_KEPT
        return _Look(grey, ImageOps.exif_transpose(image).size if small else None)


def _run_each(function: Callable[[Path], Result], names: list[str], root: Path) -> tuple[list[Result], dict[str, str]]:
    """Results of a function for the files that it can read, in their order, and the others' names with the reasons."""

    def attempt(name: str) -> Result | UnreadableError:
        try:
            return function(root / name)
        except UnreadableError as reason:
            return reason

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(attempt, names))
    bad = {
        name: str(result) for name, result in zip(names, results, strict=True) if isinstance(result, UnreadableError)
    }
    return [result for result in results if not isinstance(result, UnreadableError)], bad


def _read_shape(looks: list[_Look], image_size: int | None) -> tuple[int, int, int]:
    """Channels, height and width for images of these looks."""
    channels = 1 if all(look.grey for look in looks) else 3
    if image_size is not None:
        return channels, image_size, image_size
    sizes = {look.size for look in looks}
    width, height = (sizes.pop() if len(sizes) == 1 else None) or (DEFAULT_SIZE, DEFAULT_SIZE)
    return channels, height, width


def _read_all(root: Path, names: list[str], shape: tuple[int, int, int]) -> tuple[Tensor, dict[str, str]]:
    """The images ``[N, C, H, W]`` that can be read, and the others' names with the reasons."""
    what = f"{len(names):,} images of {shape[1]:,}×{shape[2]:,}"
    require_memory(2 * len(names) * math.prod(shape), what, "Choose a smaller image_size.")
    images = torch.empty(len(names), *shape, dtype=torch.uint8)  # filled in place: a list would need the memory twice
    place = {root / name: index for index, name in enumerate(names)}

    def read(path: Path) -> None:
        with open_image(path) as image:
            images[place[path]] = fit_image(image, shape)

    _, bad = _run_each(read, names, root)
    return images[[index for index, name in enumerate(names) if name not in bad]] if bad else images, bad


def _refuse(root: Path, bad: dict[str, str], total: int) -> NoReturn:
    named = "; ".join(f"{name} ({reason})" for name, reason in sorted(bad.items())[:5])
    raise DataError(
        f"{len(bad)} of {total} images in {root} cannot be read: {named}{'; …' if len(bad) > 5 else ''}. Replace or "
        'delete them, or leave them out with unreadable "skip".',
        option="data.options.unreadable",
    )


def _list_files(root: Path, class_names: Sequence[str] | None) -> tuple[list[_File], tuple[str, ...]]:
    """All files of both parts, sorted by class folder and name, and the names of the classes."""
    parts = _list_parts(root)
    classes = parts.get("", parts.get("train", {}))
    extra = sorted(set(parts.get("test", classes)) - set(classes))
    if extra:
        raise DataError(f"test/ in {root} has classes that train/ lacks: {', '.join(extra)}. Add them to train/ too.")
    names = check_class_names(list(classes) if class_names is None else class_names, root)
    unknown = sorted(set(classes) - set(names))
    if unknown:
        raise DataError(f"{root} has folders that are none of the classes {list(names)}: {', '.join(unknown)}.")
    empty = [f"{part}/{name}".strip("/") for part in parts for name, inside in parts[part].items() if not inside]
    if empty:
        raise DataError(
            f"these class folders in {root} hold no images: {', '.join(empty)}. Delete them or put images into them "
            f"({', '.join(EXTENSIONS)})."
        )
    number = {name: index for index, name in enumerate(names)}
    files = [_File(file, number[name], part) for part in parts for name in parts[part] for file in parts[part][name]]
    return files, names


def _list_parts(root: Path) -> dict[str, dict[str, list[str]]]:
    """The files of each class of "train" and "test", or of "" if they are not yet cut into these."""
    if not root.exists():
        raise DataError(f"there is no folder {root}. Give the path of a folder with one folder of images per class.")
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Give a folder that has one folder of images per class.")
    folders = _list_subfolders(root)
    if all(split in folders and _list_subfolders(root / split) for split in SPLITS):
        return {split: _list_class_files(root, split) for split in SPLITS}
    if folders and {folder.lower() for folder in folders} <= SPLIT_LIKE:  # classes they would silently become
        raise DataError(
            f"{root} has the folders {', '.join(folders)}, which look like splits, not classes. Name them train/ and "
            "test/ and put one folder of images per class into each, or put the class folders directly into it."
        )
    return {"": _list_class_files(root, "")}


def _list_subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _list_class_files(root: Path, part: str) -> dict[str, list[str]]:
    """The images of each class folder in a part of the root, as sorted names relative to the root."""
    place = root / part
    images = {name: _list_images(root, place / name) for name in _list_subfolders(place)}
    if not images and any(entry.suffix.lower() in EXTENSIONS for entry in place.iterdir()):
        raise DataError(f"{place} has images but no class folders. Put the images into one folder per class.")
    if not any(images.values()):
        raise DataError(
            f"{place} holds no images at all. Put one folder per class into it, with images ({', '.join(EXTENSIONS)})."
        )
    return images


def _list_images(root: Path, folder: Path) -> list[str]:
    def refuse(error: OSError) -> NoReturn:
        raise DataError(f"{error.filename} cannot be opened: {error.strerror}.") from error

    paths = []
    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [name for name in files if not name.startswith(".") and name.lower().endswith(EXTENSIONS)]
        paths += [(Path(place) / name).relative_to(root).as_posix() for name in images]
    return sorted(paths)  # as text: the order of paths differs between systems
