"""A user's own images as arrays, in an .npz file or in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.data.array_names import ArrayNames, find_arrays
from torchcaps.data.dataset import Files, ImageDataset, ImageLook
from torchcaps.data.flags import are_flags, read_flags
from torchcaps.data.images import ImageSet, check_brightness, check_split
from torchcaps.data.items import Entry, list_image_items
from torchcaps.data.npz import ArrayHeader, read_arrays, read_headers
from torchcaps.data.splits import choose_from_sets, list_set_entries
from torchcaps.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAVE = "Save plain arrays with np.savez(file, x=images, y=labels)."
SHAPES = "uint8 (or float in 0 … 1) [N, H, W], [N, H, W, C] with 1 or 3 channels, or [N, C, H, W] with 1, 2 or 3"


@dataclass(frozen=True)
class ImageArrays(ImageDataset):
    """One's own images and labels in an .npz file.

    Args:
        path: the file, see :func:`read_image_arrays`.
    """

    path: str

    @property
    def title(self) -> str:
        """Its path."""
        return self.path

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        return read_image_arrays(self.path, split, files)

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return list_set_entries(_read_sets(self.path)[0])

    def look(self) -> ImageLook | None:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        try:
            headers = read_headers(Path(self.path), SAVE)
            called = find_arrays(headers, self.path, SAVE).used
            shape, labels = arrange_shape(headers[called["x"]].shape), headers[called["y"]]
            if are_flags(labels.shape, labels.dtype.kind):
                classes = labels.shape[1]
            elif "class_names" in called:
                classes = headers[called["class_names"]].shape[0]
            else:
                (values,) = read_arrays(Path(self.path), [called["y"]], headers, SAVE).values()
                classes = len(set(values.reshape(-1).tolist()))
        except (DataError, LookupError):  # which loading it tells in full
            return None
        return None if shape is None else ImageLook(shape, classes)

    def judged_split(self) -> str:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        headers = read_headers(Path(self.path), SAVE)
        return "test" if "x_test" in find_arrays(headers, self.path, SAVE).used else "all"


def check_class_names(names: Sequence[str], where: object) -> tuple[str, ...]:
    """The names as a tuple; raises :class:`DataError` for fewer than two or for one that comes twice."""
    if len(names) == 1:
        raise DataError(
            f"{where} has one class only: {names[0]!r}; a classifier needs at least two. Add images of another class."
        )
    if not names or len(set(names)) < len(names):
        raise DataError(f"the class names of {where} must be two or more different ones, got {list(names)}.")
    return tuple(names)


def read_image_arrays(path: str | os.PathLike[str], split: str, files: Files = Files()) -> ImageSet:
    """Read images and labels from an .npz file with the arrays ``x`` and ``y``.

    The file may also hold ``x_test`` and ``y_test``, which are then the test images; without them, about a fifth of
    each class is kept for the test (see :func:`~torchcaps.data.splits.cut_by_content`). It may hold ``class_names``,
    unicode strings. Other usual names of these arrays are understood (:data:`~torchcaps.data.array_names.ROLES`); what
    else is in the file is told. Pickled objects are never loaded.

    Args:
        path: the file.
        split: "train", "test" or "all".
        files: has the split that a run recorded, if it did, and who is told of arrays that are not used.

    Returns:
        The images of the split, in the order of the file.

    Shapes:
        ``x`` uint8, or float in 0 … 1: ``[N, H, W]``, ``[N, H, W, C]`` with C 1 or 3, or ``[N, C, H, W]`` with C 1, 2
        or 3; where both could be meant, the channels are last. ``y`` integers from 0 or unicode strings, ``[N]`` or
        ``[N, 1]``; where an image may have several classes bool ``[N, K]``, or integers of 0 and 1 if there are
        ``class_names`` ``[K]``. The result's images are uint8 ``[M, C, H, W]``.

    Raises:
        DataError: the file or its arrays are not as described; the message says what to do.
    """
    check_split(split)
    sets, found = _read_sets(path)
    if files.notice and files.record is None and not files.counted:
        for sentence in found.describe_others(path):
            files.notice(sentence)
    return choose_from_sets(sets, split, files, path, "image")


def _read_sets(path: str | os.PathLike[str]) -> tuple[dict[str, ImageSet], ArrayNames]:
    """The images of "train" and "test", or of "" if they are not yet cut into these, and what the arrays are called."""
    arrays, found = _read_arrays(Path(path))
    called = found.used
    given = "x_test" in arrays
    if given and arrays["x_test"].shape[1:] != arrays["x"].shape[1:]:
        raise DataError(
            f"{called['x']} and {called['x_test']} in {path} must hold images of one shape, got {arrays['x'].shape} "
            f"and {arrays['x_test'].shape}."
        )
    names: Sequence[str] | None = _read_names(arrays, path)
    sets: dict[str, ImageSet] = {}
    for part, x, y in (("train" if given else "", "x", "y"), *((("test", "x_test", "y_test"),) if given else ())):
        labels, names = make_labels(arrays[y], f"{called[y]} in {path}", names)
        images = to_pixels(arrays[x], f"{called[x]} in {path}")
        sets[part] = ImageSet(images, labels, names, list_image_items(images, called[x]))
    if len({data.multi_label for data in sets.values()}) > 1:
        raise DataError(f"{called['y']} and {called['y_test']} in {path} must be of one kind: a label each, or flags.")
    return sets, found


def _read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], ArrayNames]:
    """The arrays of the file that are of use by their roles, images and labels being equally many."""
    if not path.is_file():
        raise DataError(f"there is no file {path}. Give the path of an .npz file. {SAVE}")
    headers = read_headers(path, SAVE)
    found = find_arrays(headers, path, SAVE)
    called = found.used
    for images, labels in (("x", "y"), ("x_test", "y_test")):
        if images in called:
            x, y = called[images], called[labels]
            check_pair(headers[x], headers[y], f"{x} of {path}", f"{y} of {path}")
    arrays = read_arrays(path, list(called.values()), headers, SAVE)
    return {role: arrays[name] for role, name in called.items()}, found


def make_labels(values: NDArray[Any], what: str, class_names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels int64 ``[N]``, or flags bool ``[N, K]``, from an array that :func:`check_pair` let pass; and their names.

    Args:
        values: one label per image, or flags.
        what: the array in a sentence, such as "y in own.npz".
        class_names: of the classes; not given: as the labels have them.
    """
    if are_flags(values.shape, values.dtype.kind):
        return read_flags(values, what, class_names)
    values = values.reshape(-1)
    names = name_classes(values, what, class_names)
    return number_labels(values, names, what), names


