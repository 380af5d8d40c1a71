"""Many image files, looked at and read into one tensor: what class folders and files of labels have in common."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor

from torchcaps.data.dataset import NO_OPTION, Files, ImageDataset
from torchcaps.data.images import check_brightness
from torchcaps.data.items import hash_file
from torchcaps.data.pictures import (
    FITS,
    Fit,
    UnreadableError,
    fit_image,
    has_several_frames,
    measure_upright,
    open_image,
    require_pillow,
)
from torchcaps.errors import DataError
from torchcaps.io import make_printable
from torchcaps.machine import require_memory

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""By which files are taken for images; what they are is decided by their content."""
LARGEST_KEPT = 64
DEFAULT_SIZE = 32
THREADS = max(2, min(4, os.cpu_count() or 2))  # Pillow decodes in parallel, but small images are mostly Python
WAYS: dict[Fit, str] = {
    "letterbox": "all of each image, with black bars where its shape is another",
    "crop": "the middle of each image, what is over on two sides cut off",
    "stretch": "all of each image, stretched where its shape is another",
}
Result = TypeVar("Result")


class Reading(NamedTuple):
    """How image files are read.

    Attributes:
        image_size: height and width that they are brought to; not given: as they all are, or 32.
        fit: how they are brought there.
        unreadable: "refuse" those that cannot be read, or "skip" them.
        image_shape: channels, height and width that a trained model asks for, instead of what the images suggest.
    """

    image_size: int | None = None
    fit: Fit = "letterbox"
    unreadable: str = "refuse"
    image_shape: tuple[int, int, int] | None = None

    def check(self) -> None:
        """Refuse what cannot be done, and a machine without Pillow."""
        if self.unreadable not in ("refuse", "skip"):
            raise DataError(f'unreadable must be "refuse" or "skip", got {self.unreadable!r}.', option="unreadable")
        if self.fit not in FITS:
            raise DataError(f"fit must be {', '.join(FITS[:-1])} or {FITS[-1]}, got {self.fit!r}.", option="fit")
        if self.image_size is not None and self.image_size < 1:
            raise DataError(f"image_size must be at least 1, got {self.image_size}.", option="image_size")
        require_pillow()


@dataclass(frozen=True)
class FileImages(ImageDataset):
    """One's own images in files; what their labels are, a class that derives from this one knows.

    Args:
        path: where they are.
        image_size: side that the images are brought to; not given: their own if it is small and the same for all.
        unreadable: refuse or skip images that cannot be read.
        fit: how images of another shape are brought to theirs, see :func:`~torchcaps.data.pictures.fit_image`.
        image_shape: channels, height and width that a model was trained for; no option.
    """

    path: str
    image_size: int | None = None
    unreadable: Literal["refuse", "skip"] = "refuse"
    fit: Fit = "letterbox"
    image_shape: tuple[int, int, int] | None = field(default=None, metadata=NO_OPTION)

    def __post_init__(self) -> None:
        self.reading.check()

    @property
    def reading(self) -> Reading:
        """How its files are read."""
        return Reading(self.image_size, self.fit, self.unreadable, self.image_shape)

    @property
    def title(self) -> str:
        """Its path."""
        return self.path

    def fit_to(self, image_shape: tuple[int, int, int], fit: Fit = "letterbox") -> FileImages:
        """The same images, brought to the shape of those that a model was trained on."""
        return replace(self, image_shape=image_shape, fit=fit)


class ReadFiles(NamedTuple):
    """Images uint8 ``[N, C, H, W]`` of the files that could be read, and why the others could not, by their names."""

    images: Tensor
    bad: dict[str, str]


class _Look(NamedTuple):
    grey: bool
    size: tuple[int, int]  # width and height, upright
    several: bool


def read_image_files(
    root: Path, names: Sequence[str], known: Sequence[int], chosen: Sequence[int], reading: Reading, files: Files
) -> ReadFiles:
    """Read some of a folder's image files.

    Args:
        root: the folder.
        names: of all files, relative to it.
        known: numbers of those that decide about the shape.
        chosen: numbers of those that are read.
        reading: how.
        files: who is told what is done to the images; of the data that a run recorded it was told when it was trained.
    """
    told = files.notice is not None and files.record is None and not files.counted
    looks: list[_Look] = []
    bad: dict[str, str] = {}
    if told or reading.image_shape is None:
        looks, bad = run_each(_look, [names[number] for number in known], root)
    shape = reading.image_shape or _choose_shape(looks, reading.image_size)
    wanted = [names[number] for number in chosen if names[number] not in bad]
    images, more_bad = _read_all(root, wanted, shape, reading.fit)
    bad |= more_bad
    if bad and reading.unreadable == "refuse":
        refuse_files(root, bad, len(names))
    if told and files.notice is not None:
        for sentence in (*_describe_fitting(looks, shape, reading), *_describe_black(images, wanted, more_bad)):
            files.notice(sentence)
    if len(images):
        check_brightness(images, f"the images in {root}")
    return ReadFiles(images, bad)


