"""GIF, BMP and WebP files that ask for too much, and what is no image at all."""

import io
import struct

import numpy as np
from image_files import case, exif
from PIL import Image

# ---------------------------------------------------------------- GIF


def gif(
    blocks=b"", width=28, height=28, frame=None, data=b"\x02\x16" + b"\x8c\x2d\x99\x87\x2a\x1c\xdc\x33\xa0\x02" + b"\0"
):
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    return screen + blocks + b"," + struct.pack("<HHHHB", 0, 0, *(frame or (width, height)), 0) + data + b";"


@case("GIF with four million blocks of a remark", read=False)
def gif_remark():
    return gif(b"!\xfe" + b"\1x" * 3_900_000 + b"\0")


@case("GIF with two million extensions", read=False)
def gif_extensions():
    return gif(b"!\xff\0" * 2_500_000)


@case("GIF with a frame larger than its screen", read=False)
def gif_frame():
    return gif(frame=(65_535, 65_535))


@case("GIF with a screen of 65,535×240 pixels that is cleared")
def gif_cleared():
    return gif(b"!\xf9\4\x08\0\0\0\0", 65_535, 240)


@case("GIF with 20,000 frames")
def gif_frames():
    content = io.BytesIO()
    Image.new("L", (28, 28)).save(content, "GIF")
    first = content.getvalue().removesuffix(b";")
    return first + first[first.index(b",") :] * 20_000 + b";"


@case("GIF of 4,000×4,000 pixels", read=True)
def large_gif():
    content = io.BytesIO()
    image = Image.new("P", (4000, 4000))
    image.putpalette([0, 0, 0, 255, 200, 100])
    image.paste(1, (1000, 1000, 2000, 3000))
    image.save(content, "GIF", transparency=0)
    return content.getvalue()


@case("GIF with codes of 200 bits", read=False)
def gif_codes():
    return gif(data=b"\xc8\x02\xff\xff\0")


@case("GIF that never ends", read=False)
def gif_endless():
    return gif(data=b"\2" + b"\xff" + b"\0" * 255)[:-1] * 2_000


# ---------------------------------------------------------------- BMP


def bmp(width, height, data, bits=8, compression=0, colours=256):
    palette = b"".join(bytes([level, 255 - level, level, 0]) for level in range(min(colours, 256)))
    start = 14 + 40 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + info + palette + data


for name, arguments in {
    "BMP of 4,000×4,000 pixels, each a run of its own": (4000, 4000, b"\1\7" * 3_900_000, 8, 1),
    "BMP of 4,000×4,000 pixels in half bytes": (4000, 4000, b"\xff\x12" * 62_800, 4, 2, 16),
    "BMP of 16,000,000×1 pixels, filled one by one": (16_000_000, 1, b"\1\7\0\0", 8, 1),
    "BMP of 16,000,000×1 pixels, skipped": (16_000_000, 1, b"\0\2\xff\xff" * 100_000, 8, 1),
    "BMP with two million empty lines": (2000, 2000, b"\0\0" * 2_000_000, 8, 1),
    "BMP of 1,900×1,900 pixels in half bytes": (1900, 1900, b"\xff\x12" * 31_400, 4, 2, 16),
    "BMP of 1,900×1,900 pixels, each a run of its own": (1900, 1900, b"\1\7" * 3_700_000, 8, 1),
    "BMP of 1,000,000×4 pixels, filled one by one": (1_000_000, 4, b"\1\7\0\0" * 4, 8, 1),
    "BMP of 2³¹−1 pixels": (2**31 - 1, 1, b""),
    "BMP of −1 pixels": (-1, 1, b"\0"),
    "BMP upside down": (28, -28, bytes(784)),
    "BMP with 65,536 colours": (28, 28, bytes(784), 8, 0, 65_536),
    "BMP with 4 billion colours": (28, 28, bytes(784), 8, 0, 2**32 - 1),
    "BMP with an unknown packing": (28, 28, bytes(784), 8, 9),
    "BMP without pixels": (4000, 4000, b""),
}.items():
    case(name)(lambda arguments=arguments: bmp(*arguments))


@case("BMP with a header of 4 GB", read=False)
def bmp_header():
    return b"BM" + bytes(8) + struct.pack("<II", 54, 2**32 - 1) + bytes(1000)


@case("BMP with a header of no bytes", read=False)
def bmp_no_header():
    return b"BM" + bytes(8) + struct.pack("<II", 54, 0) + bytes(1000)


# ---------------------------------------------------------------- WebP


