"""TIFF files that ask for too much. Uploads are never TIFF, so that none of them must be read."""

import struct
import zlib

from image_files import UPLOAD, case, packed

WIDTH, HEIGHT, BITS, PACKING, COLOURS, STRIPS, SAMPLES, ROWS, SIZES = 256, 257, 258, 259, 262, 273, 277, 278, 279
TILE_WIDTH, TILE_HEIGHT, TILES, TILE_SIZES = 322, 323, 324, 325
PLAIN, LZW, DEFLATE, PACKBITS = 1, 5, 8, 32773


def tiff(data, tags, more=b"", after=0, count=None):
    """A file of data, which begins at byte 8, and tags; ``more`` are further entries of 12 bytes each."""
    values, listed = b"", b""
    size = 2 + 12 * len(tags) + len(more) + 4
    for tag, numbers in sorted(tags.items()):
        content = struct.pack(f"<{len(numbers)}I", *numbers)
        here = content if len(content) == 4 else struct.pack("<I", 8 + len(data) + size + len(values))
        values += content if len(content) > 4 else b""
        listed += struct.pack("<HHI", tag, 4, len(numbers)) + here
    total = len(tags) + len(more) // 12 if count is None else count
    start = b"II\x2a\0" + struct.pack("<I", 8 + len(data)) + data
    return start + struct.pack("<H", total) + listed + more + struct.pack("<I", after) + values


def strips(width, height, data, packing=PLAIN, rows=None, places=None, sizes=None, **how):
    tags = {WIDTH: [width], HEIGHT: [height], BITS: [8], PACKING: [packing], COLOURS: [1], SAMPLES: [1],
            ROWS: [rows or height], STRIPS: places or [8], SIZES: sizes or [len(data)]}  # fmt: skip
    return tiff(data, tags, **how)


SMALL_STRIP = bytes(range(256)) * 4


@case("TIFF of 60,000×60,000 pixels", read=False)
def many_pixels():
    return strips(60_000, 60_000, packed(bytes(60_000), 1000), DEFLATE)


@case("TIFF of 2³² pixels in a row", read=False)
def long_row():
    return strips(2**32 - 1, 1, SMALL_STRIP, PACKBITS)


@case("TIFF with a tile of 30,000×30,000 pixels", read=False)
def huge_tile():
    tags = {WIDTH: [28], HEIGHT: [28], BITS: [8], PACKING: [DEFLATE], COLOURS: [1], TILE_WIDTH: [30_000],
            TILE_HEIGHT: [30_000], TILES: [8], TILE_SIZES: [1024]}  # fmt: skip
    return tiff(SMALL_STRIP, tags)


@case("TIFF with 16 million tiles of one pixel", read=False)
def many_tiles():
    tags = {WIDTH: [4096], HEIGHT: [4096], BITS: [8], PACKING: [PLAIN], COLOURS: [1], TILE_WIDTH: [1],
            TILE_HEIGHT: [1], TILES: [8, 9], TILE_SIZES: [1, 1]}  # fmt: skip
    return tiff(SMALL_STRIP, tags)


@case("TIFF with the same 7 MB in 20,000 strips", read=False)
def shared_strips():
    """PackBits has a code that means nothing."""
    return strips(28, 20_000, b"\x80" * 7_000_000, PACKBITS, 1, [8] * 20_000, [7_000_000] * 20_000)


@case("TIFF with 7.9 MB of codes that mean nothing")
def nothing():
    return strips(28, 28, b"\x80" * 7_900_000, PACKBITS)


@case("TIFF with 7.9 MB of empty blocks of deflate")
def empty_blocks():
    return strips(28, 28, b"\x78\x9c" + b"\0\0\0\xff\xff" * 1_580_000, DEFLATE)


@case("TIFF with 7.9 MB of cleared tables of LZW")
def cleared_tables():
    return strips(28, 28, b"\x80\x40\x20\x10\x08\x04\x02\x01\x00" * 870_000, LZW)


@case("TIFF of 9,000×9,000 pixels, deflated")
def deflated():
    return strips(9_000, 9_000, packed(bytes(9_000), 9_000), DEFLATE)


@case("TIFF of 16,000×16,000 pixels, deflated", read=False)
def deflated_larger():
    return strips(16_000, 16_000, packed(bytes(16_000), 16_000), DEFLATE)


@case("TIFF of 9,000×9,000 pixels in runs of 128")
def runs():
    return strips(9_000, 9_000, b"\x81\xff" * (9_000 * 71), PACKBITS)


@case("TIFF with 50,000 plain strips")
def plain_strips():
    return strips(28, 50_000, bytes(range(28)) * 50_000, PLAIN, 1, [8 + 28 * n for n in range(50_000)], [28] * 50_000)


@case("TIFF with 10,000 plain strips in disorder")
def plain_strips_in_disorder():
    places = [8 + 28 * (n * 7 % 10_000) for n in range(10_000)]
    return strips(28, 10_000, bytes(range(28)) * 10_000, PLAIN, 1, places, [28] * 10_000)


@case("TIFF with 50,000 plain strips in disorder", read=False)
def more_plain_strips_in_disorder():
    return strips(28, 50_000, bytes(28) * 50_000, PLAIN, 1, [8] * 50_000, [28] * 50_000)


@case("TIFF with 1,000,000 strips", read=False)
def too_many_strips():
    return strips(1, 1_000_000, bytes(1000), PLAIN, 1, [8] * 1_000_000, [1] * 1_000_000)


@case("TIFF with 65,535 tags", read=False)
def many_tags():
    more = b"".join(struct.pack("<HHII", 40_000 + n % 20_000, 4, 1, n) for n in range(65_526))
    return strips(28, 28, SMALL_STRIP, more=more)


@case("TIFF with 900 tags of 7 MB each")
def large_tags():
    more = struct.pack("<HHII", 700, 1, 7_000_000, 8) * 900
    return strips(28, 28, bytes(7_000_000), more=more)


@case("TIFF with a tag of 2³² values", read=False)
def endless_tag():
    return strips(28, 28, SMALL_STRIP).replace(
        struct.pack("<HHI", STRIPS, 4, 1), struct.pack("<HHI", STRIPS, 4, 2**32 - 1)
    )


@case("TIFF that is followed by itself")
def followed_by_itself():
    return strips(28, 28, SMALL_STRIP, after=8 + len(SMALL_STRIP))


@case("TIFF whose tags are its header", read=False)
def tags_in_the_header():
    return b"II\x2a\0" + struct.pack("<I", 0) + bytes(100)


@case("TIFF with strips outside of it", read=False)
def strips_outside():
    return strips(28, 28, SMALL_STRIP, PLAIN, None, [2**32 - 10], [784])


@case("TIFF of nothing but a beginning", read=False)
def beginning():
    return b"MM\0\x2a" + b"\xff" * (UPLOAD - 4)


@case("TIFF with damaged pixels", read=False)
def damaged():
    return strips(28, 28, zlib.compress(bytes(784))[:10] + b"\xff" * 100, DEFLATE)


@case("BigTIFF", read=False)
def big():
    return b"II\x2b\0\x08\0\0\0" + struct.pack("<Q", 16) + struct.pack("<Q", 2**63) + bytes(1000)