def hash_files(root: Path, names: Sequence[str]) -> list[str]:
    """The keys of all files, see :mod:`torchcaps.data.items`."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda name: hash_file(root / name), names))


def _look(path: Path) -> _Look:
    """What the shape of all images depends on. Nothing is decoded for it."""
    with open_image(path) as image:
        grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
        return _Look(grey, measure_upright(image), has_several_frames(image))


def run_each(
    function: Callable[[Path], Result], names: Sequence[str], root: Path
) -> tuple[list[Result], dict[str, str]]:
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


def _choose_shape(looks: Sequence[_Look], image_size: int | None) -> tuple[int, int, int]:
    """Channels, height and width for images of these looks."""
    channels = 1 if all(look.grey for look in looks) else 3
    if image_size is not None:
        return channels, image_size, image_size
    sizes = {look.size for look in looks}
    width, height = next(iter(sizes), (DEFAULT_SIZE, DEFAULT_SIZE))
    if len(sizes) > 1 or max(width, height) > LARGEST_KEPT:
        return channels, DEFAULT_SIZE, DEFAULT_SIZE
    return channels, height, width


def _read_all(root: Path, names: Sequence[str], shape: tuple[int, int, int], fit: Fit) -> ReadFiles:
    what = f"{len(names):,} images of {shape[1]:,}×{shape[2]:,}"
    require_memory(2 * len(names) * math.prod(shape), what, "Choose a smaller image_size.")
    images = torch.empty(len(names), *shape, dtype=torch.uint8)  # filled in place: a list would need the memory twice
    place = {root / name: index for index, name in enumerate(names)}

    def read(path: Path) -> None:
        with open_image(path) as image:
            images[place[path]] = fit_image(image, shape, fit)

    _, bad = run_each(read, names, root)
    kept = images[[index for index, name in enumerate(names) if name not in bad]] if bad else images
    return ReadFiles(kept, bad)


def refuse_files(root: Path, bad: dict[str, str], total: int) -> NoReturn:
    """Say which of a folder's images cannot be read, and why."""
    named = "; ".join(f"{name} ({reason})" for name, reason in sorted(bad.items())[:5])
    raise DataError(
        f"{len(bad)} of {total} images in {root} cannot be read: {named}{'; …' if len(bad) > 5 else ''}. Replace or "
        'delete them, or leave them out with unreadable "skip".',
        option="data.options.unreadable",
    )


def _describe_fitting(looks: Sequence[_Look], shape: tuple[int, int, int], reading: Reading) -> list[str]:
    """What is done to images that are of another size than the model will see, and to those with several frames."""
    _, height, width = shape
    others = [look.size for look in looks if look.size != (width, height)]
    said = []
    if others:
        sizes = sorted(set(others), key=lambda size: (math.prod(size), size))
        ends = " to ".join(f"{size[0]}×{size[1]}" for size in (sizes if len(sizes) == 1 else (sizes[0], sizes[-1])))
        advice = "as in training"
        if reading.image_shape is None:
            ways = ", ".join(fit for fit in FITS if fit != reading.fit)
            advice = f"data.options.image_size sets another size, data.options.fit another way ({ways})"
        said.append(
            f"{len(others):,} of {len(looks):,} images, of {ends} pixels (width × height), are brought to "
            f"{width}×{height}: {WAYS[reading.fit]} ({reading.fit}); {advice}."
        )
    several = sum(look.several for look in looks)
    if several:
        said.append(f"Of {several:,} with several frames or pages the first is read.")
    return said


def _describe_black(images: Tensor, names: Sequence[str], bad: dict[str, str]) -> list[str]:
    """Images in which nothing can be seen, where others show something."""
    if not len(images):
        return []
    dark = (images.flatten(1).amax(dim=1) <= 1).nonzero()[:, 0].tolist()
    if not dark or len(dark) == len(images):  # all of them are refused elsewhere
        return []
    first = [name for name in names if name not in bad][dark[0]]
    return [
        f"{len(dark):,} of {len(images):,} images are black all over (no pixel above 1 of 255), such as "
        f"{make_printable(first)}."
    ]