def check_pair(images: ArrayHeader, labels: ArrayHeader, x: str, y: str) -> None:
    """Refuse all but one label per image, or flags, of a kind that can be one, before anything is unpacked."""
    flags = are_flags(labels.shape, labels.dtype.kind)
    single = len(labels.shape) == 1 or (len(labels.shape) == 2 and labels.shape[1] == 1)
    if not images.shape or not (flags or single):
        raise DataError(
            f"{y} must be one label per image, [N] or [N, 1], or truth values [N, K] for several of K classes, got "
            f"{labels.dtype} of shape {labels.shape}."
        )
    if images.shape[0] != labels.shape[0]:
        raise DataError(f"every image needs a label: {images.shape[0]} images in {x}, {labels.shape[0]} in {y}.")
    if not labels.shape[0]:
        raise DataError(f"{x} holds no images.")
    if labels.dtype.kind not in "iuUO" and not flags:  # objects are refused with their own words
        raise DataError(
            f"{y} must be integers or unicode strings, got {labels.dtype}. Whole numbers can be converted with "
            ".astype(int), byte strings with .astype(str)."
        )


def _read_names(arrays: dict[str, NDArray[Any]], path: str | os.PathLike[str]) -> list[str] | None:
    """The names of the classes that a file has."""
    if "class_names" not in arrays:
        return None
    given = arrays["class_names"]
    if given.dtype.kind != "U" or given.ndim != 1:
        raise DataError(f"class_names in {path} must be unicode strings [K], got {given.dtype} of shape {given.shape}.")
    return list(given.tolist())


