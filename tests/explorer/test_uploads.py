"""Images that someone uploads: every kind that a browser has, and what is none."""

import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from asking import SHAPE, ask, file_of, info, raw_request, read, refusal, told, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from torchcaps.explorer.limits import MOST_JSON, MOST_UPLOAD
from torchcaps.explorer.uploads import MOST_PIXELS, place_as_digit
from torchcaps.pretrained import list_pretrained, pretrained_samples


def four(ink=255, paper=0, mode="L", size=120):
    """A 4, which no turn and no mirror leaves as it is; light on dark unless told."""
    image = Image.new(mode, (size, size), paper)
    draw, unit, width = ImageDraw.Draw(image), size / 120, max(1, size // 12)
    draw.line([(40 * unit, 20 * unit), (35 * unit, 65 * unit), (85 * unit, 65 * unit)], ink, width, "curve")
    draw.line([(75 * unit, 25 * unit), (75 * unit, 100 * unit)], ink, width)
    return image


PLAIN = file_of(four())


def upload(client, content, model="mnist", **options):
    return client.post(f"/api/models/{model}/upload", content=content, params=options)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, data, depth=8, colour=0):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# ---------------------------------------------------------------- every kind of file


def sixteen_bits():
    return Image.fromarray(np.asarray(four()).astype(np.uint16) * 257)


def transparent_palette():
    image = four(1, 0, "P")
    image.putpalette([9, 9, 9, 0, 0, 0] + [0] * 762)  # black strokes; the paper is nearly black, but transparent
    return image


def animated():
    blank = Image.new("L", (120, 120), 0)
    return file_of(four(), "GIF", save_all=True, append_images=[blank, blank], duration=50)


