"""Images in memory, and batches made from them as whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from torchcaps.data.items import Item, join_items, pick_items
from torchcaps.data.randomness import random_integers
from torchcaps.errors import DataError
from torchcaps.io import make_printable


def check_names(names: Sequence[str]) -> None:
    """Refuse names of classes that would command a terminal, or break a line of a table."""
    strange = next((name for name in names if "\n" in name or make_printable(name) != name), None)
    if strange is not None:
        raise DataError(f"the class {strange!r:.60} has characters in its name that cannot be shown. Rename it.")


def check_brightness(images: Tensor, what: str) -> None:
    """Refuse pixels of 0 and 1 where 255 is white: someone has forgotten to scale them, and all would be black.

    Args:
        images: uint8, of any shape.
        what: they are, in a sentence.
    """
    if images.numel() and int(images.max()) == 1:
        raise DataError(
            f"the pixels of {what} are 0 and 1 where 255 is white, so all is black. Multiply them by 255, or give "
            "arrays as floating-point numbers in 0 … 1."
        )


def check_split(split: str) -> None:
    """Refuse anything but the splits that one's own data has."""
    if split not in ("train", "test", "all"):
        raise DataError(f"the split must be train, test or all, got {split!r}. Validation data is cut from train.")


class Batch(NamedTuple):
    """What a model trains on.

    ``inputs``: images float in 0 … 1 or standardised ``[B, C, H, W]``, at test also P patches of each
    ``[B, P, C, H, W]``; or token ids int64 ``[B, L]``. ``labels`` int64 ``[B]``, ``[B, M]`` for M objects, or
    bool ``[B, K]`` where any of the K classes may be present. ``targets``: what a decoder should draw, in 0 … 1,
    ``[B, C, H, W]`` or one image per object ``[B, M, C, H, W]``.
    """

    inputs: Tensor
    labels: Tensor
    targets: Tensor


@dataclass(frozen=True)
class ImageSet:
    """Images uint8 ``[N, C, H, W]``, their labels and the classes' names, all fitting together.

    ``labels`` are int64 ``[N]`` where an image has one class, or bool ``[N, K]`` where it may have any of K classes.
    ``items`` are the images of one's own data by their content; None where nobody asks.
    """

    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    items: tuple[Item, ...] | None = None

    def __post_init__(self) -> None:
        check_names(self.class_names)
        if self.images.dtype != torch.uint8 or self.images.dim() != 4:
            raise DataError(
                f"images must be uint8 [number, channels, height, width], got {self.images.dtype} of shape "
                f"{tuple(self.images.shape)}."
            )
        count, classes = len(self.images), len(self.class_names)
        fits = self.labels.shape == ((count, classes) if self.multi_label else (count,))
        if self.labels.dtype not in (torch.int64, torch.bool) or not fits:
            raise DataError(
                f"{count} images of {classes} classes need as many labels, int64 [{count}] or bool [{count}, "
                f"{classes}], got {self.labels.dtype} of shape {tuple(self.labels.shape)}."
            )
        if self.multi_label:
            return
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.class_names):
            raise DataError(
                f"labels must be in 0 … {len(self.class_names) - 1} for {len(self.class_names)} classes, got values "
                f"from {int(self.labels.min())} to {int(self.labels.max())}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: Tensor) -> ImageSet:
        return ImageSet(self.images[chosen], self.labels[chosen], self.class_names, pick_items(self.items, chosen))

    def __add__(self, more: ImageSet) -> ImageSet:
        """Both, of the same shape and classes."""
        images, labels = torch.cat([self.images, more.images]), torch.cat([self.labels, more.labels])
        return ImageSet(images, labels, self.class_names, join_items(self.items, more.items))

    @property
    def multi_label(self) -> bool:
        """Whether an image may have any number of classes."""
        return self.labels.dtype == torch.bool

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width


class Source(Protocol):
    """What batches come from. A batch depends on indices and seed alone, not on order, batch size or process."""

    class_names: tuple[str, ...]
    objects: int
    kind: str  # "images" or "texts", for messages

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """Inputs, labels and targets of these indices; ``seed`` decides all that is random about each."""
        ...

    def evaluation_parts(self, indices: Tensor, batch_size: int) -> Sequence[Tensor]:
        """These indices in batches, in any order."""
        ...


class ImageSource(Source, Protocol):
    """A source of images of one size.

    ``image_shape`` is channels, height and width of an image as it is in the data, ``input_shape`` of what a network is
    given of it.
    """

    image_shape: tuple[int, int, int]
    input_shape: tuple[int, int, int]


class InOrder:
    """What all sources of images share: one object in each, and batches in the order of the data."""

    kind = "images"
    objects = 1
    multi_label = False

    def evaluation_parts(self, indices: Tensor, batch_size: int) -> Sequence[Tensor]:
        """See :class:`Source`."""
        return torch.split(indices, batch_size)


class Images(InOrder):
    """An image set as a source, shifted by up to ``shift`` pixels in each direction, filled with black.

    Args:
        data: the images.
        shift: most pixels; 0 gives the images where they are (for validation and test).
        mirror: half of the images are seen in a mirror, left and right exchanged.
    """

    def __init__(self, data: ImageSet, shift: int = 0, mirror: bool = False) -> None:
        self.data, self.shift, self.mirror = data, shift, mirror
        self.class_names, self.image_shape = data.class_names, data.image_shape
        self.input_shape, self.multi_label = self.image_shape, data.multi_label

    def __len__(self) -> int:
        return len(self.data)

    def move(self, indices: Tensor, seed: int) -> Tensor:
        """The images of these indices, mirrored and shifted, uint8 ``[B, C, H, W]``."""
        images = self.data.images[indices]
        if self.mirror:
            turned = random_integers(seed, indices, 6, 2)[:, 5, None, None, None] == 1  # a number of its own
            images = torch.where(turned, images.flip(-1), images)
        if not self.shift:
            return images
        offsets = random_integers(seed, indices, 2, 2 * self.shift + 1) - self.shift
        return place(images, offsets, images.shape[-2:])

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """See :class:`Source`."""
        pixels = self.move(indices, seed).float() / 255
        return Batch(pixels, self.data.labels[indices], pixels)


def place(images: Tensor, offsets: Tensor, canvas: Sequence[int]) -> Tensor:
    """Lay images on the middle of a canvas, each moved by its own offset; what leaves it is cut, the rest is black.

    Shapes:
        images ``[B, C, H, W]``, offsets ``[B, 2]`` (down, right) → ``[B, C, *canvas]``.
    """
    batch, channels, height, width = images.shape
    rows = torch.arange(canvas[0]) - (canvas[0] - height) // 2 - offsets[:, :1]  # [B, canvas height], of the image
    columns = torch.arange(canvas[1]) - (canvas[1] - width) // 2 - offsets[:, 1:]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    at = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]  # [B, h, w]
    flat = images.reshape(batch, channels, height * width)
    taken = flat.gather(2, at.reshape(batch, 1, -1).expand(-1, channels, -1)).reshape(batch, channels, *canvas)
    return taken * inside[:, None].to(images.dtype)
