"""Image files that ask for too much: uploaded, classified or in a folder, they are read or refused at little cost."""

import os
import struct
import zlib

import image_others  # noqa: F401 - which adds to CASES
import image_tiff  # noqa: F401 - which adds to CASES
import numpy as np
import pytest
from image_files import CASES, SMALL, chunk, exif, png, striped
from image_jpeg import jpeg, scanned, segment
from PIL import Image
from watching import assert_sentence, watched

from torchcaps.data import picture_files
from torchcaps.data.image_folder import read_image_folder
from torchcaps.data.pictures import UnreadableError, read_image, shrink
from torchcaps.errors import DataError
from torchcaps.explorer.handwriting import place_as_digit
from torchcaps.explorer.uploads import read_upload

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """What is imported with the first image is not counted."""
    Image.init()
    read_upload(SMALL, (1, 28, 28), "auto", True)


@pytest.mark.parametrize("name", CASES)
def test_uploaded(tmp_path, name):
    make, read = CASES[name]
    content = make()
    with watched(tmp_path):
        try:
            pixels = read_upload(content, (1, 28, 28), "auto", True)
        except UnreadableError as error:
            assert_sentence(f"This cannot be read as an image: {error}. Give a PNG or JPEG file.")
            assert read is not True, error  # noqa: PT017
        else:
            assert pixels.shape == (1, 28, 28)
            assert read is not False


@pytest.mark.parametrize("name", CASES)
def test_classified(tmp_path, name):
    make, read = CASES[name]
    path = tmp_path / "picture.png"
    path.write_bytes(make())
    with watched(tmp_path):
        try:
            pixels = read_image(path, (3, 32, 32))
        except DataError as error:
            assert_sentence(str(error))
            assert read is not True, error  # noqa: PT017
        else:
            assert pixels.shape == (3, 32, 32)
            assert read is not False


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: striped(9_000, 9_000), None),
        (lambda: striped(9_000, 9_000, 16), None),
        (lambda: striped(9_000, 9_000, 8, 2), "too many pixels"),
        (lambda: striped(1_000_000, 80), None),
        (lambda: striped(80, 1_000_000), None),
        (lambda: striped(65_000_000, 1), "too many pixels"),
        (lambda: scanned(70, 6_000, 6_000), "times"),
        (lambda: jpeg(7_000, 7_000, "RGB", progressive=True), "too many pixels"),
    ],
    ids=["grey", "16 bits", "RGB", "wide", "tall", "a row", "scans", "progressive"],
)
def test_what_is_larger_than_any_upload_is_bounded_too(tmp_path, content, reason):
    path = tmp_path / "picture.png"
    path.write_bytes(content())
    with watched(tmp_path):
        if reason is None:
            assert read_image(path, (1, 28, 28)).any()
        else:
            with pytest.raises(DataError, match=reason):
                read_image(path, (1, 28, 28))


@pytest.mark.skipif(os.name == "nt", reason="pipes and sparse files")
@pytest.mark.parametrize(
    "kind", ["pipe", "device", "folder", "link to itself", "10 GB of nothing", "10 GB behind a picture"]
)
def test_what_is_no_file_of_a_picture(tmp_path, kind):
    path = tmp_path / "picture.png"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    else:
        path.write_bytes(SMALL if "picture" in kind else b"")
        os.truncate(path, 10**10)
    with watched(tmp_path), pytest.raises(DataError) as refused:
        read_image(path, (1, 28, 28))
    assert_sentence(str(refused.value))


