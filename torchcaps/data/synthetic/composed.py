"""Images made on the fly from digits: two over each other, and digits under affine transformations.

What is random about an image comes from its index and the seed, so a test set is the same for everyone, and a training
set with a new seed per epoch never repeats.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset
from torchcaps.data.images import Batch, ImageSet, ImageSource, InOrder, place
from torchcaps.data.preparation import Augmentation, Preparation
from torchcaps.data.randomness import random_integers, random_uniform
from torchcaps.data.registry import dataset_class, register_dataset
from torchcaps.errors import DataError

DigitSet = Literal["mnist-mini", "mnist", "fashion-mnist"]
DIGIT_SETS: tuple[str, ...] = get_args(DigitSet)
"""Data sets that images can be made from."""


class MultiDigits(InOrder):
    """MultiMNIST: two digits of different classes, each shifted, over each other on a larger canvas, the sum clipped.

    Sabour et al. 2017, §6: shifts up to 4 pixels on 36×36. One image per digit of the set, paired with another.

    Args:
        data: the single digits.
        shift: most pixels each digit moves.
        canvas: side of the image.

    Shapes:
        images ``[B, C, canvas, canvas]``, labels ``[B, 2]``, targets ``[B, 2, C, canvas, canvas]``: each digit alone.
    """

    objects = 2

    def __init__(self, data: ImageSet, shift: int = 4, canvas: int = 36) -> None:
        self.data, self.shift, self.canvas = data, shift, canvas
        self.counts = data.labels.bincount(minlength=len(data.class_names))
        if int((self.counts > 0).sum()) < 2:
            raise DataError("two digits of different classes need a set with at least two classes.")
        self.by_class = data.labels.argsort(stable=True)
        self.starts = self.counts.cumsum(0) - self.counts
        self.class_names = data.class_names
        self.image_shape = self.input_shape = (data.image_shape[0], canvas, canvas)

    def __len__(self) -> int:
        return len(self.data)

    def partners(self, indices: Tensor, seed: int) -> Tensor:
        """For every digit one of another class, each with the same chance."""
        labels = self.data.labels[indices]
        own, start = self.counts[labels], self.starts[labels]
        number = random_integers(seed, indices, 5, 2**62 - 1)[:, 4] % (len(self.data) - own)
        return self.by_class[torch.where(number < start, number, number + own)]  # past the digit's own class

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """See :class:`~torchcaps.data.images.Source`."""
        chosen = torch.stack([indices, self.partners(indices, seed)], dim=1)  # [B, 2]
        offsets = random_integers(seed, indices, 4, 2 * self.shift + 1) - self.shift
        digits = place(self.data.images[chosen.flatten()], offsets.reshape(-1, 2), (self.canvas, self.canvas))
        targets = digits.float().view(-1, 2, *self.image_shape) / 255
        return Batch(targets.sum(dim=1).clamp_max(1), self.data.labels[chosen], targets)


class ShiftedDigits(InOrder):
    """Digits on a larger canvas, shifted anywhere: what :class:`AffineDigits` is trained on.

    Args:
        data: the digits.
        canvas: side of the image.
        shift: most pixels from the middle; None lets the digit reach the border.
    """

    def __init__(self, data: ImageSet, canvas: int = 40, shift: int | None = None) -> None:
        self.data, self.canvas = data, canvas
        self.shift = (canvas - max(data.image_shape[1:])) // 2 if shift is None else shift
        if self.shift < 0:
            raise DataError(f"digits of {data.image_shape[1:]} pixels do not fit on a canvas of {canvas}.")
        self.class_names = data.class_names
        self.image_shape = self.input_shape = (data.image_shape[0], canvas, canvas)

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """See :class:`~torchcaps.data.images.Source`."""
        offsets = random_integers(seed, indices, 2, 2 * self.shift + 1) - self.shift
        pixels = place(self.data.images[indices], offsets, (self.canvas, self.canvas)).float() / 255
        return Batch(pixels, self.data.labels[indices], pixels)


class AffineDigits(ShiftedDigits):
    """Digits rotated, sheared, scaled and shifted at random on the same canvas. In the manner of affNIST, but not it.

    Args:
        data: the digits.
        canvas: side of the image.
        shift: most pixels from the middle, after the other transformations.
        rotation: most degrees, either way.
        shear: most, either way.
        scale: least and largest, each direction on its own.
    """

    def __init__(
        self,
        data: ImageSet,
        canvas: int = 40,
        shift: int = 4,
        rotation: float = 20.0,
        shear: float = 0.2,
        scale: tuple[float, float] = (0.8, 1.2),
    ) -> None:
        super().__init__(data, canvas, shift)
        self.rotation, self.shear, self.scale = rotation, shear, scale

    def matrices(self, indices: Tensor, seed: int) -> Tensor:
        """From a pixel of the canvas to one of the digit, in units of half the canvas: ``[B, 2, 3]``."""
        u = random_uniform(seed, indices, 6)
        angle = (2 * u[:, 0] - 1) * math.radians(self.rotation)
        shear = (2 * u[:, 1] - 1) * self.shear
        low, high = self.scale
        down, across = (low + (high - low) * u[:, n] for n in (2, 3))
        shift = (2 * u[:, 4:6] - 1) * 2 * self.shift / self.canvas
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        rotate = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
        stretch = torch.stack([torch.stack([across, shear], 1), torch.stack([zero, down], 1)], 1)
        inverse = torch.linalg.inv(rotate @ stretch)
        return torch.cat([inverse, -inverse @ shift[:, :, None]], dim=2)

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """See :class:`~torchcaps.data.images.Source`."""
        centred = place(self.data.images[indices], indices.new_zeros(len(indices), 2), (self.canvas,) * 2).float() / 255
        grid = F.affine_grid(self.matrices(indices, seed), list(centred.shape), align_corners=False)
        pixels = F.grid_sample(centred, grid, align_corners=False).clamp(0, 1)
        return Batch(pixels, self.data.labels[indices], pixels)


@dataclass(frozen=True)
class ComposedDigits(ImageDataset):
    """Images made on the fly from the digits of another data set, on a canvas of their own.

    Args:
        base: the digits that they are made from.
    """

    makes_canvas: ClassVar[bool] = True
    base: DigitSet = "mnist-mini"

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """The digits of the base."""
        self.check_split(split)
        base = dataset_class(self.base)()
        assert isinstance(base, ImageDataset)
        return base.load(split, files, class_names)

    def check_preparation(self, preparation: Preparation, augmentation: Augmentation = Augmentation()) -> None:
        """Refuse what changes images otherwise; a shift is without effect, since there is one already."""
        plain = {**asdict(Preparation()), **asdict(Augmentation())}
        given = {**asdict(preparation), **asdict(augmentation), "shift": plain["shift"]}
        wrong = [option for option, value in given.items() if value != plain[option]]
        if wrong:
            raise DataError(
                f"{self.name} makes its own canvas: {', '.join(wrong)} cannot be given; "
                f"{', '.join(option for option in plain if option != 'shift')} are for other data. Leave them out.",
                option=f"data.{wrong[0]}",
            )


@register_dataset("multi-mnist")
@dataclass(frozen=True)
class MultiMNIST(ComposedDigits):
    """Two digits over each other, 36×36, made on the fly from the option base.

    Args:
        base: the digits that they are made from.
    """

    def training_source(self, images: ImageSet, preparation: Preparation, augmentation: Augmentation) -> ImageSource:
        """Pairs, new ones every epoch."""
        return MultiDigits(images)

    def evaluation_source(self, images: ImageSet, preparation: Preparation) -> ImageSource:
        """Pairs, the same for everyone."""
        return MultiDigits(images)


@register_dataset("affine-mnist")
@dataclass(frozen=True)
class AffineMNIST(ComposedDigits):
    """Trained on shifted digits, tested on affine ones, 40×40, made on the fly from the option base.

    Args:
        base: the digits that they are made from.
    """

    def training_source(self, images: ImageSet, preparation: Preparation, augmentation: Augmentation) -> ImageSource:
        """Digits that are shifted only."""
        return ShiftedDigits(images)

    def validation_source(self, images: ImageSet, preparation: Preparation) -> ImageSource:
        """Digits as those of training: what the test is about must not be seen before."""
        return ShiftedDigits(images)

    def evaluation_source(self, images: ImageSet, preparation: Preparation) -> ImageSource:
        """Digits under affine transformations."""
        return AffineDigits(images)
