"""Image files, looked at with suspicion before anything decodes them.

A few bytes can ask for gigabytes, or for minutes: by many pixels, by many scans of the same pixels, by long lists of
what is no pixel at all. So all that is not needed for the pixels is taken out of a file first (only how the picture is
to be turned is kept), the rest is counted, and what it will take is known before it is taken.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from torchcaps.data.tiff_files import TiffError, is_tiff, look_inside_tiff

if TYPE_CHECKING:
    from PIL import Image as Pillow

MOST_BYTES = 270_000_000
"""Memory that a file and its pixels may take while they are decoded."""
MOST_ALONG = 1_000_000
"""Pixels in a row or in a column; Pillow makes a list of all rows, and holds all threads meanwhile."""
MOST_PARTS = 50_000
"""Chunks of a PNG file: of 8 kB each in large files of libpng. Segments of a JPEG file: some dozen."""
MOST_TABLES = 100
"""Segments of a JPEG file before its pixels, without remarks: some dozen."""
MOST_TAGS = 1_000
"""Of EXIF data, among which the one that turns the picture is looked for."""
MOST_SCANS, MOST_SCANNED = 100, 1_600_000_000
"""Times that a JPEG file goes over its pixels, 10 in usual ones, and pixels that it goes over in all of them."""
MOST_READS = 1_000_000
"""Pieces in which Pillow may read a file: what it does in loops of Python costs about half a microsecond for each."""

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_CHUNKS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}  # of a PNG file, that its pixels depend on
_MARKER = re.compile(rb"\xff+[^\xff\x00\x01\xd0-\xd7]")  # of a JPEG file: what begins a segment
_START, _SCAN, _END, _JFIF, _EXIF, _ADOBE, _REMARK = 0xD8, 0xDA, 0xD9, 0xE0, 0xE1, 0xEE, 0xFE
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_HUFFMAN = {0xC0, 0xC1, 0xC2}  # of the frames; a few bits of arithmetic coding, which nobody uses, can say a lot
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')
_LOSSLESS = re.compile(rb"(?:VP8L|ALPH)(....)", re.DOTALL)  # chunks of a WebP file, and their length
_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2}  # of a pixel, by Pillow's modes; all others take 4


class UnreadableError(Exception):
    """The reason why one file is not readable as an image, without its name."""


class Inside(NamedTuple):
    """What matters of a file.

    Attributes:
        content: without remarks.
        turn: how the picture is to be turned, 1 … 8.
        scans: of a JPEG file.
        several: it is known to have more pictures than the first.
        buffer: bytes that decoding takes beside the pixels.
    """

    content: bytes
    turn: int | None = None
    scans: int = 1
    several: bool = False
    buffer: int = 0


def look_inside(content: bytes) -> Inside:
    """What matters of an image file.

    Raises:
        UnreadableError: it has more parts than any picture needs.
    """
    if content.startswith(_PNG):
        return _look_inside_png(content)
    if content.startswith(_JPEG):
        return _look_inside_jpeg(content)
    if is_tiff(content):
        try:
            tiff = look_inside_tiff(content)
        except TiffError as reason:
            raise UnreadableError(str(reason)) from None
        return Inside(tiff.content, tiff.turn, several=tiff.several, buffer=tiff.buffer)
    return Inside(content)


def _look_inside_png(content: bytes) -> Inside:
    kept, turn, place, several = [_PNG], None, len(_PNG), False
    for _ in range(MOST_PARTS):
        if place >= len(content):
            break
        kind, end = content[place + 4 : place + 8], place + 12 + int.from_bytes(content[place : place + 4], "big")
        if not kind.isalpha():  # damaged: Pillow will say so
            end = len(content)
        if kind in _CHUNKS or not kind.isalpha():
            kept.append(content[place:end])
        elif kind in (b"eXIf", b"iTXt") and turn is None:
            turn = read_turn(content[place + 8 : end - 4])
        elif kind == b"acTL":  # of an animation: how many pictures it has
            several = int.from_bytes(content[place + 8 : place + 12], "big") > 1
        place = len(content) if kind == b"IEND" else end
    else:
        raise UnreadableError(f"it has more than {MOST_PARTS:,} parts")
    return Inside(b"".join(kept), turn, several=several)


def _look_inside_jpeg(content: bytes) -> Inside:
    kept, turn, scans = [content[:2]], None, 1
    for number, (kind, start, end) in enumerate(_find_segments(content)):
        if kind in (_SCAN, _END):
            kept.append(content[start:])
            if content.count(b"\xff\xda", end):  # perhaps in what is no scan, such as a film behind a photograph
                scans = _count(content)
            break
        if kind in _FRAMES - _HUFFMAN:
            raise UnreadableError("its pixels are not coded as in other JPEG files")
        if kind == _EXIF and turn is None:
            turn = read_turn(content[start + 4 : end])
        if kind in (_JFIF, _ADOBE) or not (_JFIF <= kind < 0xF0 or kind == _REMARK):  # these two tell of colours
            kept.append(content[start:end])
        if number > MOST_PARTS or len(kept) > MOST_TABLES:
            raise UnreadableError("it has more segments than any picture needs")
    return Inside(b"".join(kept), turn, scans)


def _count(content: bytes) -> int:
    """How often a JPEG file goes over its pixels."""
    scans = 0
    for number, (kind, _, _) in enumerate(_find_segments(content)):
        scans += kind == _SCAN
        if scans > MOST_SCANS or number > MOST_PARTS:
            raise UnreadableError(f"it goes over its pixels more than {MOST_SCANS} times")
    return scans


def _find_segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, begin and end of each segment of a JPEG file, up to the end of the picture, as libjpeg sees them."""
    place = 2
    while (marker := _MARKER.search(content, place)) is not None:
        kind, place = content[marker.end() - 1], marker.end()
        length = 0 if kind in (_START, _END) else int.from_bytes(content[place : place + 2], "big")
        place += length
        yield kind, marker.end() - 2, place
        if kind == _END or (length < 2 and kind != _START):
            return


