"""Small pictures: digits side by side at their own resolution, in grey, in colour, or two over each other."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote

import torch
from torch import Tensor

from torchcaps.extras import comes_with_an_extra

with comes_with_an_extra():
    from PIL import Image

ORANGE, BLUE = (1.0, 0.62, 0.0), (0.10, 0.55, 1.0)
"""Two colours that all common kinds of colour blindness tell apart; together they are nearly white."""

_READABLE = " !'()*+,-./;=?@_~"  # in an address within an attribute
LEVELS = 63  # steps of brightness: not to be told from 255 by eye, and the files are a third smaller


class Picture(NamedTuple):
    """A PNG or SVG with what a page needs to show it.

    Attributes:
        name: of its file, without the ending.
        content: of the file.
        width: in its own pixels.
        height: in its own pixels.
        alt: what it shows, in words.
        kind: as the page names it.
    """

    name: str
    content: bytes
    width: int
    height: int
    alt: str
    kind: Literal["png", "svg+xml"] = "png"

    @property
    def uri(self) -> str:
        """The whole picture as an address, so that a page needs no other file."""
        if self.kind == "svg+xml":  # a third smaller than in base64
            return f"data:image/svg+xml,{quote(self.content, safe=_READABLE)}"
        return f"data:image/{self.kind};base64,{base64.b64encode(self.content).decode('ascii')}"


def show_channels(images: Tensor) -> Tensor:
    """Any image as grey or red, green, blue: what has neither 1 nor 3 channels is shown by its first channel.

    Shapes:
        ``[..., C, H, W]`` → ``[..., 1 or 3, H, W]``.
    """
    return images if images.shape[-3] in (1, 3) else images[..., :1, :, :]


def mix_two_colours(first: Tensor, second: Tensor, under: Tensor | None = None) -> Tensor:
    """Two images over each other, the first in orange, the second in blue, dimly over a third.

    Shapes:
        each ``[..., C, H, W]`` in 0 … 1 → ``[..., 3, H, W]``.
    """
    grey = [image.mean(dim=-3, keepdim=True) for image in (first, second)]
    colours = [torch.tensor(colour).view(3, 1, 1) for colour in (ORANGE, BLUE)]
    mixed = grey[0] * colours[0] + grey[1] * colours[1]
    if under is not None:
        mixed = mixed + 0.22 * under.mean(dim=-3, keepdim=True)
    return mixed.clamp(0, 1)


def make_sheet(name: str, rows: Sequence[Tensor], alt: str, gap: int = 2) -> Picture:
    """Images in rows, with transparent room between them; a short row ends early.

    Args:
        name: of the file, without its ending.
        rows: each ``[S, C, H, W]`` in 0 … 1, all of one height and width.
        alt: what it shows.
        gap: pixels between images.
    """
    coloured = any(show_channels(row).shape[1] == 3 for row in rows)
    height, width = rows[0].shape[-2:]
    columns = max(len(row) for row in rows)
    size = (len(rows) * (height + gap) - gap, columns * (width + gap) - gap)
    canvas = torch.zeros(*size, 4 if coloured else 2, dtype=torch.uint8)
    for at, row in enumerate(rows):
        for column, image in enumerate(show_channels(row)):
            pixels = _to_bytes(image).expand(3 if coloured else 1, -1, -1).permute(1, 2, 0)
            down, right = at * (height + gap), column * (width + gap)
            canvas[down : down + height, right : right + width, :-1] = pixels
            canvas[down : down + height, right : right + width, -1] = 255
    opaque = bool((canvas[..., -1] == 255).all())
    return Picture(name, _encode(canvas[..., :-1] if opaque else canvas), size[1], size[0], alt)


def _to_bytes(image: Tensor) -> Tensor:
    levels = (image.detach().float().nan_to_num().clamp(0, 1) * LEVELS).round()
    return (levels * 255 / LEVELS).round().to(torch.uint8)


def _encode(canvas: Tensor) -> bytes:
    """Grey, grey with transparency, colour, or colour with transparency, by the number of channels."""
    channels = canvas.shape[-1]
    pixels = canvas.contiguous().numpy()
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=6)
    return file.getvalue()


def choose_scale(images: Tensor, wanted: int = 84) -> int:
    """By which whole number small images are enlarged to be about so many pixels wide."""
    return max(1, round(wanted / max(images.shape[-2:])))


def join_pictures(name: str, pictures: Sequence[Picture], alt: str) -> Picture:
    """PNGs of one height side by side."""
    parts = [Image.open(io.BytesIO(picture.content)).convert("RGB") for picture in pictures]
    whole = Image.new("RGB", (sum(part.width for part in parts), max(part.height for part in parts)), "white")
    left = 0
    for part in parts:
        whole.paste(part, (left, 0))
        left += part.width
    file = io.BytesIO()
    whole.save(file, "PNG", compress_level=6)
    return Picture(name, file.getvalue(), whole.width, whole.height, alt)