def name_classes(labels: NDArray[Any], what: str, given: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of the classes: those given, else the sorted strings or the numbers 0 … K-1 of the labels.

    Args:
        labels: strings or integers ``[N]``.
        what: the labels in a sentence, such as "y in own.npz".
        given: a name for every number.
    """
    if given is not None:
        return check_class_names(given, f"class_names for {what}")
    present = sorted(set(labels.tolist()))
    if len(present) == 1:
        check_class_names([str(present[0])], what)
    if labels.dtype.kind == "U":
        return tuple(present)
    if present[0] >= 0 and present != list(range(len(present))):
        shown = ", ".join(str(label) for label in present[:10]) + (", …" if len(present) > 10 else "")
        raise DataError(
            f"the labels {what} must be 0 … {len(present) - 1} for {len(present)} classes, got {shown}. Renumber "
            "them from 0: y = np.unique(y, return_inverse=True)[1], or add class_names with a name for every number."
        )
    return tuple(str(label) for label in range(len(present)))


def number_labels(labels: NDArray[Any], names: tuple[str, ...], what: str) -> Tensor:
    """Numbers int64 ``[N]`` of the classes that labels ``[N]``, strings or integers, mean."""
    if labels.dtype.kind == "U":
        number = {name: index for index, name in enumerate(names)}
        unknown = sorted(set(labels.tolist()) - set(number))
        if unknown:
            raise DataError(f"{what} has labels that are no class: {unknown[:5]}; the classes are {list(names[:10])}.")
        return torch.tensor([number[label] for label in labels.tolist()], dtype=torch.int64)
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise DataError(f"the labels {what} must not be negative, got {low}. Number the classes from 0.")
    if high >= len(names):
        raise DataError(
            f"the labels {what} must be in 0 … {len(names) - 1} for {len(names)} class names, got {high}. "
            "Renumber the labels from 0, or give every class a name in class_names."
        )
    return torch.from_numpy(labels.astype("int64"))


def arrange_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Channels, height and width of the images of an array, see :func:`to_pixels`; None for one that holds none."""
    if len(shape) == 3:
        return 1, shape[1], shape[2]
    if len(shape) != 4:
        return None
    return (shape[3], shape[1], shape[2]) if shape[3] in (1, 3) else (shape[1], shape[2], shape[3])


def to_pixels(array: NDArray[Any], what: str) -> Tensor:
    """Images uint8 ``[N, C, H, W]`` of an array in any of the shapes and types that are taken.

    Args:
        array: uint8, or float in 0 … 1.
        what: the array in a sentence, such as "x in own.npz".

    Shapes:
        ``[N, H, W]``, ``[N, H, W, C]`` with C 1 or 3, or ``[N, C, H, W]`` with C 1, 2 or 3; where both could be meant,
        the channels are last.
    """
    import numpy as np

    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim != 4 or array.shape[1] not in (1, 2, 3) or array.shape[3] == 2:  # [N, H, W, 2] is not taken
        raise DataError(f"{what} must be images {SHAPES} channels, got shape {array.shape}.")
    if 0 in array.shape:
        raise DataError(f"the images {what} are empty: their shape is {array.shape}.")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):  # written so that NaN, which min and max pass on, is refused too
            raise DataError(
                f"float images must be in 0 … 1, {what} goes from {low:g} to {high:g}. Scale them: divide by "
                "255 if they are in 0 … 255, or save them as uint8; NaN must be replaced."
            )
        array = np.rint(array.astype(np.float32) * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(
            f"{what} must be {SHAPES} channels, got {array.dtype}. Convert it with .astype(np.uint8) if its values are "
            "in 0 … 255."
        )
    pixels = torch.from_numpy(np.ascontiguousarray(array))
    check_brightness(pixels, what)
    return pixels
