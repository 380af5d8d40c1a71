"""Properties of a drawn shape that a person would name, measured from the moments of its picture."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.checks import require_float
from torchcaps.errors import InputError

EDGE = (0.2, 0.8)
"""A pixel counts as outside of the shape below the first and as inside above the second, in parts of the brightest."""


class Shape(NamedTuple):
    """What a picture of one bright shape on black looks like; every field has the pictures' leading shape ``[...]``.

    Attributes:
        mass: sum of the pixels, the ink.
        peak: the brightest pixel.
        x: centroid in pixels to the right of the picture's centre.
        y: centroid in pixels *below* the picture's centre, as rows are counted.
        width: of the shape after its slant is taken out, in pixels: a bar does not get wider by leaning.
        height: in pixels.
        slant: columns to the right per row upwards. Positive leans to the right, 1 is 45°.
        thickness: of the strokes, in pixels.
    """

    mass: Tensor
    peak: Tensor
    x: Tensor
    y: Tensor
    width: Tensor
    height: Tensor
    slant: Tensor
    thickness: Tensor


def measure_shape(images: Tensor) -> Shape:
    r"""Measure shapes by moments, x to the right and y downwards.

    What is measured is the shape at half of its brightness: q = (p / max p − 0.2) / 0.6, cut to 0 … 1. A decoder's
    pictures are blurred and lie in a faint haze; with the pixels themselves as weights, haze far from the shape would
    count as width, and blur as thickness.

    ::

        slant     = −cov(x, y) / var(y)
        width²    = 12 (var(x) − cov(x, y)² / var(y) + 1/12)
        height²   = 12 (var(y) + 1/12)
        thickness = 2 Σq / ∫|∇q|

    A filled rectangle of w×h pixels gives exactly w and h: 1/12 is the variance inside a pixel. A picture whose rows
    are shifted by k pixels each gives exactly the slant k. The total variation ∫|∇q| is the perimeter of a shape of
    full brightness, and a stroke much longer than thick has twice its length as perimeter; the ends make a bar of
    w×l come out as wl/(w + l). An empty picture gives zeros.

    Args:
        images: pixels in 0 … 1 with black as 0, channels already averaged.

    Shapes:
        ``[..., H, W]`` → every field ``[...]``.
    """
    require_float("images", images)
    if images.dim() < 2:
        raise InputError(f"pictures must have shape [..., height, width], got {tuple(images.shape)}.")
    ink, peak = images.sum(dim=(-2, -1)), images.flatten(-2).amax(dim=-1)
    images = measure_shapes(images, peak)
    sides = (torch.arange(n, dtype=images.dtype, device=images.device) - (n - 1) / 2 for n in images.shape[-2:])
    down, right = sides  # [H], [W]
    mass = images.sum(dim=(-2, -1))
    seen = mass > torch.finfo(images.dtype).tiny
    total = torch.where(seen, mass, 1)[..., None]
    rows, columns = images.sum(dim=-1) / total, images.sum(dim=-2) / total  # [..., H], [..., W]
    x, y = columns @ right, rows @ down
    dx, dy = right - x[..., None], down - y[..., None]
    var_x, var_y = (columns * dx.square()).sum(dim=-1), (rows * dy.square()).sum(dim=-1)
    cov = ((images @ right / total - rows * x[..., None]) * dy).sum(dim=-1)
    leans = var_y > 1e-6  # a single row of pixels leans nowhere
    per_row = torch.where(leans, cov / torch.where(leans, var_y, 1), 0)
    extents = [(12 * variance.clamp_min(0) + 1).sqrt() for variance in (var_x - per_row * cov, var_y)]
    edges = perimeter(images)
    thickness = 2 * mass / torch.where(edges > 0, edges, 1)
    return Shape(ink, peak, *(torch.where(seen, value, 0) for value in (x, y, *extents, -per_row, thickness)))


def measure_shapes(images: Tensor, peak: Tensor) -> Tensor:
    """The shapes without haze: 1 inside, 0 outside, and a soft edge around half of the peak."""
    low, high = EDGE
    bright = torch.where(peak > 0, peak, 1)[..., None, None]
    return ((images / bright - low) / (high - low)).clamp(0, 1)


def perimeter(images: Tensor) -> Tensor:
    r"""The total variation ∫|∇p| ``[..., H, W]`` → ``[...]``, with black around the picture.

    Gradients are taken in the middle of every 2×2 pixels, which makes the length of an edge come out right both along
    the grid and at 45°.
    """
    around = F.pad(images, (1, 1, 1, 1))
    right, down = around.diff(dim=-1), around.diff(dim=-2)
    across = (right[..., 1:, :] + right[..., :-1, :]) / 2
    along = (down[..., 1:] + down[..., :-1]) / 2
    return (across.square() + along.square()).sqrt().sum(dim=(-2, -1))