HOSTILE = (
    "PNG with a million fractions of EXIF data",
    "JPEG with 18,000 scans",
    "GIF with four million blocks of a remark",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_in_a_folder(tmp_path, name):
    for place in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(SMALL)
    (tmp_path / "a" / "3.png").write_bytes(CASES[name][0]())
    with watched(tmp_path):
        own = read_image_folder(tmp_path, "train", unreadable="skip")
    assert 2 <= len(own.data.labels) <= 4


# ---------------------------------------------------------------- what is taken out of a file


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("order", ["II", "MM"])
def test_a_picture_is_turned_as_before(tmp_path, turn, order):
    """All remarks are taken out of a file but for this one."""
    picture = Image.fromarray(np.arange(600, dtype=np.uint8).reshape(20, 30))
    remarks = Image.Exif()
    remarks.endian = {"II": "<", "MM": ">"}[order]
    remarks[0x0112], remarks[0x010E] = turn, "a remark"
    picture.save(tmp_path / "turned.png", exif=remarks.tobytes())
    picture.save(tmp_path / "turned.jpg", exif=remarks.tobytes(), quality=95)
    picture.save(tmp_path / "turned.webp", exif=remarks.tobytes(), lossless=True)
    ways = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
    upright = picture.transpose(Image.Transpose(ways[turn])) if turn in ways else picture
    upright.save(tmp_path / "upright.png")
    wanted = read_image(tmp_path / "upright.png", (1, 30, 30)).int()
    for name in ("turned.png", "turned.jpg", "turned.webp"):
        assert (read_image(tmp_path / name, (1, 30, 30)) - wanted).abs().max() < 30, name


def test_xmp_turns_a_picture(tmp_path):
    remark = b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>'
    rows = zlib_rows(20, 30)
    (tmp_path / "a.png").write_bytes(png(30, 20, rows, before=chunk(*remark)))
    (tmp_path / "b.png").write_bytes(png(30, 20, rows))
    turned, plain = (read_image(tmp_path / name, (1, 30, 30)) for name in ("a.png", "b.png"))
    assert (turned == plain.rot90(-1, (1, 2))).all()


def zlib_rows(height, width):
    return zlib.compress(b"".join(b"\0" + bytes(range(row, row + width)) for row in range(height)))


BROKEN = {
    "nothing": b"",
    "a beginning": b"II\x2a\0",
    "cut short": exif(1)[:18],
    "tags beyond the end": b"II\x2a\0" + struct.pack("<I", 2**32 - 1),
    "beginnings": b"MM\0\x2a" * 9,
    "a turn of 9": exif(1, turn=9),
    "a turn of 0": exif(1, turn=0),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_remarks_turn_nothing(data):
    assert picture_files.read_turn(data) is None


def test_colours_of_a_jpeg_file_stay(tmp_path):
    """They depend on two of the segments that are otherwise taken out."""
    for mode, colour in (("RGB", (200, 30, 90)), ("CMYK", (10, 200, 90, 20)), ("L", 77)):
        image = Image.new(mode, (40, 40), colour)
        image.save(tmp_path / f"{mode}.jpg", quality=95, comment=b"a remark")
        wanted = np.asarray(image.convert("RGB"), dtype=int).transpose(2, 0, 1)
        assert np.abs(read_image(tmp_path / f"{mode}.jpg", (3, 40, 40)).numpy() - wanted).max() < 8


def test_scans_of_other_pictures_in_a_file_are_not_counted():
    """Photographs have a small one in their EXIF data, and telephones put another one or a film behind."""
    small, large = jpeg(progressive=True), jpeg(200, 200)
    photograph = large[:2] + segment(0xE1, b"Exif\0\0" + small) + large[2:] + small
    assert picture_files.look_inside(photograph).scans == 1
    assert picture_files.look_inside(jpeg(progressive=True)).scans == 6
    assert picture_files.look_inside(scanned(20, 28, 28)).scans == 26


# ---------------------------------------------------------------- shrinking


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("size", [(1500, 1100), (3000, 40), (30, 5000), (2049, 2048)])
def test_every_mode_is_shrunk_to_what_it_shows(mode, size):
    """Left and right of the middle it stays as it is."""
    image = Image.new("I;16" if mode == "I;16" else "L", size)
    image.paste(65535 if mode == "I;16" else 255, (size[0] // 2, 0, *size))
    if mode != "I;16":
        image = image.convert(mode)
    small = shrink(image, 1024)
    assert max(small.size) <= 1024
    assert small.mode in ("L", "RGB", "RGBA")
    grey = np.asarray(small.convert("RGB").convert("L"), dtype=int)
    half = grey.shape[1] // 2
    assert grey[:, : half - 2].max(initial=0) < 5
    assert grey[:, half + 3 :].min(initial=255) > 250


@pytest.mark.parametrize("shape", [(1, 500_000), (500_000, 1), (3, 100_000), (500, 8_000)])
def test_a_thin_drawing_is_cut_before_it_is_repeated(tmp_path, shape):
    levels = np.zeros(shape, dtype=np.uint8)
    levels[..., shape[1] // 3 : shape[1] // 2 + 1] = 255
    with watched(tmp_path):
        assert place_as_digit(levels, (28, 28)).shape == (1, 28, 28)
