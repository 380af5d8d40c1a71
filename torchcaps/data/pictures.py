"""One image file, brought to a model's shape."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from torchcaps.data.images import check_brightness
from torchcaps.data.picture_files import (
    MOST_BYTES,
    Pieces,
    UnreadableError,
    look_inside,
    make_exif,
    read_turn,
    require_modest,
)
from torchcaps.errors import DataError, FileError
from torchcaps.io import make_printable, read_bytes

if TYPE_CHECKING:
    from PIL import Image as Pillow

__all__ = [
    "FITS",
    "FORMATS",
    "FORMAT_NAMES",
    "Fit",
    "UnreadableError",
    "fit_image",
    "has_several_frames",
    "measure_upright",
    "open_image",
    "read_image",
    "require_pillow",
    "shrink",
    "turn_upright",
]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""By content. Not EPS, for which Pillow starts Ghostscript. TIFF as far as :mod:`torchcaps.data.tiff_files` has it."""
FORMAT_NAMES = "PNG, JPEG, WebP, BMP, TIFF or GIF"
Fit = Literal["letterbox", "crop", "stretch"]
"""How an image is brought to another shape: all of it with black bars, its middle, or all of it whatever its shape."""
FITS: tuple[Fit, ...] = get_args(Fit)
LARGEST_SIDE = 1024
"""Pixels: larger images are shrunk before anything else is done with them, so that it takes little memory."""


def read_image(path: str | os.PathLike[str], shape: tuple[int, int, int], fit: Fit = "letterbox") -> Tensor:
    """One image file, made to fit a shape by :func:`fit_image`.

    Args:
        path: the file.
        shape: channels (1 or 3), height, width.
        fit: how it is brought to the shape.

    Returns:
        The pixels.

    Shapes:
        → uint8 ``[C, H, W]``.

    Raises:
        DataError: the file is absent, empty, cut short, too large or not an image.
    """
    require_pillow()
    try:
        with open_image(Path(path)) as image:
            pixels = fit_image(image, shape, fit)
    except UnreadableError as reason:
        raise DataError(f"{path} cannot be read as an image: {reason}. Give a {FORMAT_NAMES} file.") from reason
    check_brightness(pixels, str(path))
    return pixels


