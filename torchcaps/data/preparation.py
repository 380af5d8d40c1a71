"""From the images of a data set to what a network is shown: size, standardisation, patches."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.data import augmentation as random_changes
from torchcaps.data.images import Batch, Images, ImageSet, place
from torchcaps.data.options import DataOptions, check_augmentation, check_preparation
from torchcaps.data.randomness import random_bits, random_integers, random_uniform
from torchcaps.errors import DataError
from torchcaps.machine import require_memory

AT_A_TIME = 1024  # images that are resized together: as floating-point numbers they take four times the memory

# Where the 13 patches begin, in quarters of the room that an image leaves: a 3×3 grid from border to border, and the
# centres of its four squares.
THIRTEEN = [(down, right) for down in (0, 2, 4) for right in (0, 2, 4)] + [(1, 1), (1, 3), (3, 1), (3, 3)]
CENTRE = [(2, 2)]


@dataclass(frozen=True)
class Preparation:
    """What happens to an image before a trained model sees it; nothing about it is random.

    Hinton, Sabour and Frosst 2018, §4: smallNORB is brought to 48×48, every image is normalised to zero mean and unit
    variance, and the central 32×32 patch is taken, or the scores of several patches are averaged.

    Args:
        resize: the shorter side is brought to so many pixels, the proportions stay.
        standardize: every image, all channels together, gets mean 0 and variance 1; a constant one becomes 0.
        crop: side of the square patch that is cut.
        crops: patches per image: 1 is the central one, 13 a 3×3 grid of places and the four centres between them.
    """

    resize: int | None = None
    standardize: bool = False
    crop: int | None = None
    crops: int = 1

    def __post_init__(self) -> None:
        check_preparation(self.resize, self.crop, self.crops)

    @classmethod
    def from_options(cls, options: DataOptions) -> Preparation:
        """What the options do to an image before a model sees it, in training and after."""
        return cls(options.resize, options.standardize, options.crop, options.crops)

    def resize_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Channels, height and width after ``resize``."""
        channels, height, width = image_shape
        if self.resize is None:
            return image_shape
        scale = self.resize / min(height, width)
        return channels, round(height * scale), round(width * scale)

    def input_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Channels, height and width of what the network is given of such images; refuses too large a crop."""
        channels, height, width = self.resize_shape(image_shape)
        if self.crop is None:
            return channels, height, width
        if self.crop > min(height, width):
            after = "" if self.resize is None else f" after resize {self.resize}"
            raise DataError(
                f"crop {self.crop} is larger than the images, which are {height}×{width}{after}: choose at most "
                f"{min(height, width)}.",
                option="crop",
            )
        return channels, self.crop, self.crop

    def resize_images(self, images: Tensor) -> Tensor:
        """Bring images to the size of ``resize``.

        For a whole factor, such as 96 → 48, by the mean of the pixels, else bilinear without aliasing.

        Shapes:
            uint8 ``[N, C, H, W]`` → uint8 ``[N, C, h, w]``.
        """
        channels, height, width = images.shape[1:]
        new = self.resize_shape((channels, height, width))
        if new == (channels, height, width):
            return images
        needed = (len(images) + 8 * min(len(images), AT_A_TIME)) * math.prod(new)  # some of them as float, twice
        what = f"{len(images):,} images resized to {new[1]:,}×{new[2]:,}"
        require_memory(needed, what, "Choose a smaller resize.")
        resized = images.new_empty(len(images), *new)
        for start in range(0, len(images), AT_A_TIME):
            some = images[start : start + AT_A_TIME].float()
            resized[start : start + AT_A_TIME] = _scale(some, new[1:]).round().clamp(0, 255).to(torch.uint8)
        return resized

    def scale_values(self, images: Tensor) -> Tensor:
        """The pixels as numbers: 0 … 1, or standardised.

        Shapes:
            uint8 ``[B, C, H, W]`` → float ``[B, C, H, W]``.
        """
        if not self.standardize:
            return images.float() / 255
        levels = images.flatten(1).to(torch.int64)
        count = levels.shape[1]
        total = levels.sum(dim=1, keepdim=True)
        # In whole numbers, so exact: an image is the same in every batch, and a constant one has 0 / 1.
        squared = count * levels.square().sum(dim=1, keepdim=True) - total.square()  # variance · count²
        return ((count * levels - total) / squared.double().sqrt().clamp_min(1)).float().view(images.shape)

    def cut_centre(self, images: Tensor) -> Tensor:
        """The central patch ``[..., crop, crop]``, or the whole images without ``crop``."""
        return self._at(images, CENTRE)[0]

    def cut_patches(self, images: Tensor) -> Tensor:
        """What the model is shown of images that are resized already.

        Shapes:
            uint8 ``[B, C, H, W]`` → float ``[B, crops, C, h, w]``.
        """
        return torch.stack(self._at(self.scale_values(images), CENTRE if self.crops == 1 else THIRTEEN), dim=1)

    def _at(self, images: Tensor, places: list[tuple[int, int]]) -> list[Tensor]:
        if self.crop is None:
            return [images]
        rows, columns = (size - self.crop for size in images.shape[-2:])
        corners = [(rows * down // 4, columns * right // 4) for down, right in places]
        return [images[..., row : row + self.crop, column : column + self.crop] for row, column in corners]


def _scale(images: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = images.shape[-2:]
    factor = height // size[0]
    if (height, width) == (factor * size[0], factor * size[1]):
        return F.avg_pool2d(images, factor)
    return F.interpolate(images, list(size), mode="bilinear", antialias=True)


@dataclass(frozen=True)
class Augmentation:
    """What is random about a training image.

    Args:
        shift: it is moved by up to so many pixels in each direction, filled with black.
        mirror: half of the images have left and right exchanged.
        brightness: a number up to so much, either way, is added: 1 is white, or with standardised images one standard
            deviation.
        contrast: the differences from an image's mean are multiplied by 1 ± up to so much.
        rotation: it is turned by up to so many degrees, either way.
        scale: it is enlarged by a factor of 1 ± up to so much.
        shear: it is slanted by up to so many degrees, either way.
        erasing: the probability that a rectangle of it is filled with noise.
        saturation: colours differ from grey 1 ± up to so much times.
        hue: colours are turned by up to so much of the circle of hues, either way.
    """

    shift: int = 0
    mirror: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    erasing: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        check_augmentation(vars(self))

    @classmethod
    def from_options(cls, options: DataOptions) -> Augmentation:
        """What the options do to training images."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})

    @property
    def warps(self) -> bool:
        """Whether pixels come to lie between others."""
        return bool(self.rotation or self.scale or self.shear)

    @property
    def moves_only(self) -> bool:
        """Whether pixels stay what they are: at most a shift and a mirror."""
        return self == Augmentation(self.shift, self.mirror)