def read_turn(remarks: bytes) -> int | None:
    """How EXIF or XMP data says that a picture is to be turned, 1 … 8; None if it does not."""
    exif = remarks.removeprefix(b"Exif\0\0")
    order = {b"II\x2a\0": "<", b"MM\0\x2a": ">"}.get(exif[:4])
    if order is None:
        match = _XMP.search(remarks)
        return int(match[1]) if match else None
    try:
        (place,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, place)
        for start in range(place + 2, place + 2 + 12 * min(count, MOST_TAGS), 12):
            tag, kind, short = struct.unpack_from(f"{order}HH4xH", exif, start)
            if tag == 0x0112:
                value = short if kind == 3 else struct.unpack_from(f"{order}I", exif, start + 8)[0]
                return value if 1 <= value <= 8 else None
    except struct.error:  # cut short
        pass
    return None


def make_exif(turn: int) -> bytes:
    """EXIF data that says nothing but how a picture is to be turned."""
    return b"Exif\0\0II\x2a\0" + struct.pack("<IHHHIII", 8, 1, 0x0112, 3, 1, turn, 0)


class Pieces(BytesIO):
    """A file's content, which is read in so many pieces and no more."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._left = MOST_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """See ``io``."""
        self._left -= 1
        if self._left < 0:
            raise UnreadableError(f"it has more than {MOST_READS:,} parts")
        return super().read(size)


def require_modest(image: Pillow.Image, contents: Inside, most_pixels: int | None) -> None:
    """Raise if an image that is open, but not decoded, would take too long or too much memory."""
    pixels = image.width * image.height
    if (most_pixels and pixels > most_pixels) or max(image.size) > MOST_ALONG:
        raise UnreadableError("it has too many pixels (a decompression bomb?)")
    if contents.scans > 1 and contents.scans * pixels > MOST_SCANNED:
        raise UnreadableError(f"it goes over {pixels:,} pixels {contents.scans} times")
    size = _BYTES.get(image.mode, 4)
    if contents.scans > 1:
        size += 2 * len(image.getbands())  # all coefficients are kept until the last scan
    if image.format == "BMP" and image.info.get("compression") in (1, 2):
        size = 64  # decoded by a loop of Python, pixel by pixel: it is the time that counts
    if image.format == "TIFF" and contents.turn not in (None, 1):
        size *= 2  # Pillow turns it as it is, before anything is shrunk
    if image.format == "WEBP":
        size = 16  # the decoder has a picture, two of the animation, and gives a copy
    # Pillow has a pointer to each row.
    needed = (image.width * size + 12) * image.height + 2 * len(contents.content) + contents.buffer
    if image.format == "WEBP":
        needed += _count_table_bytes(image, contents.content)
    if needed > MOST_BYTES:
        raise UnreadableError(
            f"it has too many pixels, {image.width}×{image.height}: more than {MOST_BYTES:,} bytes may be needed"
        )


def _count_table_bytes(image: Pillow.Image, content: bytes) -> int:
    """Bytes that tables of codes may take: without loss every 4×4 pixels may have their own, of 20 bits or more."""
    sizes = [int.from_bytes(match[1], "little") for match in islice(_LOSSLESS.finditer(content), MOST_TAGS)]
    packed = len(content) if len(sizes) == MOST_TAGS else min(max(sizes, default=0), len(content))
    tables = min(packed * 8 // 20, -(-image.width // 4) * -(-image.height // 4), 65_536)
    return 5_700 * tables + 115 * packed  # of the shortest codes, and what longer ones add
