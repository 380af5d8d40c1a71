"""TIFF files: every kind that is read gives what Pillow gives, and the others are refused with a reason."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from torchcaps.data.pictures import UnreadableError, fit_image, has_several_frames, open_image, read_image
from torchcaps.data.tiff_files import TiffError, look_inside_tiff
from torchcaps.errors import DataError

SIZE = (37, 23)


def picture(mode):
    rng = np.random.default_rng(0)
    if mode.startswith("I;16"):
        return Image.fromarray(rng.integers(0, 65536, SIZE[::-1], dtype=np.uint16))
    pixels = rng.integers(0, 256, (SIZE[1], SIZE[0], 4), dtype=np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


def tiff(image, **options):
    content = io.BytesIO()
    image.save(content, "TIFF", **options)
    return content.getvalue()


def entries(content):
    """Places of the tags of the first picture of a file of Pillow's, by their numbers."""
    (start,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, start)
    places = range(start + 2, start + 2 + 12 * count, 12)
    return {struct.unpack_from("<H", content, place)[0]: place for place in places}


def changed(content, tag, kind=4, count=1, value=0):
    """The same file with another entry."""
    place, spoiled = entries(content)[tag], bytearray(content)
    spoiled[place : place + 12] = struct.pack("<HHII", tag, kind, count, value)
    return bytes(spoiled)


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "I;16"])
def test_what_is_read_is_what_pillow_reads(mode, compression):
    content = tiff(picture(mode), compression=compression)
    with open_image(io.BytesIO(content)) as image, Image.open(io.BytesIO(content)) as plain:
        assert (image.size, image.mode) == (SIZE, plain.mode)
        assert np.array_equal(np.asarray(image), np.asarray(plain))


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_it_is_turned_as_it_says(tmp_path, turn, compression):
    image = picture("L")
    image.save(tmp_path / "a.tif", compression=compression, tiffinfo={274: turn})
    ways = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
    upright = image.transpose(Image.Transpose(ways[turn])) if turn in ways else image
    assert np.array_equal(read_image(tmp_path / "a.tif", (1, 40, 40)), fit_image(upright, (1, 40, 40)))


def test_a_large_one_that_is_turned_is_shrunk(tmp_path):
    image = Image.new("L", (3000, 1200))
    image.paste(255, (0, 0, 3000, 600))  # the upper half, which is at the right when it is turned
    image.save(tmp_path / "a.tif", tiffinfo={274: 6})
    pixels = read_image(tmp_path / "a.tif", (1, 50, 20))[0]
    assert (pixels[:, :9] == 0).all()
    assert (pixels[:, 11:] == 255).all()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("planes", [1, 2])
def test_tiles_and_planes(order, planes):
    """Made by hand: Pillow writes neither. 5×4 RGB pixels in tiles of 4×4, or in planes."""
    pixels = np.random.default_rng(1).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    padded = np.zeros((4, 8, 3), dtype=np.uint8)
    padded[:, :5] = pixels
    if planes == 1:
        parts = [padded[:, :4].tobytes(), padded[:, 4:].tobytes()]
    else:
        parts = [padded[:, x : x + 4, c].tobytes() for c in range(3) for x in (0, 4)]
    head = (b"II\x2a\0" if order == "<" else b"MM\0\x2a") + bytes(4)
    places = [8 + sum(map(len, parts[:n])) for n in range(len(parts))]
    data = head + b"".join(parts)
    tags = {256: [5], 257: [4], 258: [8, 8, 8], 259: [1], 262: [2], 277: [3], 284: [planes], 322: [4], 323: [4],
            324: places, 325: [len(part) for part in parts]}  # fmt: skip
    listed, values, end = b"", b"", len(data) + 2 + 12 * len(tags) + 4
    for tag, numbers in tags.items():
        packed = struct.pack(f"{order}{len(numbers)}I", *numbers)
        here = packed if len(packed) == 4 else struct.pack(f"{order}I", end + len(values))
        values += packed if len(packed) > 4 else b""
        listed += struct.pack(f"{order}HHI", tag, 4, len(numbers)) + here
    start = struct.pack(f"{order}I", len(data))
    content = data[:4] + start + data[8:] + struct.pack(f"{order}H", len(tags)) + listed + bytes(4) + values
    with open_image(io.BytesIO(content)) as image:
        assert np.array_equal(np.asarray(image), pixels)