class PreparedImages(Images):
    """An image set as a trained model sees it: nothing is random. The targets are the central patch in 0 … 1.

    With 13 crops ``batch`` gives images ``[B, 13, C, h, w]``.

    Args:
        data: the images as they are in the data set; they are resized once.
        preparation: what is done to each.
        shift: as in :class:`~torchcaps.data.images.Images`, before anything else but the resizing.
        mirror: as there.
    """

    def __init__(self, data: ImageSet, preparation: Preparation, shift: int = 0, mirror: bool = False) -> None:
        super().__init__(replace(data, images=preparation.resize_images(data.images)), shift, mirror)
        self.preparation, self.image_shape = preparation, data.image_shape
        self.input_shape = preparation.input_shape(data.image_shape)

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """See :class:`~torchcaps.data.images.Source`."""
        images = self.move(indices, seed)
        patches = self.preparation.cut_patches(images)
        shown = patches if self.preparation.crops > 1 else patches[:, 0]
        return Batch(shown, self.data.labels[indices], self.preparation.cut_centre(images).float() / 255)


class AugmentedImages(PreparedImages):
    """The same for training: images turned, scaled and slanted, patches from random places, in another light, erased.

    The targets are the same patches in 0 … 1, before standardisation, colours, brightness, contrast and erasing: a
    decoder draws what is there where it is.

    Args:
        data: as in :class:`PreparedImages`.
        preparation: as in :class:`PreparedImages`; one patch per image.
        augmentation: what is random; no shift with a crop.
    """

    def __init__(self, data: ImageSet, preparation: Preparation, augmentation: Augmentation = Augmentation()) -> None:
        super().__init__(data, preparation, 0 if augmentation.warps else augmentation.shift, augmentation.mirror)
        self.augmentation = augmentation

    def move(self, indices: Tensor, seed: int) -> Tensor:
        """As :class:`~torchcaps.data.images.Images`; what else moves pixels is done in one step with the shift."""
        images, most = super().move(indices, seed), self.augmentation
        if not most.warps:
            return images
        around = partial(random_changes.draw_around, seed, indices)
        matrices = random_changes.make_matrices(
            around(random_changes.ROTATION, most.rotation),
            [1 + change for change in around(random_changes.SCALE, most.scale)],
            around(random_changes.SHEAR, most.shear),
        )
        shifts = random_integers(seed, indices, 2, 2 * most.shift + 1) - most.shift  # those of a shift alone
        return random_changes.warp(images, matrices, shifts)

    def batch(self, indices: Tensor, seed: int) -> Batch:
        """See :class:`~torchcaps.data.images.Source`."""
        images = self.move(indices, seed)
        values, pixels = (self._cut(part, indices, seed) for part in (self.preparation.scale_values(images), images))
        shown = self._light(self._colour(values, indices, seed), indices, seed)
        if self.augmentation.erasing:
            standardized = self.preparation.standardize
            shown = random_changes.erase(shown, seed, indices, self.augmentation.erasing, standardized)
        return Batch(shown, self.data.labels[indices], pixels.float() / 255)

    def _colour(self, patches: Tensor, indices: Tensor, seed: int) -> Tensor:
        """Change saturation and hue of each patch."""
        saturation, hue = self.augmentation.saturation, self.augmentation.hue
        around = partial(random_changes.draw_around, seed, indices)
        if saturation:
            factors = [1 + change for change in around(random_changes.SATURATION, saturation)]
            patches = random_changes.saturate(patches, factors)
        if hue:
            patches = random_changes.turn_hue(patches, around(random_changes.HUE, hue))
        return patches

    def _cut(self, images: Tensor, indices: Tensor, seed: int) -> Tensor:
        """A patch of each image, every place with the same chance."""
        crop = self.preparation.crop
        if crop is None:
            return images
        room = torch.tensor(images.shape[-2:]) - crop
        corners = random_bits(seed, indices, 2) % (room + 1)
        return place(images, (room + 1) // 2 - corners, (crop, crop))  # which counts from the middle

    def _light(self, patches: Tensor, indices: Tensor, seed: int) -> Tensor:
        """Change brightness and contrast of each patch."""
        brightness, contrast = self.augmentation.brightness, self.augmentation.contrast
        if not brightness and not contrast:
            return patches
        # Two numbers of their own: the first two decide place or shift.
        random = 2 * random_uniform(seed, indices, 4)[:, 2:, None, None, None] - 1
        mean = patches.double().mean(dim=(1, 2, 3), keepdim=True).float()  # rounded alike in every batch
        return (patches - mean) * (1 + contrast * random[:, 1]) + (mean + brightness * random[:, 0])