def turned():
    """As a camera held on its side writes it: turned, and the EXIF data says how to turn it back."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise
    return file_of(four().transpose(Image.Transpose.ROTATE_90), "JPEG", quality=95, exif=exif)


FILES = {
    "PNG": PLAIN,
    "PNG, dark on light": file_of(four(0, 255)),
    "PNG, 16 bits": file_of(sixteen_bits()),
    "PNG, 1 bit": file_of(four(1, 0, "1")),
    "PNG, palette": file_of(four((255, 255, 255), (0, 0, 0), "RGB").quantize(4)),
    "PNG, palette and transparency": file_of(transparent_palette(), transparency=0),
    "PNG, grey and alpha": file_of(four((0, 255), (0, 0), "LA")),
    "PNG, grey with a transparent level": file_of(four(0, 7), transparency=7),
    "PNG, black on nothing": file_of(four((0, 0, 0, 255), (0, 0, 0, 0), "RGBA")),
    "PNG, white on nothing": file_of(four((255, 255, 255, 255), (255, 255, 255, 0), "RGBA")),
    "PNG, RGB": file_of(four((255, 255, 255), (0, 0, 0), "RGB")),
    "JPEG": file_of(four(), "JPEG", quality=95),
    "JPEG, turned by EXIF": turned(),
    "JPEG, CMYK": file_of(four((255, 255, 255), (0, 0, 0), "RGB").convert("CMYK"), "JPEG", quality=95),
    "JPEG, progressive": file_of(four(0, 255, "L"), "JPEG", quality=95, progressive=True),
    "GIF": file_of(four(), "GIF"),
    "GIF, animated": animated(),
    "WebP": file_of(four((255, 255, 255), (0, 0, 0), "RGB"), "WEBP", lossless=True),
    "WebP, black on nothing": file_of(four((0, 0, 0, 255), (0, 0, 0, 0), "RGBA"), "WEBP", lossless=True),
    "BMP": file_of(four(), "BMP"),
}


@pytest.mark.parametrize("kind", FILES)
def test_the_same_drawing_is_the_same_digit_in_every_kind_of_file(kind):
    difference = np.abs(read(FILES[kind]) - read(PLAIN))
    assert difference.max() <= 40
    assert difference.mean() < 1


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_of_file_is_seen_as_a_four(client, kind):
    answer = upload(client, FILES[kind])
    assert answer.status_code == 200, answer.text
    look = ask(client, "mnist", "look", pixels=answer.json()["pixels"])
    assert look["found"] == [4]
    assert look["lengths"][4] > 0.5


@pytest.mark.parametrize("model", list_pretrained())
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("size", [(7, 3), (28, 28), (36, 36), (300, 200), (1, 1)])
def test_every_result_is_a_picture_of_its_model(client, model, centre, size):
    levels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    pixels = upload(client, file_of(levels), model, centre=centre).json()["pixels"]
    assert unpacked(pixels, info(client, model)["picture"]).size
    assert ask(client, model, "look", pixels=pixels)["found"]


def test_colours_stay_for_a_model_of_colours():
    red = file_of(Image.new("RGB", (8, 8), (250, 10, 20)))
    pixels = read(red, "auto", True, (3, 12, 12))
    assert (pixels == np.array([250, 10, 20])[:, None, None]).all()


# ---------------------------------------------------------------- light and dark


def test_auto_makes_dark_on_light_the_same_as_light_on_dark():
    assert np.abs(read(file_of(four(20, 235))) - read(file_of(four(235, 20)))).max() <= 1


def test_yes_swaps_and_no_keeps():
    light = file_of(four())
    kept, swapped = read(light, "no", False), read(light, "yes", False)
    assert np.abs(kept + swapped - 255).max() <= 1
    assert (kept == read(light, "auto", False)).all()
    dark = file_of(four(0, 255))
    assert (read(dark, "yes", False) == read(dark, "auto", False)).all()
    assert read(dark, "no", False)[0, 0, 0] == 255


def test_what_to_do_with_light_and_dark_is_one_of_three_words(client):
    assert "invert" in refusal(upload(client, PLAIN, invert="perhaps"), 422)
    assert "centre" in refusal(upload(client, PLAIN, centre="perhaps"), 422)


def test_clothes_are_not_cut_out(client):
    shape = info(client, "fashion-mnist")["picture"]
    shirt = pretrained_samples("fashion-mnist")["images"][0, 0]
    answer = upload(client, file_of(shirt), "fashion-mnist", invert="no")
    assert (unpacked(answer.json()["pixels"], shape)[0] == shirt).all()


# ---------------------------------------------------------------- size and place


def measures(pixels):
    """Height, width, and centre of mass of what is drawn."""
    rows, columns = np.nonzero(pixels[0] > 40)
    total = pixels[0].sum()
    centre = [(pixels[0].sum(axis=1 - axis) * np.arange(pixels.shape[1 + axis])).sum() / total for axis in (0, 1)]
    return np.ptp(rows) + 1, np.ptp(columns) + 1, centre


@pytest.mark.parametrize("corner", [(0, 0), (0, 350), (350, 0), (350, 350), (170, 200)])
@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 36, 36), (1, 32, 40)])
def test_a_small_digit_in_a_corner_is_brought_to_size_and_to_the_middle(corner, shape):
    page = Image.new("L", (400, 400), 250)
    page.paste(four(30, 250, size=50), corner)
    height, width, centre = measures(read(file_of(page), shape=shape))
    assert 19 <= max(height, width) <= 20
    assert centre == pytest.approx([shape[1] / 2, shape[2] / 2], abs=0.6)


def test_digits_of_mnist_come_back_as_they_are(client):
    shape, images = info(client, "mnist")["picture"], pretrained_samples("mnist")["images"]
    found = [unpacked(upload(client, file_of(image[0])).json()["pixels"], shape) for image in images]
    differences = [np.abs(pixels - image).mean() for pixels, image in zip(found, images, strict=True)]
    assert sum(difference < 1 for difference in differences) >= 56, "so size and place are those of MNIST"


def test_without_centre_a_drawing_stays_where_it_is(client):
    page = Image.new("L", (56, 56), 0)
    page.paste(255, (0, 0, 14, 14))
    pixels = unpacked(upload(client, file_of(page), centre=False).json()["pixels"], info(client, "mnist")["picture"])
    assert (pixels[0, :6, :6] == 255).all()
    assert not pixels[0, 8:].any()
    assert not pixels[0, :, 8:].any()


@pytest.mark.parametrize("size", [(4000, 1), (1, 4000), (3000, 2), (2, 3000), (900, 30)])
@pytest.mark.parametrize("as_digit", [True, False])
def test_very_wide_and_very_tall_images_are_fitted(size, as_digit):
    image = Image.new("L", size, 0)
    image.paste(255, (size[0] // 3, 0, 1 + size[0] // 2, size[1]))
    assert read(file_of(image), as_digit=as_digit).shape == SHAPE


@pytest.mark.parametrize("level", [0, 128, 255])
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (28, 28), (100, 100)])
@pytest.mark.parametrize("invert", ["auto", "yes", "no"])
def test_an_image_of_one_level_has_no_digit(level, size, invert):
    assert not read(file_of(Image.new("L", size, level)), invert).any()


def test_an_image_of_nothing_but_transparency_has_no_digit():
    assert not read(file_of(Image.new("RGBA", (9, 9), (255, 0, 0, 0)))).any()


def test_a_dot_is_a_digit_too():
    page = Image.new("L", (50, 50), 0)
    page.putpixel((3, 4), 200)
    height, width, centre = measures(read(file_of(page)))
    assert (height, width) == (20, 20)
    assert centre == pytest.approx([14, 14], abs=0.6)


@settings(max_examples=60)
@given(
    height=st.integers(1, 40), width=st.integers(1, 40), size=st.sampled_from([(28, 28), (36, 36), (5, 9), (1, 1)]),
    seed=st.integers(0, 2**32 - 1), ink=st.sampled_from([0.02, 0.3, 1]),
)  # fmt: skip
def test_any_drawing_is_placed(height, width, size, seed, ink):
    generator = np.random.default_rng(seed)
    levels = generator.integers(0, 256, (height, width), dtype=np.uint8)
    placed = place_as_digit(levels * (generator.random((height, width)) < ink), size)
    assert tuple(placed.shape) == (1, *size)


# ---------------------------------------------------------------- what is no image


def broken_checksum():
    content = bytearray(PLAIN)
    content[29] ^= 1  # of the header
    return bytes(content)


def wrong_data():
    return png(28, 28, b"this is not compressed")


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>'
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
NO_IMAGES = {
    "TIFF": file_of(four(), "TIFF"),
    "ICO": file_of(four().convert("RGB"), "ICO"),
    "PPM": file_of(four(), "PPM"),
    "EPS": EPS,
    "SVG": SVG,
    "PDF": file_of(four(), "PDF"),
    "text": b"a digit, please",
    "nothing": b"",
    "zeros": bytes(1000),
    "cut PNG": PLAIN[: len(PLAIN) // 2],
    "cut PNG header": PLAIN[:20],
    "cut JPEG": file_of(four(), "JPEG")[:300],
    "cut GIF": file_of(four(), "GIF")[:60],
    "cut WebP": FILES["WebP"][:60],
    "cut BMP": file_of(four(), "BMP")[:200],
    "PNG with a wrong checksum": broken_checksum(),
    "PNG with wrong data": wrong_data(),
    "PNG without pixels": png(0, 0, zlib.compress(b"")),
}


@pytest.mark.parametrize("kind", NO_IMAGES)
@pytest.mark.parametrize("model", ["mnist", "fashion-mnist"])
def test_what_is_no_image_is_refused_with_a_sentence(client, kind, model):
    said = refusal(upload(client, NO_IMAGES[kind], model), 422)
    assert said.startswith("This cannot be read as an image: ")
    assert said.endswith(". Give a PNG or JPEG file.")
    assert "0x" not in said, "no addresses of objects"
    assert ".." not in said


@settings(max_examples=60)
@given(content=st.binary(max_size=300), beginning=st.sampled_from(["", *FILES]), at=st.integers(0, 400))
def test_random_bytes_are_an_image_or_a_refusal(client, content, beginning, at):
    answer = upload(client, FILES[beginning][:at] + content if beginning else content)
    assert answer.status_code in (200, 422)
    if not beginning:
        refusal(answer, 422)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(FILES)), changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=8)
)
def test_damaged_files_are_an_image_or_a_refusal(client, kind, changes):
    content = bytearray(FILES[kind])
    for place, byte in changes:
        content[place % len(content)] = byte
    assert upload(client, bytes(content)).status_code in (200, 422)


# ---------------------------------------------------------------- too much


def compressible(width, height):
    """A real image, a thousandth as large as its pixels."""
    row = bytes(1 + width)
    squeeze = zlib.compressobj(1)
    return b"".join([*(squeeze.compress(row) for _ in range(height)), squeeze.flush()])


@pytest.mark.parametrize(
    ("width", "height", "data"),
    [
        (50_000, 50_000, b""),
        (2**31 - 1, 2**31 - 1, b""),
        (2**31 - 1, 1, b""),
        (10_000, 10_000, compressible(10_000, 10_000)),
        (4_000, 4_001, b""),
    ],
)
def test_too_many_pixels_are_refused_before_they_are_decoded(client, width, height, data):
    content = png(width, height, data)
    tracemalloc.start()
    begin = time.perf_counter()
    answer = upload(client, content)
    seconds, (_, most) = time.perf_counter() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "too many pixels" in refusal(answer, 422)
    assert seconds < 1
    assert most < 5e6 + 3 * len(content)


def test_as_many_pixels_as_may_be_are_read():
    content = png(4000, MOST_PIXELS // 4000, compressible(4000, MOST_PIXELS // 4000))
    assert not read(content).any()


def test_a_text_that_swells_inside_a_png_is_refused(client):
    swollen = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(100_000_000), 9))
    content = PLAIN[:33] + swollen + PLAIN[33:]
    answer = upload(client, content)
    assert answer.status_code in (200, 422), "Pillow stops at a megabyte"


def test_a_file_that_is_too_large_is_refused(client):
    assert "8,000,000 bytes" in refusal(upload(client, PLAIN + bytes(MOST_UPLOAD)), 413)
    assert upload(client, PLAIN + bytes(MOST_UPLOAD - len(PLAIN))).status_code == 200


def test_json_that_is_too_large_is_refused(client):
    answer = client.post("/api/models/mnist/look", json={"pixels": "A" * MOST_JSON})
    assert f"{MOST_JSON:,} bytes" in refusal(answer, 413)


@pytest.mark.parametrize(("what", "most"), [("look", MOST_JSON), ("upload", MOST_UPLOAD)])
@pytest.mark.parametrize("length", [None, "10", "0"])
def test_a_body_in_pieces_is_stopped_when_it_is_too_large(explorer, what, most, length):
    headers = [("host", "localhost")] + ([] if length is None else [("content-length", length)])
    pieces = [bytes(100_000)] * 200
    path = f"/api/models/mnist/{what}"
    status, _, body, unread = raw_request(explorer, path, method="POST", headers=headers, body=pieces)
    assert status == 413
    assert f"{most:,} bytes" in told(body)
    assert len(pieces) - unread == most // 100_000 + 1, "no more is read than is needed to see it"


@pytest.mark.parametrize("length", ["1000001", "9" * 30, "9" * 5000, "-1", "ten", "1e3", "²", ""])
def test_a_length_that_cannot_be_is_refused_unread(explorer, length):
    headers = [("host", "localhost"), ("content-length", length)]
    status, _, body, unread = raw_request(
        explorer, "/api/models/mnist/look", method="POST", headers=headers, body=[b"{}", b""]
    )
    assert (status, unread) == (413, 2)
    assert "bytes" in told(body)
