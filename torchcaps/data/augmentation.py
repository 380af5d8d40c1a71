"""How a training image is changed at random: turned, scaled, slanted, erased in part, and of other colours.

Every number comes from a seed and an image's index, and every step treats each image by itself, so an image is the same
to the bit in every batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.data.randomness import random_bits, random_uniform

AREA, ASPECT = (0.02, 0.33), (0.3, 3.3)
"""Of an erased rectangle: its part of the image, and height by width."""
LUMA = (0.299, 0.587, 0.114)
"""What red, green and blue give to the grey of a pixel, as television has it."""

# Which of an index's random numbers decides what. 0 … 5 are older: place or shift, brightness, contrast, a mirror.
ROTATION, SCALE, SHEAR = 6, 7, 8
ERASED, ERASED_AREA, ERASED_ASPECT, ERASED_TOP, ERASED_LEFT, ERASED_WITH = 9, 10, 11, 12, 13, 14
SATURATION, HUE = 15, 16


def draw(seed: int, indices: Tensor, number: int) -> list[float]:
    """The random number of each index that decides one thing, in [0, 1)."""
    return random_uniform(seed, indices, number + 1)[:, number].tolist()


def draw_around(seed: int, indices: Tensor, number: int, most: float) -> list[float]:
    """The same in ± ``most``."""
    return [most * (2 * value - 1) for value in draw(seed, indices, number)]


def make_matrices(rotations: Sequence[float], scales: Sequence[float], shears: Sequence[float]) -> Tensor:
    """Where a pixel of the changed image comes from: the inverse of slanting, scaling and turning, in this order.

    Args:
        rotations: anticlockwise, in degrees.
        scales: factors; more than 1 enlarges.
        shears: by how many degrees vertical lines lean to the right.

    Shapes:
        float ``[B, 2, 2]``, by which offsets (right, down) from the middle are multiplied.
    """
    rows = []
    for rotation, scale, shear in zip(rotations, scales, shears, strict=True):  # Python's own sine: alike everywhere
        cosine, sine = math.cos(math.radians(rotation)) / scale, math.sin(math.radians(rotation)) / scale
        lean = math.tan(math.radians(shear))
        # Turned back, which is clockwise on a screen where y points down, then the rows moved back by the lean.
        rows.append([[cosine + lean * sine, -sine + lean * cosine], [sine, cosine]])
    return torch.tensor(rows)


def warp(images: Tensor, matrices: Tensor, shifts: Tensor) -> Tensor:
    """Images changed around their middle and then shifted, bilinear, black where there was nothing.

    Args:
        images: to change.
        matrices: from :func:`make_matrices`.
        shifts: pixels down and right.

    Shapes:
        images uint8 ``[B, C, H, W]``, matrices ``[B, 2, 2]``, shifts ``[B, 2]`` → uint8 ``[B, C, H, W]``.
    """
    height, width = images.shape[-2:]
    down = torch.arange(height) - (height - 1) / 2 - shifts[:, :1]  # [B, H], from the middle
    right = torch.arange(width) - (width - 1) / 2 - shifts[:, 1:]
    across, along = right[:, None, :], down[:, :, None]
    parts = matrices[:, :, :, None, None]
    grid = torch.empty(len(images), height, width, 2)  # x and y of the source, whose borders are at ± 1
    # Products and sums of single numbers, so alike in every batch; a product of matrices need not be.
    grid[..., 0] = (parts[:, 0, 0] * across + parts[:, 0, 1] * along) * (2 / width)
    grid[..., 1] = (parts[:, 1, 0] * across + parts[:, 1, 1] * along) * (2 / height)
    return F.grid_sample(images.float(), grid, align_corners=False).round_().clamp_(0, 255).to(torch.uint8)


class Box(NamedTuple):
    """A rectangle of an image, in pixels; of no height and width where there is none."""

    top: int
    left: int
    height: int
    width: int


def choose_boxes(seed: int, indices: Tensor, probability: float, size: tuple[int, int]) -> list[Box]:
    """What is erased of each image: with a probability a rectangle of random area, proportions and place.

    Zhong, Zheng, Kang, Li and Yang 2020, *Random Erasing Data Augmentation*. The area is uniform, the proportions are
    so in their logarithm among those with which it fits, so nothing has to be tried again.

    Args:
        seed: of the epoch.
        indices: of the images.
        probability: that anything is erased.
        size: height and width of the images.
    """
    numbers = [draw(seed, indices, number) for number in range(ERASED, ERASED_LEFT + 1)]
    height, width = size
    boxes: list[Box] = []
    for erased, part, shape, top, left in zip(*numbers, strict=True):
        if erased >= probability:
            boxes.append(Box(0, 0, 0, 0))
            continue
        area = AREA[0] + part * (AREA[1] - AREA[0])
        low = max(ASPECT[0], area * height / width)  # as wide as the image
        high = max(low, min(ASPECT[1], height / (area * width)))  # as high
        aspect = low * (high / low) ** shape
        rows = min(height, max(1, round(math.sqrt(area * height * width * aspect))))
        columns = min(width, max(1, round(math.sqrt(area * height * width / aspect))))
        boxes.append(Box(int(top * (height - rows + 1)), int(left * (width - columns + 1)), rows, columns))
    return boxes


def erase(values: Tensor, seed: int, indices: Tensor, probability: float, standardized: bool) -> Tensor:
    """Images, some with a rectangle of noise in them: every level with the same chance, as the paper does it.

    Args:
        values: as a network is given them.
        seed: of the epoch.
        indices: of the images.
        probability: that anything of an image is erased.
        standardized: the noise has mean 0 and variance 1, else it is in 0 … 1.

    Shapes:
        float ``[B, C, H, W]`` → the same.
    """
    height, width = values.shape[-2:]
    boxes = torch.tensor(choose_boxes(seed, indices, probability, (height, width)))
    top, left, rows, columns = boxes[:, :, None].unbind(dim=1)  # [B, 1] each
    down, right = torch.arange(height) - top, torch.arange(width) - left
    inside = ((down >= 0) & (down < rows))[:, :, None] & ((right >= 0) & (right < columns))[:, None, :]
    image, row, column = inside.nonzero(as_tuple=True)
    streams = random_bits(seed, indices, ERASED_WITH + 1)[:, ERASED_WITH]
    noise = random_uniform(seed, streams[image] + row * width + column, values.shape[1])  # of the erased pixels alone
    changed = values.clone()
    changed[image, :, row, column] = (noise - 0.5) * math.sqrt(12) if standardized else noise
    return changed


def saturate(values: Tensor, factors: Sequence[float]) -> Tensor:
    """Colours nearer to their grey, or farther from it: 0 is grey, 1 is as it was.

    Shapes:
        float ``[B, 3, H, W]``, a factor for each of the B → the same.
    """
    red, green, blue = values.unbind(dim=1)
    grey = (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]
    return grey + (values - grey) * torch.tensor(factors, dtype=values.dtype).view(-1, 1, 1, 1)


def turn_hue(values: Tensor, turns: Sequence[float]) -> Tensor:
    """Colours turned on the circle of hues; the largest and the smallest of red, green and blue stay.

    A standardised image has the hues of the image itself, so this is the same before and after.

    Args:
        values: red, green and blue.
        turns: by which part of the circle, in ±1: 1/3 makes red green.

    Shapes:
        float ``[B, 3, H, W]``, a turn for each of the B → the same.
    """
    red, green, blue = values.unbind(dim=1)
    high, low = values.amax(dim=1), values.amin(dim=1)
    chroma = high - low
    safe = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    hue = torch.where(  # in sixths of the circle, from red
        high == red,
        (green - blue) / safe,
        torch.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = hue + 6 * torch.tensor(turns, dtype=values.dtype).view(-1, 1, 1)
    channels = []
    for start in (5, 3, 1):  # red, green and blue, as in Smith's hexcone
        place = hue + start
        place = place - 6 * (place / 6).floor()
        channels.append(high - chroma * torch.minimum(place, 4 - place).clamp(0, 1))
    return torch.stack(channels, dim=1)