def webp(width, height, mode="RGB", **options):
    content, image = io.BytesIO(), Image.new(mode, (width, height))
    image.paste((255, 200, 100, 255)[: len(mode)], (width // 3, 0, width // 2 + 1, height))
    image.save(content, "WEBP", method=0, **options)
    return content.getvalue()


def riff(*chunks):
    inside = b"WEBP" + b"".join(
        kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(inside)) + inside


def extended(width, height, flags):
    return b"VP8X", bytes([flags, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")


@case("WebP that claims 16,383×16,383 pixels", read=False)
def largest_webp():
    return riff((b"VP8L", b"\x2f" + struct.pack("<I", 16_382 | 16_382 << 14) + bytes(100)))


@case("WebP with a canvas of 16,777,216×200 pixels", read=False)
def webp_canvas():
    return riff(extended(2**24, 200, 2), (b"ANIM", bytes(6)), (b"ANMF", bytes(16) + webp(8, 8)[12:]))


@case("WebP of 4,000×4,000 pixels", read=True)
def large_webp():
    return webp(4000, 4000)


@case("WebP of 3,500×3,500 pixels with alpha, lossless", read=True)
def large_lossless_webp():
    return webp(3500, 3500, "RGBA", lossless=True)


class Bits:
    """Bits that are written one after the other, the lowest of a number first."""

    def __init__(self):
        self.parts = []

    def write(self, value, count):
        self.parts += [value >> place & 1 for place in range(count)]

    def content(self):
        return np.packbits(np.array(self.parts, dtype=np.uint8), bitorder="little").tobytes()


@case("WebP with 65,536 tables of codes", read=False)
def webp_tables():
    bits = Bits()
    for value, count in ((0x2F, 8), (1023, 14), (1023, 14), (0, 4), (0, 2), (1, 1), (0, 3), (0, 1)):
        bits.write(value, count)  # 1024×1024 pixels, every 4×4 of them with a code of their own, which an image names
    for zeros in (24, 0):  # in two bytes, for which all codes have 8 bits
        bits.parts += [0, 0, 0, 0, 1] + [0, 0, 0] + [1, 0, 0] + [0, 0, 0] * 9 + [1, 0, 0] + [0] + [0] * 256
        if zeros:
            bits.write(1 | zeros - 11 << 1, 8)
    bits.parts += [1, 0, 0, 0] * 3
    numbers = np.arange(65_536, dtype="<u2").view(np.uint8)
    bits.parts += np.unpackbits(numbers, bitorder="little").tolist() + [1, 0, 0, 0] * 5 * 65_536
    return riff((b"VP8L", bits.content() + bytes(64)))


@case("WebP with 100,000 frames")
def webp_frames():
    frame = bytes(6) + b"\7\0\0\7\0\0" + b"\1\0\0\0" + webp(8, 8, lossless=True)[12:]
    return riff(extended(28, 28, 2), (b"ANIM", bytes(6)), *[(b"ANMF", frame)] * 100_000)


@case("WebP with a million fractions of EXIF data", read=True)
def webp_exif():
    return riff(extended(28, 28, 8), (b"VP8L", webp(28, 28, lossless=True)[20:]), (b"EXIF", exif(900_000)))


@case("WebP with a million unknown chunks")
def webp_chunks():
    return riff(extended(28, 28, 0), *[(b"ABCD", b"")] * 900_000, (b"VP8L", webp(28, 28, lossless=True)[20:]))


@case("WebP that is cut short", read=False)
def webp_cut():
    return webp(500, 500)[:200]


# ---------------------------------------------------------------- what is none of these


def saved(kind, mode="L"):
    content = io.BytesIO()
    Image.new(mode, (28, 28)).save(content, kind)
    return content.getvalue()


case("TIFF file")(lambda: saved("TIFF", "L"))  # which is read from a file, but not uploaded
for kind, mode in (("PPM", "L"), ("ICO", "RGB"), ("TGA", "L"), ("PCX", "L"), ("PDF", "L"), ("EPS", "L"),
                   ("SGI", "L"), ("MSP", "1"), ("XBM", "1"), ("DIB", "L")):  # fmt: skip
    case(f"{kind} file", read=False)(lambda kind=kind, mode=mode: saved(kind, mode))
for name, content in {
    "nothing": b"",
    "zeros": bytes(1_000_000),
    "a script": b"#!/bin/sh\ntouch canary\n",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "PostScript that runs a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%touch x) (w) file\n",
    "Python's pickle": b"\x80\x04cposix\nsystem\n(S'touch canary'\ntR.",
    "the beginnings of all formats": b"\x89PNG\r\n\x1a\n\xff\xd8\xffGIF89aBMRIFF\0\0\0\0WEBPVP8 ",
}.items():
    case(name, read=False)(lambda content=content: content)
