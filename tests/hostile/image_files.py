"""Image files that ask for too much, each made by a function; a few are merely odd, and are read. Here those of PNG."""

import struct
import zlib

UPLOAD = 8_000_000  # bytes that someone can send
CASES = {}


def case(name, read=None):
    """Keeps the function as a case; ``read`` says whether it must be read (True) or refused (False)."""

    def keep(function):
        assert name not in CASES
        CASES[name] = (function, read)
        return function

    return keep


# ---------------------------------------------------------------- PNG


def chunk(kind, data=b""):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width, height, depth=8, colour=0, interlaced=0):
    return b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    )


def png(width, height, data, depth=8, colour=0, before=b"", after=b"", interlaced=0):
    start = header(width, height, depth, colour, interlaced) + before
    return start + chunk(b"IDAT", data) + after + chunk(b"IEND")


def packed(row, height):
    """So many times the same row of bytes, packed."""
    squeeze, many = zlib.compressobj(1), max(1, 100_000 // len(row))
    rows = [row * many] * (height // many) + [row * (height % many)]
    return b"".join([*map(squeeze.compress, rows), squeeze.flush()])


def striped(width, height, depth=8, colour=0, before=b"", interlaced=0):
    """A PNG file with a light stroke from top to bottom, about a thousandth as large as its pixels."""
    size = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour] // 8
    row = (
        b"\0" + bytes(size * (width // 3)) + b"\xff" * (size * (width // 3)) + bytes(size * (width - 2 * (width // 3)))
    )
    return png(width, height, packed(row, height), depth, colour, before, interlaced=interlaced)


SMALL = striped(28, 28)
PIXELS = zlib.compress(b"".join(b"\0" + bytes(10) + b"\xff" * 8 + bytes(10) for _ in range(28)))  # of 28×28

for name, arguments in {
    "PNG of 500,000×1 pixels with 16 bits": (500_000, 1, 16),
    "PNG of 1×500,000 pixels with 16 bits": (1, 500_000, 16),
    "PNG of 500,000×1 pixels": (500_000, 1),
    "PNG of 500,000×2 pixels with 16 bits and alpha": (500_000, 2, 16, 6),
    "PNG of 1,000,000×16 pixels with 16 bits": (1_000_000, 16, 16),
    "PNG of 16×1,000,000 pixels, RGBA": (16, 1_000_000, 8, 6),
    "PNG of 4,000×4,000 pixels with 16 bits": (4000, 4000, 16),
    "PNG of 4,000×4,000 pixels, RGBA with 16 bits": (4000, 4000, 16, 6),
    "PNG of 4,000×4,000 pixels, grey and alpha": (4000, 4000, 8, 4),
    "PNG of 4,000×4,000 pixels, palette": (4000, 4000, 8, 3, chunk(b"PLTE", bytes(765) + b"\xff" * 3)),
    "PNG of 4,000×4,000 pixels, transparent palette": (
        4000, 4000, 8, 3, chunk(b"PLTE", bytes(765) + b"\xff" * 3) + chunk(b"tRNS", bytes(range(256))),
    ),
    "PNG of 4,000×4,000 pixels, 16 bits with a transparent level": (4000, 4000, 16, 0, chunk(b"tRNS", b"\0\0")),
}.items():  # fmt: skip
    case(name, read=True)(lambda arguments=arguments: striped(*arguments))


for name, arguments in {
    "PNG of 16,000,000×1 pixels with 16 bits": (16_000_000, 1, 16),
    "PNG of 1×16,000,000 pixels": (1, 16_000_000),
}.items():
    case(name, read=False)(lambda arguments=arguments: striped(*arguments))


@case("PNG of 4,000×4,000 pixels with 1 bit", read=True)
def one_bit():
    return png(4000, 4000, packed(b"\0" + bytes(200) + b"\xff" * 100 + bytes(200), 4000), 1)


@case("PNG of 4,000×4,000 pixels, interlaced")
def interlaced():
    return png(4000, 4000, packed(bytes(1001), 17_000), interlaced=1)


@case("PNG that claims 2³¹−1 × 1 pixels", read=False)
def widest():
    return png(2**31 - 1, 1, b"")


@case("PNG that claims 30,000×30,000 pixels", read=False)
def bomb():
    return png(30_000, 30_000, packed(bytes(30_001), 1_000))


@case("PNG whose second header is larger", read=False)
def two_headers():
    larger = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return png(28, 28, PIXELS, before=chunk(b"IHDR", larger))


@case("PNG that unpacks to 100 MB behind 28×28 pixels")
def unpacks():
    return png(28, 28, packed(bytes(100_000), 1_000))


@case("PNG with 600,000 empty data chunks", read=False)
def empty_chunks():
    return header(28, 28) + chunk(b"IDAT") * 600_000 + chunk(b"IDAT", PIXELS) + chunk(b"IEND")


@case("PNG with 40,000 data chunks of no bytes", read=True)
def fewer_empty_chunks():
    return header(28, 28) + chunk(b"IDAT") * 40_000 + chunk(b"IDAT", PIXELS) + chunk(b"IEND")


@case("PNG with 500,000 texts", read=False)
def texts():
    return png(28, 28, PIXELS, before=chunk(b"tEXt", b"k\0v") * 500_000)


@case("PNG with texts that swell to 5 GB", read=True)
def swelling_texts():
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1_000_000), 9))
    return png(28, 28, PIXELS, before=text * 5_000)