@pytest.mark.parametrize("size", [(11, 7), (1, 5), (300, 250)])
@pytest.mark.parametrize("mode", ["1", "L", "RGB", "I;16"])
def test_strips_of_any_height(mode, size):
    """Those that are not packed are joined, where they lie behind each other."""
    image = picture(mode).resize(size)
    for compression in (None, "tiff_lzw"):
        for rows in (1, 2, 3, 100):
            content = tiff(image, compression=compression, tiffinfo={278: rows})
            with open_image(io.BytesIO(content)) as opened:
                assert np.array_equal(np.asarray(opened), np.asarray(image)), rows


def test_the_first_of_several_pages(tmp_path):
    first, second = Image.new("L", (8, 8), 200), Image.new("L", (8, 8), 30)
    first.save(tmp_path / "a.tif", save_all=True, append_images=[second])
    with open_image(tmp_path / "a.tif") as image:
        assert has_several_frames(image)
        assert set(np.asarray(image).flatten()) == {200}


PLAIN, PACKED = tiff(picture("RGB")), tiff(picture("RGB"), compression="tiff_lzw")
REFUSED = {
    "of floating-point numbers": (tiff(Image.new("F", (8, 8), 0.5)), "whole numbers"),
    "of 32 bits": (tiff(Image.new("I", (8, 8), 70_000)), "whole numbers"),
    "with JPEG inside": (tiff(picture("RGB"), compression="jpeg"), "packed by method 7"),
    "of a fax": (tiff(picture("1"), compression="group4"), "packed by method 4"),
    "BigTIFF": (tiff(picture("L"), big_tiff=True), "BigTIFF"),
    "in Lab": (tiff(picture("RGB").convert("LAB")), "colours"),
    "without a width": (changed(PLAIN, 256, value=0), "width"),
    "too high": (changed(PLAIN, 257, value=2**31), "height"),
    "of 60,000 numbers per pixel": (changed(PLAIN, 277, value=60_000), "60,000 numbers per pixel"),
    "with another predictor": (changed(PACKED, 284, value=3), "arranged"),
    "with strips beyond the end": (changed(PLAIN, 273, value=2**31), "beyond its end"),
    "with too few strips": (changed(PLAIN, 278, value=1), "missing"),
    "with a list of 2³² strips": (changed(PLAIN, 273, count=2**32 - 1), "which no picture needs"),
    "with strips of another type": (changed(PLAIN, 273, kind=5), "of type 5"),
    "cut short": (PLAIN[:40], "cut short"),
    "of tags beyond its end": (PLAIN[:4] + struct.pack("<I", 2**32 - 2) + PLAIN[8:], "cut short"),
    "a beginning": (b"II\x2a\0", "cut short"),
}


@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_read_is_told(content, reason):
    with pytest.raises(TiffError, match=reason):
        look_inside_tiff(content)
    with pytest.raises(UnreadableError, match=reason), open_image(io.BytesIO(content)):
        pass


def test_remarks_are_taken_out():
    remarks = {270: "a remark", 305: "a program", 700: b"<x/>" * 1000}
    content = tiff(picture("L"), tiffinfo=remarks)
    with open_image(io.BytesIO(content)) as image:
        assert not {270, 305, 700} & set(image.tag_v2)


def test_a_refusal_names_what_can_be_given(tmp_path):
    (tmp_path / "a.tif").write_bytes(b"II\x2a\0")
    with pytest.raises(DataError, match="cut short. Give a PNG, JPEG, WebP, BMP, TIFF or GIF file"):
        read_image(tmp_path / "a.tif", (1, 8, 8))