def fit_image(image: Pillow.Image, shape: tuple[int, int, int], fit: Fit = "letterbox") -> Tensor:
    """An image as pixels of a given shape: upright, grey or RGB, brought to its height and width.

    The rotation in the EXIF data is applied, transparent parts are laid over black, 16 bits are scaled to 8.

    Args:
        image: any Pillow image.
        shape: channels (1 or 3), height, width.
        fit: "letterbox" has all of the image, as large as fits in the middle, the rest black; "crop" fills the shape,
            and what is over on both sides is cut off; "stretch" gives the image the shape, whatever its own.

    Returns:
        The pixels.

    Shapes:
        → uint8 ``[C, H, W]``.
    """
    from PIL import Image

    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"an image file gives 1 (grey) or 3 (RGB) channels, but {channels} are asked for.")
    image = shrink(image, max(LARGEST_SIDE, 4 * height, 4 * width))
    fitted = _make_opaque(image).convert("L" if channels == 1 else "RGB")
    box, size = _place_image(fitted.size, (width, height), fit)
    if size != fitted.size or box != (0, 0, *fitted.size):
        # Pillow averages over what it shrinks: no aliasing.
        fitted = fitted.resize(size, Image.Resampling.BILINEAR, box)
    canvas = Image.new(fitted.mode, (width, height))
    canvas.paste(fitted, ((width - size[0]) // 2, (height - size[1]) // 2))
    pixels = torch.frombuffer(bytearray(canvas.tobytes()), dtype=torch.uint8)
    return pixels.reshape(height, width, channels).permute(2, 0, 1).contiguous()


def _place_image(
    size: tuple[int, int], wanted: tuple[int, int], fit: Fit
) -> tuple[tuple[float, float, float, float], tuple[int, int]]:
    """Which part of an image is taken (left, upper, right, lower), and how wide and high it becomes."""
    (width, height), whole = size, (0, 0, *size)
    if fit == "stretch":
        return whole, wanted
    if fit == "crop":
        scale = max(wanted[0] / width, wanted[1] / height)
        across, down = min(width, wanted[0] / scale), min(height, wanted[1] / scale)
        left, upper = (width - across) / 2, (height - down) / 2
        return (left, upper, left + across, upper + down), wanted
    scale = min(wanted[0] / width, wanted[1] / height)
    return whole, (max(1, round(width * scale)), max(1, round(height * scale)))


def measure_upright(image: Pillow.Image) -> tuple[int, int]:
    """Width and height of an image that is open when it is turned upright; nothing is decoded."""
    turned = (read_turn(image.info.get("exif", b"")) or 1) >= 5
    return (image.height, image.width) if turned else image.size


def has_several_frames(image: Pillow.Image) -> bool:
    """Whether an image that is open is an animation, or has several pages; the first of them is what is read."""
    return bool(image.info.get("several")) or bool(getattr(image, "is_animated", False))


def shrink(image: Pillow.Image, side: int = LARGEST_SIDE) -> Pillow.Image:
    """The image upright, with at most so many pixels in each direction; if it had more, grey, RGB or RGBA with 8 bits.

    It is shrunk tile by tile: nothing else of the image's own size is ever made.
    """
    from PIL import Image

    if image.format == "TIFF":
        image.load()  # which turns it, too: its size is another only then
    image.draft(None, (side, side))  # a JPEG file can be decoded at a half, a quarter or an eighth
    if max(image.size) <= side:
        return turn_upright(image)
    factor = max(image.size) // side  # so many pixels in each direction are averaged
    step = max(1, LARGEST_SIDE // factor) * factor
    shrunk = None
    for top in range(0, image.height, step):
        for left in range(0, image.width, step):
            box = left, top, min(left + step, image.width), min(top + step, image.height)
            tile = _reduce_to_eight_bits(image.crop(box)).reduce(factor)
            if shrunk is None:
                shrunk = Image.new(tile.mode, (-(-image.width // factor), -(-image.height // factor)))
            shrunk.paste(tile, (left // factor, top // factor))
    assert shrunk is not None
    shrunk.thumbnail((side, side))
    shrunk.info = {key: value for key, value in image.info.items() if key == "exif"}
    return turn_upright(shrunk)


def turn_upright(image: Pillow.Image) -> Pillow.Image:
    """The image turned as its EXIF data says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _reduce_to_eight_bits(image: Pillow.Image) -> Pillow.Image:
    """Grey, RGB or RGBA, of which means can be taken."""
    import numpy as np
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits; Pillow's own conversion would cut everything above 255
        levels = np.asarray(image.convert("I")).clip(0, 65535)
        eight = ((levels + 128) // 257).astype(np.uint8)
        eight[levels == image.info.get("transparency", -1)] = 0  # a PNG may declare one grey level to be transparent
        return Image.fromarray(eight)
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _make_opaque(image: Pillow.Image) -> Pillow.Image:
    """The image upright, with 8 bits per channel, transparency laid over black."""
    from PIL import Image

    image = turn_upright(image)
    if image.mode.startswith("I"):
        return _reduce_to_eight_bits(image)
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", coloured.size, (0, 0, 0, 255)), coloured).convert("RGB")
    return image


def require_pillow() -> None:
    """Refuse to go on without Pillow and numpy, which reading images needs."""
    try:
        import numpy  # noqa: F401
        import PIL  # noqa: F401
    except ImportError as error:
        raise DataError("reading image files needs Pillow and NumPy: pip install pillow numpy") from error


@contextmanager
def open_image(
    source: Path | BytesIO, formats: tuple[str, ...] = FORMATS, most_pixels: int | None = None
) -> Iterator[Pillow.Image]:
    """Open an image; whatever goes wrong, also inside the ``with``, becomes an :class:`UnreadableError`.

    Args:
        source: a file, or its content.
        formats: that are read; others are not even looked at.
        most_pixels: more are refused before they are decoded; not given: as Pillow has it.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        content = source.getvalue() if isinstance(source, BytesIO) else read_bytes(source, MOST_BYTES // 2)
        if not content:
            raise UnreadableError("the file is empty")
        contents = look_inside(content)
        with Image.open(Pieces(contents.content), formats=formats) as image:
            require_modest(image, contents, most_pixels or Image.MAX_IMAGE_PIXELS)  # Pillow only warns up to twice that
            _forget_remarks(image, contents.turn)
            image.info["several"] = contents.several
            yield image
    except (UnreadableError, DataError):
        raise
    except FileError as error:
        raise UnreadableError(str(error).replace(str(source), "it", 1).rstrip(".")) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableError("it has too many pixels (a decompression bomb?)") from error
    except UnidentifiedImageError as error:
        raise UnreadableError("it is not an image, or of an unknown format") from error
    except Exception as error:  # damaged files make Pillow's decoders raise many kinds
        text = error.strerror if isinstance(error, OSError) else None
        said = " ".join((text or str(error) or type(error).__name__).split())
        raise UnreadableError(make_printable(said)[:200].rstrip(".")) from error


def _forget_remarks(image: Pillow.Image, turn: int | None) -> None:
    """Keep of an image's remarks only how it is to be turned: reading all of them can take minutes."""
    remarks = [image.info.pop(key, None) for key in ("exif", "xmp")]  # of WebP; of others nothing is left by now
    for remark in remarks:
        if turn is None and isinstance(remark, bytes):
            turn = read_turn(remark)
    if turn is not None:
        image.info["exif"] = make_exif(turn)
