"""JPEG files that ask for too much."""

import io
import struct

import numpy as np
from image_files import case, exif
from PIL import Image

END = b"\xff\xd9"
NO_SCAN = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00"  # of all coefficients but the first, and without a bit of data


def jpeg(width=28, height=28, mode="L", **options):
    content, image = io.BytesIO(), Image.new(mode, (width, height))
    image.paste("white", (width // 3, 0, width // 2 + 1, height))
    image.save(content, "JPEG", **options)
    return content.getvalue()


def scanned(times, width, height, mode="L", scan=NO_SCAN, before=b""):
    """A progressive JPEG file with so many more scans."""
    return jpeg(width, height, mode, progressive=True).removesuffix(END) + before + scan * times + END


def segment(kind, data=b""):
    return bytes([0xFF, kind]) + struct.pack(">H", 2 + len(data)) + data


def with_segments(segments, **options):
    content = jpeg(**options)
    return content[:2] + segments + content[2:]


for name, arguments in {
    "JPEG with 18,000 scans": (18_000, 1000, 1000),
    "JPEG with 3,000 scans of 4,000×4,000 pixels": (3_000, 4000, 4000),
    "JPEG with 800,000 scans": (790_000, 28, 28),
    "JPEG with 101 scans": (101, 28, 28),
    "JPEG with scans behind a false end": (5_000, 1000, 1000, "L", NO_SCAN, segment(0xFE, END)),
    "JPEG with scans behind fill bytes": (5_000, 1000, 1000, "L", b"\xff" * 9 + NO_SCAN),
    "JPEG with remarks between scans": (5_000, 1000, 1000, "L", segment(0xFE, b"hi") + NO_SCAN),
    "JPEG with scans behind zeros": (5_000, 1000, 1000, "L", NO_SCAN, bytes(100_000)),
}.items():
    case(name, read=False)(lambda arguments=arguments: scanned(*arguments))
for name, arguments in {
    "JPEG with 90 scans of 4,000×4,000 pixels": (80, 4000, 4000),
    "JPEG with 90 scans of 4,000×4,000 pixels in colour": (80, 4000, 4000, "RGB"),
    "JPEG with 90 scans of a small picture": (80, 28, 28),
}.items():
    case(name)(lambda arguments=arguments: scanned(*arguments))


@case("JPEG, sequential, with 5,000 scans", read=False)
def sequential_scans():
    content = jpeg(1000, 1000, "RGB")
    start = content.index(b"\xff\xda")
    return content[:start] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" * 5_000 + END


@case("JPEG, progressive, of 4,000×4,000 pixels", read=True)
def progressive():
    return jpeg(4000, 4000, "RGB", progressive=True)


@case("JPEG with a film of 4 MB behind its end", read=True)
def film():
    return jpeg() + np.random.default_rng(0).integers(0, 256, 4_000_000, dtype=np.uint8).tobytes()


@case("JPEG with 8 MB of junk before its header", read=True)
def junk():
    return with_segments(segment(0xFE) + bytes(7_900_000))


@case("JPEG with 8 MB of fill bytes", read=True)
def fill():
    return with_segments(b"\xff" * 7_900_000)


for kind, called in (
    (0xE1, "of EXIF data"),
    (0xE2, "of colour profiles"),
    (0xED, "of Photoshop"),
    (0xFE, "of remarks"),
):
    case(f"JPEG with a million segments {called}", read=False)(
        lambda kind=kind: with_segments(segment(kind, b"Exif\0\0"[:2]) * 1_300_000)
    )


@case("JPEG with EXIF data in 70,000 segments", read=False)
def split_exif():
    return with_segments(segment(0xE1, b"Exif\0\0" + bytes(100)) * 70_000)


@case("JPEG with EXIF data in 120 full segments", read=True)
def long_exif():
    data = exif(900_000)
    parts = [data[start : start + 65_000] for start in range(0, len(data), 65_000)]
    return with_segments(b"".join(segment(0xE1, b"Exif\0\0" + part) for part in parts))


@case("JPEG with thousands of fractions of EXIF data", read=True)
def short_exif():
    return with_segments(segment(0xE1, b"Exif\0\0" + exif(8_000)))


@case("JPEG that claims to be two billion pictures", read=True)
def many_pictures():
    entries = struct.pack("<HHII", 0xB001, 4, 1, 2**31 - 1) + struct.pack("<HHII", 0xB002, 7, 16, 38)
    return with_segments(segment(0xE2, b"MPF\0II\x2a\0" + struct.pack("<IH", 8, 2) + entries + bytes(40)))


@case("JPEG with 120,000 tables", read=False)
def quantization_tables():
    return with_segments(segment(0xDB, (b"\0" + b"\1" * 64) * 1_000) * 120)


@case("JPEG with 90,000 tables", read=True)
def fewer_quantization_tables():
    return with_segments(segment(0xDB, (b"\0" + b"\1" * 64) * 1_000) * 90)


@case("JPEG with a table of 64 kB", read=False)
def bad_table():
    return with_segments(segment(0xC4, bytes(65_000)) * 90)


for kind in (0xC3, 0xC5, 0xC9, 0xCA, 0xCB, 0xCF):
    case(f"JPEG with the coding {kind:X}", read=False)(
        lambda kind=kind: jpeg().replace(b"\xff\xc0", bytes([0xFF, kind]))
    )


@case("JPEG that claims 65,535×65,535 pixels", read=False)
def largest_jpeg():
    return jpeg().replace(struct.pack(">HH", 28, 28), b"\xff" * 4)


@case("JPEG of 65,500×1 pixels", read=True)
def thin_jpeg():
    return jpeg(65_500, 1)


@case("JPEG of 1×65,500 pixels, progressive", read=True)
def tall_jpeg():
    return jpeg(1, 65_500, "RGB", progressive=True)


@case("JPEG with 12 bits", read=False)
def twelve_bits():
    return jpeg().replace(b"\xff\xc0\x00\x0b\x08", b"\xff\xc0\x00\x0b\x0c")


@case("JPEG with two million restarts")
def restarts():
    content = jpeg(1000, 1000)
    start = content.index(b"\xff\xda")
    return content[:start] + segment(0xDD, b"\0\1") + content[start : start + 10] + b"\0\xff\xd0\0\xff\xd1" * 1_000_000


@case("JPEG that is nothing but its beginning", read=False)
def beginning():
    return b"\xff\xd8\xff" + b"\xff\xd8" * 3_000_000


@case("JPEG with a segment of no length", read=False)
def no_length():
    return jpeg()[:2] + b"\xff\xe1\0\0" * 100_000
