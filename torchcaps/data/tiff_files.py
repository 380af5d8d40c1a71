"""TIFF files, read as far as pictures need: the first one of a file, of a few kinds, all sizes known before decoding.

A TIFF file is a list of tags that may say anything: tiles of any size in any packing, the same bytes as the content of
a million strips, chains of further pictures. So the tags that pixels depend on are read here, each within its limits,
and a new list of nothing but these is what Pillow and libtiff see.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MOST_TAGS = 1_000
MOST_UNITS, MOST_PLAIN_UNITS = 50_000, 10_000
"""Strips or tiles, and those that are not packed, over which Pillow has a loop of Python."""
MOST_SIDE = 1_000_000
MOST_DECODED = 270_000_000
"""Bytes of all strips or tiles together."""
MOST_SAMPLES = 6

WIDTH, HEIGHT, BITS, PACKING, COLOURS, FILL_ORDER = 256, 257, 258, 259, 262, 266
STRIPS, TURN, SAMPLES, ROWS, STRIP_SIZES, PLANES = 273, 274, 277, 278, 279, 284
PREDICTOR, PALETTE, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_SIZES, EXTRA, KINDS = 317, 320, 322, 323, 324, 325, 338, 339

_LISTS = {STRIPS: MOST_UNITS, STRIP_SIZES: MOST_UNITS, TILES: MOST_UNITS, TILE_SIZES: MOST_UNITS, PALETTE: 768}
_SHORT_LISTS = {BITS: MOST_SAMPLES, EXTRA: MOST_SAMPLES, KINDS: MOST_SAMPLES}
_SINGLE = (
    WIDTH, HEIGHT, PACKING, COLOURS, FILL_ORDER, TURN, SAMPLES, ROWS, PLANES, PREDICTOR, TILE_WIDTH, TILE_HEIGHT,
)  # fmt: skip
_MOST = {**_LISTS, **_SHORT_LISTS, **dict.fromkeys(_SINGLE, 1)}
_LETTERS = {1: "B", 3: "H", 4: "I"}  # of struct, by the type of a tag: whole numbers of 1, 2 and 4 bytes
_PLAIN = 1
_PACKINGS = {_PLAIN: "none", 5: "LZW", 8: "deflate", 32946: "deflate", 32773: "PackBits"}
_COLOURS = {0: "grey", 1: "grey", 2: "RGB", 3: "palette", 5: "CMYK"}
_WHOLE_NUMBERS = 1


class TiffError(Exception):
    """Why a TIFF file is not read, without its name."""


class TiffContent(NamedTuple):
    """What matters of a TIFF file.

    Attributes:
        content: a file with the tags that pixels depend on, and no others.
        turn: how the picture is to be turned, 1 … 8.
        several: it has more pictures.
        buffer: bytes that decoding takes beside the pixels.
    """

    content: bytes
    turn: int | None
    several: bool
    buffer: int


def is_tiff(content: bytes) -> bool:
    """Whether a file begins as one, BigTIFF included."""
    return content[:4] in (b"II\x2a\0", b"MM\0\x2a", b"II\x2b\0", b"MM\0\x2b")


def look_inside_tiff(content: bytes) -> TiffContent:
    """The first picture of a file.

    Raises:
        TiffError: it is damaged, of a kind that is not read, or asks for more than its pixels need.
    """
    if content[2:4] in (b"\x2b\0", b"\0\x2b"):
        raise TiffError("it is a BigTIFF file, which is not read; save it as plain TIFF or PNG")
    order = "<" if content.startswith(b"II") else ">"
    try:
        tags, several = _read_tags(content, order)
    except struct.error:
        raise TiffError("it is cut short") from None
    unit = _check_pixels(tags)
    tiled = TILES in tags
    _check_units(tags, unit, len(content))
    turn = tags.pop(TURN, [1])[0]
    biggest = max(tags[TILE_SIZES if tiled else STRIP_SIZES])
    return TiffContent(_write(content, order, tags), turn if 1 <= turn <= 8 else None, several, unit.size + biggest)


class _Unit(NamedTuple):
    """A strip or a tile."""

    size: int  # bytes when it is decoded
    number: int


def _read_tags(content: bytes, order: str) -> tuple[dict[int, list[int]], bool]:
    """The values of the tags that matter, and whether more pictures follow."""
    (start,) = struct.unpack_from(f"{order}I", content, 4)
    (count,) = struct.unpack_from(f"{order}H", content, start)
    if count > MOST_TAGS:
        raise TiffError(f"it has {count:,} tags, more than any picture needs")
    tags: dict[int, list[int]] = {}
    for place in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind, length = struct.unpack_from(f"{order}HHI", content, place)
        if tag not in _MOST or tag in tags:
            continue
        if kind not in _LETTERS or not 1 <= length <= _MOST[tag]:
            raise TiffError(f"its tag {tag} has {length:,} values of type {kind}, which no picture needs")
        layout = f"{order}{length}{_LETTERS[kind]}"
        (far,) = struct.unpack_from(f"{order}I", content, place + 8)
        tags[tag] = list(struct.unpack_from(layout, content, place + 8 if struct.calcsize(layout) <= 4 else far))
    (after,) = struct.unpack_from(f"{order}I", content.ljust(start + 6 + 12 * count, b"\0"), start + 2 + 12 * count)
    return tags, after != 0


def _check_pixels(tags: dict[int, list[int]]) -> _Unit:
    """Refuse kinds of pixels that are not read, and give the size of a strip or tile."""
    for tag, name in ((WIDTH, "width"), (HEIGHT, "height")):
        if not 1 <= tags.get(tag, [0])[0] <= MOST_SIDE:
            raise TiffError(f"it has no {name} that a picture can have")
    samples, packing = tags.setdefault(SAMPLES, [1])[0], tags.setdefault(PACKING, [_PLAIN])[0]
    bits = tags.setdefault(BITS, [1])
    if not 1 <= samples <= MOST_SAMPLES or len(bits) not in (1, samples) or len(set(bits)) > 1:
        raise TiffError(f"it has {samples:,} numbers per pixel of {bits[:MOST_SAMPLES]} bits")
    if any(kind != _WHOLE_NUMBERS for kind in tags.get(KINDS, [])) or bits[0] not in (1, 2, 4, 8, 16):
        raise TiffError("its pixels are not whole numbers of 1 to 16 bits; save it with 8 or 16 bits")
    if packing not in _PACKINGS:
        raise TiffError(
            f"its pixels are packed by method {packing}, which is not read in TIFF files (JPEG and fax are not); save "
            "it without compression, or with LZW or deflate"
        )
    if tags.get(COLOURS, [0])[0] not in _COLOURS:
        raise TiffError("its colours are not grey, RGB, CMYK or of a palette; save it as RGB")
    if tags.get(PREDICTOR, [1])[0] not in (1, 2) or tags.get(FILL_ORDER, [1])[0] not in (1, 2):
        raise TiffError("its pixels are arranged in a way that is not read")
    planes = tags.get(PLANES, [1])[0]
    if planes not in (1, 2):
        raise TiffError("its pixels are arranged in a way that is not read")
    return _measure_unit(tags, bits[0], samples, planes)


def _measure_unit(tags: dict[int, list[int]], bits: int, samples: int, planes: int) -> _Unit:
    width, height = tags[WIDTH][0], tags[HEIGHT][0]
    if (STRIPS in tags) == (TILES in tags):
        raise TiffError("it must have either strips or tiles")
    if TILES in tags:
        across, down = (tags.get(tag, [0])[0] for tag in (TILE_WIDTH, TILE_HEIGHT))
        if not (1 <= across <= MOST_SIDE and 1 <= down <= MOST_SIDE):
            raise TiffError("it has tiles without a size")
        count = -(-width // across) * -(-height // down)
        unneeded = {STRIPS, STRIP_SIZES, ROWS}
    else:
        across, down = width, max(1, min(tags.get(ROWS, [height])[0], height))
        tags[ROWS] = [down]
        count = -(-height // down)
        unneeded = {TILE_WIDTH, TILE_HEIGHT, TILE_SIZES}
    for tag in unneeded & tags.keys():
        del tags[tag]
    together = 1 if planes == 2 else samples
    decoded = -(-across * bits * together // 8) * down
    return _Unit(decoded, count * (samples if planes == 2 else 1))


def _check_units(tags: dict[int, list[int]], unit: _Unit, total: int) -> None:
    """Refuse strips or tiles that are not all there, or are more than the picture needs."""
    if unit.number > MOST_UNITS or unit.number * unit.size > MOST_DECODED:
        raise TiffError(
            f"it has too many pixels: {unit.number:,} strips or tiles of {unit.size:,} bytes (a decompression bomb?)"
        )
    places_tag, sizes_tag = (TILES, TILE_SIZES) if TILES in tags else (STRIPS, STRIP_SIZES)
    plain = tags[PACKING][0] == _PLAIN
    places = tags[places_tag]
    sizes = tags.get(sizes_tag, [unit.size] * len(places) if plain else [])
    if len(places) < unit.number or len(sizes) < unit.number:
        raise TiffError("it is cut short: strips or tiles are missing")
    tags[places_tag], tags[sizes_tag] = places, sizes = places[: unit.number], sizes[: unit.number]
    if any(place > total or place + size > total for place, size in zip(places, sizes, strict=True)):
        raise TiffError("it is cut short: strips or tiles lie beyond its end")
    if not plain and sum(sizes) > total:  # the same bytes unpacked again and again: they may be many and give nothing
        raise TiffError("its strips or tiles are more than its bytes")
    if plain and unit.number > 1:
        _join_strips(tags, unit)


def _join_strips(tags: dict[int, list[int]], unit: _Unit) -> None:
    """Strips that are not packed and lie behind each other become one; of others there may not be as many."""
    places, height = tags.get(STRIPS, []), tags[HEIGHT][0]
    if places and tags.get(PLANES, [1])[0] == 1:
        first, last = places[0], height - (unit.number - 1) * tags[ROWS][0]  # rows of the last one, which may be fewer
        if places == list(range(first, first + unit.number * unit.size, unit.size)):
            whole = (unit.number - 1) * unit.size + unit.size // tags[ROWS][0] * last
            tags[STRIPS], tags[STRIP_SIZES], tags[ROWS] = [first], [whole], [height]
            return
    if unit.number > MOST_PLAIN_UNITS:
        raise TiffError(f"it has {unit.number:,} strips or tiles, more than a picture needs")


def _write(content: bytes, order: str, tags: dict[int, list[int]]) -> bytes:
    """The content with another list of tags behind it, and a beginning that leads there. Places stay as they were."""
    start = len(content) + len(content) % 2
    end = start + 2 + 12 * len(tags) + 4
    entries: list[bytes] = []
    values: list[bytes] = []
    for tag in sorted(tags):
        numbers = tags[tag]
        kind = 4 if tag not in _SHORT_LISTS and tag != PALETTE and max(numbers) >= 2**16 else 3
        data = struct.pack(f"{order}{len(numbers)}{_LETTERS[kind]}", *numbers)
        here = data.ljust(4, b"\0")
        if len(data) > 4:
            here = struct.pack(f"{order}I", end + sum(map(len, values)))
            values.append(data + bytes(len(data) % 2))
        entries.append(struct.pack(f"{order}HHI", tag, kind, len(numbers)) + here)
    listed = struct.pack(f"{order}H", len(tags)) + b"".join(entries) + bytes(4)
    begin = content[:4] + struct.pack(f"{order}I", start)
    return b"".join([begin, memoryview(content)[8:], bytes(len(content) % 2), listed, *values])
