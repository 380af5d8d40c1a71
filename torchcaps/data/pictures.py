"""One image file, brought to a model's shape."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.data.images import DataError

if TYPE_CHECKING:
    from PIL import Image as Pillow

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")  # by content; not EPS, for which Pillow starts Ghostscript


class UnreadableError(Exception):
    """The reason why one file is not readable as an image, without its name."""


def read_image(path: str | os.PathLike[str], shape: tuple[int, int, int]) -> Tensor:
    """One image file, made to fit a shape by :func:`fit_image`.

    Args:
        path: the file.
        shape: channels (1 or 3), height, width.

    Returns:
        The pixels.

    Shapes:
        → uint8 ``[C, H, W]``.

    Raises:
        DataError: the file is absent, empty, cut short, too large or not an image.
    """
    require_pillow()
    try:
        with opened(Path(path)) as image:
            return fit_image(image, shape)
    except UnreadableError as reason:
        raise DataError(f"{path} cannot be read as an image: {reason}. Give a PNG or JPEG file.") from reason


def fit_image(image: Pillow.Image, shape: tuple[int, int, int]) -> Tensor:
    """An image as pixels of a given shape: upright, grey or RGB, as large as fits in the middle, the rest black.

    The rotation in the EXIF data is applied, transparent parts are laid over black, 16 bits are scaled to 8.

    Args:
        image: any Pillow image.
        shape: channels (1 or 3), height, width.

    Returns:
        The pixels.

    Shapes:
        → uint8 ``[C, H, W]``.
    """
    from PIL import Image

    channels, height, width = shape
    if channels not in (1, 3):
        raise DataError(f"an image file gives 1 (grey) or 3 (RGB) channels, but {channels} are asked for.")
    fitted = _opaque(image).convert("L" if channels == 1 else "RGB")
    scale = min(width / fitted.width, height / fitted.height)
    size = max(1, round(fitted.width * scale)), max(1, round(fitted.height * scale))
    if size != fitted.size:
        fitted = fitted.resize(size, Image.Resampling.BILINEAR)  # Pillow averages over what it shrinks: no aliasing
    canvas = Image.new(fitted.mode, (width, height))
    canvas.paste(fitted, ((width - size[0]) // 2, (height - size[1]) // 2))
    pixels = torch.frombuffer(bytearray(canvas.tobytes()), dtype=torch.uint8)
    return pixels.reshape(height, width, channels).permute(2, 0, 1).contiguous()


def upright(image: Pillow.Image) -> Pillow.Image:
    """The image turned as its EXIF data says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _opaque(image: Pillow.Image) -> Pillow.Image:
    """The image upright, with 8 bits per channel, transparency laid over black."""
    import numpy as np
    from PIL import Image

    image = upright(image)
    if image.mode.startswith("I"):  # 16 bits; Pillow's own conversion would cut everything above 255
        levels = np.asarray(image.convert("I")).clip(0, 65535)
        eight = ((levels + 128) // 257).astype(np.uint8)
        eight[levels == image.info.get("transparency", -1)] = 0  # a PNG may declare one grey level to be transparent
        return Image.fromarray(eight)
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
def opened(
    source: Path | BytesIO, formats: tuple[str, ...] = FORMATS, most_pixels: int | None = None
) -> Iterator[Pillow.Image]:
    """The open image; whatever goes wrong, also inside the ``with``, becomes an :class:`UnreadableError`.

    Args:
        source: a file, or its content.
        formats: that are read; others are not even looked at.
        most_pixels: more are refused before they are decoded; not given: as Pillow has it.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if (source.getbuffer().nbytes if isinstance(source, BytesIO) else source.stat().st_size) == 0:
            raise UnreadableError("the file is empty")
        with Image.open(source, formats=formats) as image:
            limit = most_pixels or Image.MAX_IMAGE_PIXELS
            if limit and image.width * image.height > limit:  # up to twice the limit Pillow itself only warns
                raise Image.DecompressionBombError
            yield image
    except (UnreadableError, DataError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableError("it has too many pixels (a decompression bomb?)") from error
    except UnidentifiedImageError as error:
        raise UnreadableError("it is not an image, or of an unknown format") from error
    except Exception as error:  # damaged files make Pillow's decoders raise many kinds
        text = error.strerror if isinstance(error, OSError) else None
        raise UnreadableError(text or str(error) or type(error).__name__) from error
