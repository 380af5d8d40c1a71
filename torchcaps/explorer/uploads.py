"""Images that someone uploads: decoded with suspicion, brought to a model's shape."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.pictures import UnreadableError, fit_image, opened, upright

if TYPE_CHECKING:
    from PIL import Image as Pillow

Invert = Literal["auto", "yes", "no"]

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MOST_PIXELS = 16_000_000
LARGEST_SIDE = 1024
DIGIT_SIZE, DIGIT_BOX = 20, 28
"""LeCun et al. 1998: a digit of MNIST fits into 20×20 pixels and has its centre of mass in the middle of 28×28."""

_INK = 0.2  # of the brightest pixel: what is darker is paper or noise


def read_upload(content: bytes, shape: tuple[int, int, int], invert: Invert, as_digit: bool) -> Tensor:
    """The pixels of an image file that fit a model.

    Args:
        content: of the file.
        shape: channels, height and width that are wanted.
        invert: make dark things on light ground light ones on dark; ``auto`` looks at the border. Grey images only.
        as_digit: cut out what is drawn and bring it to the size and place of MNIST's digits. Grey images only.

    Shapes:
        → uint8 ``[C, H, W]``.

    Raises:
        UnreadableError: it is no image, or too large a one; the message is a reason without a capital and full stop.
    """
    with opened(io.BytesIO(content), FORMATS, MOST_PIXELS) as image:
        small = _smaller(image)
        if shape[0] != 1:
            return fit_image(small, shape)
        light = _light_on_dark(small, invert)
        if not as_digit:
            return fit_image(light, shape)
        return placed_as_digit(np.asarray(light), shape[1:])


def _smaller(image: Pillow.Image) -> Pillow.Image:
    """At most 1,024 pixels in each direction, so that what follows takes little memory; 16 bits stay as they are."""
    if max(image.size) <= LARGEST_SIDE or image.mode.startswith("I"):
        return image
    image.draft(None, (LARGEST_SIDE, LARGEST_SIDE))  # a JPEG file can be decoded at a half, a quarter or an eighth
    if image.mode in ("1", "P"):  # of which no mean can be taken
        image = image.convert("L" if image.mode == "1" else "RGBA" if image.has_transparency_data else "RGB")
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return image


def _light_on_dark(image: Pillow.Image, invert: Invert) -> Pillow.Image:
    """A grey image, 8 bits. Transparent parts become ground: light ground for dark things."""
    from PIL import Image

    if image.has_transparency_data and not image.mode.startswith("I"):
        coloured = upright(image).convert("RGBA")
        alpha = np.asarray(coloured.getchannel("A"), dtype=np.float32)
        grey = np.asarray(coloured.convert("RGB").convert("L"), dtype=np.float32)
        drawn_dark = bool(alpha.sum() > 0 and (grey * alpha).sum() < 127.5 * alpha.sum())
        ground = (255, 255, 255, 255) if drawn_dark else (0, 0, 0, 255)
        image = Image.alpha_composite(Image.new("RGBA", coloured.size, ground), coloured)
    pixels = np.asarray(_grey(image))
    if invert == "yes" or (invert == "auto" and _border(pixels).mean() > 127.5):
        pixels = 255 - pixels
    return Image.fromarray(pixels)


def _grey(image: Pillow.Image) -> Pillow.Image:
    """Upright, 8 bits, grey, at its own size."""
    from PIL import Image

    width, height = upright(image).size
    return Image.fromarray(fit_image(image, (1, height, width))[0].numpy())


def _border(pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])


def placed_as_digit(pixels: np.ndarray, size: tuple[int, int]) -> Tensor:
    """A light drawing on dark ground as a digit of MNIST: in 20×20 pixels, its centre of mass in the middle.

    Shapes:
        uint8 ``[h, w]`` → uint8 ``[1, H, W]``.
    """
    from PIL import Image

    levels = pixels.astype(np.float32)
    ground = float(np.median(_border(levels)))  # paper in a photograph is not quite black, though inverted
    levels = np.clip(levels - ground, 0, None) if ground < 128 else levels
    found = torch.zeros(1, *size, dtype=torch.uint8)
    if levels.max() - levels.min() < 1:
        return found
    levels *= 255 / levels.max()
    rows, columns = (np.flatnonzero((levels > 255 * _INK).any(axis=axis)) for axis in (1, 0))
    cut = levels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    box = min(DIGIT_BOX, *size)  # a model of smaller pictures gets a smaller digit
    scale = DIGIT_SIZE * box / DIGIT_BOX / max(cut.shape)
    height, width = (max(1, round(length * scale)) for length in cut.shape)
    small = np.asarray(Image.fromarray(cut).resize((width, height), Image.Resampling.BILINEAR))
    weights = small.sum()
    top, left = (  # all digits of MNIST have it within half a pixel of pixel 14 of 0 … 27, not of 13.5
        round(whole / 2 - float((small.sum(axis=1 - axis) * np.arange(part)).sum() / weights))
        for axis, (part, whole) in enumerate(zip(small.shape, size, strict=True))
    )
    top, left = min(max(top, 0), size[0] - height), min(max(left, 0), size[1] - width)
    found[0, top : top + height, left : left + width] = torch.from_numpy(small.clip(0, 255).astype(np.uint8))
    return found


__all__ = ["FORMATS", "MOST_PIXELS", "Invert", "UnreadableError", "placed_as_digit", "read_upload"]
