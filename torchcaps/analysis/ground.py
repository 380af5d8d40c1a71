"""What images lie on: drawings on a plain ground, or photographs; and black bars that bring pictures to a shape."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.checks import require_float
from torchcaps.errors import InputError

NEAR = 0.1
"""A pixel is of the ground if none of its channels differs from it by more; white is 1."""

LEAST_OF_BORDER, LEAST_OF_IMAGE = 0.7, 0.25
"""An image has a plain ground if so much of its border, and of all of it, is of the ground."""

MOST_IMAGES_PLAIN = 0.8
"""Images are drawings on a plain ground if so many of them have it, the same one."""


LEAST_OF_LINE = 0.75
"""Beside a bar is a line of picture, so much of which is not black."""


class Ground(NamedTuple):
    """What some images lie on.

    Attributes:
        colour: of the plain ground that most of the images share ``[C]``; None for photographs, and all else without.
        content: which pixels are image and not bars, bool ``[N, 1, H, W]``; None if no image has bars.
        plain: the share of images with a plain ground of the colour that is commonest at their borders.
    """

    colour: Tensor | None
    content: Tensor | None
    plain: float

    @property
    def barred(self) -> int:
        """How many images have bars."""
        return 0 if self.content is None else int((~self.content.all(dim=-1).all(dim=-1)).sum())


def find_ground(images: Tensor) -> Ground:
    """Tell drawings on a plain ground from photographs, and find black bars, by the pixels alone.

    The ground is what is commonest at the borders: of each channel the median over all of them. Bars are looked for
    first, since they would be taken for the border; but where the ground itself is black, nothing is a bar.

    Args:
        images: in 0 … 1.

    Shapes:
        ``[N, C, H, W]`` → :class:`Ground`.
    """
    require_float("images", images)
    if images.dim() != 4 or not len(images):
        raise InputError(f"images must have shape [at least one, channels, height, width], got {tuple(images.shape)}.")
    content = find_content(images)
    colour, plain = _measure_ground(images, content)
    shared = plain >= MOST_IMAGES_PLAIN
    if shared and float(colour.max()) <= NEAR:
        return Ground(torch.zeros_like(colour), None, plain)
    return Ground(colour if shared else None, None if bool(content.all()) else content, plain)


def find_content(images: Tensor) -> Tensor:
    """Which pixels lie between black bars.

    A picture that does not have the shape of the others is laid on the middle of black. So bars are black, on two
    opposite sides, equally wide, from end to end, and what is between them begins and ends with a line of picture. A
    drawing on black begins with a few pixels, and has black on all four sides more often than not.

    Shapes:
        ``[N, C, H, W]`` → bool ``[N, 1, H, W]``.
    """
    lit = (images > 0).any(dim=1)  # [N, H, W]
    rows, columns = _find_lines(lit), _find_lines(lit.mT)  # [N, H], [N, W]
    one_pair = ~rows.all(dim=1) ^ ~columns.all(dim=1)
    inside = rows[:, :, None] & columns[:, None, :]
    return (inside | ~one_pair[:, None, None])[:, None]


def _find_lines(lit: Tensor) -> Tensor:
    """The rows between two bars ``[N, L, W]`` → ``[N, L]``; all rows where there are no bars."""
    light = lit.any(dim=2)
    above, below = light.int().argmax(dim=1), light.flip(1).int().argmax(dim=1)
    begin, end = above, lit.shape[1] - 1 - below
    every = torch.arange(len(lit), device=lit.device)
    filled = [lit[every, line].double().mean(dim=1) >= LEAST_OF_LINE for line in (begin, end)]
    alike = (below - above).abs() <= 1  # an odd rest makes one of them a line wider
    barred = (torch.minimum(above, below) > 0) & alike & filled[0] & filled[1]
    place = torch.arange(lit.shape[1], device=lit.device)
    return (place >= begin[:, None]) & (place <= end[:, None]) | ~barred[:, None]


def _measure_ground(images: Tensor, content: Tensor) -> tuple[Tensor, float]:
    """The colour that is commonest at the borders ``[C]``, and the share of images that have it as a plain ground."""
    border = content & ~_shrink(content)  # [N, 1, H, W]
    colour = torch.stack([channel[border[:, 0]].median() for channel in images.unbind(dim=1)])
    near = ((images - colour[:, None, None]).abs() <= NEAR).all(dim=1, keepdim=True)
    of_border, of_image = (
        (near & part).flatten(1).sum(dim=1) / part.flatten(1).sum(dim=1).clamp_min(1) for part in (border, content)
    )
    plain = (of_border >= LEAST_OF_BORDER) & (of_image >= LEAST_OF_IMAGE)
    return colour, float(plain.double().mean())


def _shrink(content: Tensor) -> Tensor:
    """Without its outermost pixels."""
    outside = F.pad((~content).float(), (1, 1, 1, 1), value=1.0)
    return F.max_pool2d(outside, 3, stride=1) == 0


def lay_on_black(images: Tensor, colour: Tensor, content: Tensor | None = None) -> Tensor:
    """How far every pixel is from the ground, mean over the channels: drawings as they would be in white on black.

    Args:
        images: in 0 … 1.
        colour: of the ground.
        content: pixels that count; all others become black. It is broadcast against the images.

    Shapes:
        images ``[..., C, H, W]``, colour ``[C]``, content ``[..., 1, H, W]`` → ``[..., H, W]``.
    """
    far = (images - colour.to(images)[:, None, None]).abs().mean(dim=-3)
    return far if content is None else far * content.squeeze(-3)