@case("PNG with a colour profile that swells", read=True)
def swelling_profile():
    return png(28, 28, PIXELS, before=chunk(b"iCCP", b"k\0\0" + packed(bytes(100_000), 1_000)))


@case("PNG with a text behind its pixels that swells", read=True)
def late_text():
    return png(28, 28, PIXELS, after=chunk(b"iTXt", b"k\0\1\0\0\0" + packed(bytes(100_000), 1_000)))


def exif(numbers, turn=6, kind=5):
    """EXIF data with so many numbers in one tag, which turns the picture."""
    entries = struct.pack("<HHII", 0x0112, 3, 1, turn) + struct.pack("<HHII", 0x8888, kind, numbers, 38)
    return b"II\x2a\0" + struct.pack("<IH", 8, 2) + entries + bytes(4) + b"\1\0\0\0" * (2 * numbers)


@case("PNG with a million fractions of EXIF data", read=True)
def fractions():
    return png(28, 28, PIXELS, before=chunk(b"eXIf", exif(900_000)))


@case("PNG with EXIF data before and behind its pixels", read=True)
def late_fractions():
    return png(28, 28, PIXELS, before=chunk(b"eXIf", exif(1)), after=chunk(b"eXIf", exif(900_000)))


@case("PNG whose EXIF data has 65,535 tags for the same megabyte", read=True)
def overlapping_tags():
    tags = b"".join(struct.pack("<HHII", tag, 7, 1_000_000, 800_000) for tag in range(65_535) if tag != 0x0112)
    return png(
        28, 28, PIXELS, before=chunk(b"eXIf", b"II\x2a\0" + struct.pack("<IH", 8, 65_534) + tags + bytes(1_100_000))
    )


@case("PNG that claims two billion frames", read=True)
def frames():
    return png(28, 28, PIXELS, before=chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)))


@case("PNG with 100,000 frames", read=False)
def many_frames():
    frame = chunk(b"fdAT", bytes(4) + PIXELS)
    return png(28, 28, PIXELS, before=chunk(b"acTL", struct.pack(">II", 100_000, 0)), after=frame * 100_000)


@case("PNG with a palette of 100,000 colours")
def large_palette():
    return striped(28, 28, 8, 3, chunk(b"PLTE", bytes(300_000)))


@case("PNG with 8 MB of transparency")
def much_transparency():
    before = chunk(b"PLTE", bytes(768)) + chunk(b"tRNS", bytes(7_900_000))
    return striped(28, 28, 8, 3, before)


@case("PNG with 8 MB behind its end", read=True)
def behind_the_end():
    return SMALL + bytes(UPLOAD - len(SMALL))


@case("PNG with a chunk of 4 GB")
def endless_chunk():
    return header(28, 28) + b"\xff\xff\xff\xffIDAT" + PIXELS


@case("PNG with a header of 8 MB", read=False)
def long_header():
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes(7_900_000))


@case("PNG without pixels", read=False)
def no_pixels():
    return header(28, 28) + chunk(b"IEND")


@case("PNG with an unknown filter", read=False)
def unknown_filter():
    return png(28, 28, packed(b"\x09" + bytes(28), 28))


@case("PNG of an unknown kind of pixels", read=False)
def unknown_depth():
    return png(28, 28, PIXELS, depth=3, colour=5)


@case("PNG of 0×28 pixels", read=False)
def no_width():
    return png(0, 28, b"")


@case("PNG with chunks that have no name", read=False)
def nameless():
    return header(28, 28) + bytes(1_000_000)
