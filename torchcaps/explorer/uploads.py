"""Images that someone uploads: decoded with suspicion, brought to a model's shape."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from torchcaps.data.pictures import Fit, UnreadableError, fit_image, open_image, shrink
from torchcaps.explorer.handwriting import ground_is_light, place_as_digit

if TYPE_CHECKING:
    from PIL import Image as Pillow

Invert = Literal["auto", "yes", "no"]

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MOST_PIXELS = 16_000_000


def read_upload(
    content: bytes, shape: tuple[int, int, int], invert: Invert, as_digit: bool, fit: Fit = "letterbox"
) -> Tensor:
    """The pixels of an image file that fit a model.

    Args:
        content: of the file.
        shape: channels, height and width that are wanted.
        invert: make dark things on light ground light ones on dark; ``auto`` looks at the border. Grey images only.
        as_digit: cut out what is drawn and bring it to the size and place of MNIST's digits. Grey images only.
        fit: how it is brought to the shape otherwise, as in training.

    Shapes:
        → uint8 ``[C, H, W]``.

    Raises:
        UnreadableError: it is no image, or too large a one; the message is a reason without a capital and full stop.
    """
    with open_image(io.BytesIO(content), FORMATS, MOST_PIXELS) as image:
        small = shrink(image)
        if shape[0] != 1:
            return fit_image(small, shape, fit)
        light = _light_on_dark(small, invert)
        if not as_digit:
            return fit_image(light, shape, fit)
        return place_as_digit(np.asarray(light), shape[1:])


def _light_on_dark(image: Pillow.Image, invert: Invert) -> Pillow.Image:
    """A grey image, 8 bits, of one that is upright. Transparent parts become ground: light ground for dark things."""
    from PIL import Image

    if image.has_transparency_data and not image.mode.startswith("I"):
        coloured = image.convert("RGBA")
        alpha = np.asarray(coloured.getchannel("A"), dtype=np.float32)
        grey = np.asarray(coloured.convert("RGB").convert("L"), dtype=np.float32)
        drawn_dark = bool(alpha.sum() > 0 and (grey * alpha).sum() < 127.5 * alpha.sum())
        ground = (255, 255, 255, 255) if drawn_dark else (0, 0, 0, 255)
        image = Image.alpha_composite(Image.new("RGBA", coloured.size, ground), coloured)
    pixels = fit_image(image, (1, image.height, image.width))[0].numpy()
    if invert == "yes" or (invert == "auto" and ground_is_light(pixels)):
        pixels = 255 - pixels
    return Image.fromarray(pixels)


__all__ = ["FORMATS", "MOST_PIXELS", "Invert", "UnreadableError", "place_as_digit", "read_upload"]
