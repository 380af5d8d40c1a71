"""Digits in photographs: uneven light, tables, ruled paper, pencils, and empty sheets."""

import time

import numpy as np
import pytest
import torch
from asking import file_of, read
from PIL import Image, ImageDraw

from torchcaps.explorer.handwriting import place_as_digit
from torchcaps.run import load

STROKES = {  # of a hand, in a square of 100
    0: [[(50, 8), (25, 25), (22, 60), (40, 92), (62, 90), (78, 60), (74, 25), (50, 8)]],
    1: [[(52, 5), (48, 95)]],
    2: [[(22, 25), (40, 8), (68, 12), (72, 35), (45, 65), (20, 92), (80, 90)]],
    3: [[(22, 12), (60, 8), (72, 25), (48, 47), (74, 68), (62, 90), (22, 92)]],
    4: [[(38, 8), (20, 58), (80, 58)], [(64, 30), (60, 96)]],
    5: [[(72, 8), (30, 8), (27, 45), (60, 45), (75, 65), (62, 90), (22, 92)]],
    7: [[(20, 10), (80, 10), (45, 95)]],
    9: [[(70, 30), (45, 8), (26, 28), (40, 48), (70, 35), (64, 95)]],
}


def ink_of(digit, size=(600, 800), side=400, width=32):
    """1 where the pen was, with the digit in the middle."""
    image = Image.new("L", size[::-1], 0)
    draw, left, top = ImageDraw.Draw(image), (size[1] - side) / 2, (size[0] - side) / 2
    for stroke in STROKES[digit]:
        points = [(left + x * side / 100, top + y * side / 100) for x, y in stroke]
        draw.line(points, 255, width, "curve")
        for x, y in (points[0], points[-1]):
            draw.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], fill=255)
    return np.asarray(image) / 255


def photograph(reflected, falls=0.0, towards=0.0, noise=3.0, paper=225, seed=0):
    """A JPEG file of paper in light that falls by a share from one side to the other."""
    rows, columns = (np.linspace(-0.5, 0.5, length) for length in reflected.shape)
    along = np.sin(towards) * rows[:, None] + np.cos(towards) * columns
    light = 1 - falls * (along - along.min()) / np.ptp(along)
    seen = paper * reflected * light + np.random.default_rng(seed).normal(0, noise, reflected.shape)
    return file_of(seen.clip(0, 255).astype(np.uint8), "JPEG", quality=85)


@pytest.fixture(scope="module")
def sees():
    """The digit that the shipped model finds in a file, and how surely."""
    model = load("mnist").model

    def seen(content):
        with torch.inference_mode():
            lengths = model.eval()(torch.from_numpy(read(content))[None] / 255).capsules.activation[0]
        return int(lengths.argmax()), float(lengths.max())

    return seen


def surely(answer, digit):
    return answer[0] == digit and answer[1] > 0.6


@pytest.mark.parametrize("digit", STROKES)
@pytest.mark.parametrize("falls", [0, 0.1, 0.2, 0.35, 0.5])
@pytest.mark.parametrize("ink", [0.8, 0.25])  # a pen, and a pencil
def test_a_photograph_in_uneven_light_is_read(sees, digit, falls, ink):
    assert surely(sees(photograph(1 - ink * ink_of(digit), falls, towards=digit + 10 * falls)), digit)


@pytest.mark.parametrize("towards", np.arange(8) * np.pi / 4)
def test_a_large_photograph_is_the_digit_of_the_clean_picture(sees, towards):
    reflected = 1 - 0.8 * ink_of(7, (1200, 1600), 800, 64)
    content = photograph(reflected, 0.35, towards)
    assert surely(sees(content), 7)
    assert np.abs(read(content) - read(photograph(reflected, noise=0))).mean() < 2


@pytest.mark.parametrize("digit", STROKES)
@pytest.mark.parametrize("edge", range(4))
@pytest.mark.parametrize("ink", [0.8, 0.25])
def test_a_table_beside_the_paper_is_not_drawn(sees, digit, edge, ink):
    reflected = np.rot90(1 - ink * ink_of(digit, (600, 600)), edge).copy()
    reflected[:50] = 0.25
    assert surely(sees(photograph(np.rot90(reflected, -edge), 0.2, digit)), digit)


@pytest.mark.parametrize("digit", STROKES)
@pytest.mark.parametrize("lines", [0.15, 0.3])
def test_ruled_paper_is_not_drawn(sees, digit, lines):
    reflected = 1 - 0.8 * ink_of(digit)
    for row in range(20, 600, 66):
        reflected[row : row + 3] = np.minimum(reflected[row : row + 3], 1 - lines)
    assert surely(sees(photograph(reflected, 0.2, digit)), digit)


@pytest.mark.parametrize("digit", STROKES)
def test_specks_and_a_finger_are_not_drawn(sees, digit):
    reflected = 1 - 0.8 * ink_of(digit)
    reflected[450:, 20:90] = 0.5
    for row, column in [(30, 40), (100, 760), (560, 700)]:
        reflected[row : row + 5, column : column + 5] = 0.3
    assert surely(sees(photograph(reflected, 0.2, digit)), digit)


@pytest.mark.parametrize("digit", STROKES)
@pytest.mark.parametrize(
    ("size", "side", "width"),
    [((200, 200), 150, 40), ((20, 20), 20, 3), ((100, 80), 99, 10), ((600, 800), 550, 6), ((600, 800), 90, 6)],
    ids=["thick", "tiny", "cut closely", "thin", "small"],
)
@pytest.mark.parametrize("falls", [0, 0.35])
def test_strokes_of_every_width_are_read(sees, digit, size, side, width, falls):
    assert surely(sees(photograph(1 - 0.8 * ink_of(digit, size, side, width), falls, digit)), digit)


def test_a_thick_drawing_is_no_ground():
    page = Image.new("L", (200, 200), 255)
    page.paste(0, (30, 30, 170, 170))
    assert (read(file_of(page))[0, 4:24, 4:24] == 255).all()


@pytest.mark.parametrize("falls", [0, 0.2, 0.5])
@pytest.mark.parametrize(("size", "noise"), [((1200, 1600), 6), ((600, 800), 4), ((100, 100), 2)])
def test_empty_paper_in_uneven_light_has_no_digit(falls, size, noise):
    for towards in range(4):
        assert not read(photograph(np.ones(size), falls, towards, noise)).any()


def test_a_large_photograph_is_read_quickly():
    levels = np.random.default_rng(0).normal(60, 9, (1024, 1024)).clip(0, 255)
    levels[300:700, 400:450] = 220
    begin = time.perf_counter()
    assert place_as_digit(levels.astype(np.uint8), (28, 28)).any()
    assert time.perf_counter() - begin < 1, "it takes 20 ms on a machine that does nothing else"


@pytest.mark.parametrize("size", [(4000, 3), (3999, 4000), (65, 2113), (9, 9)])
def test_pictures_of_any_size_are_cut(size):
    levels = np.zeros(size, dtype=np.uint8)
    levels[size[0] // 3 : size[0] // 2, size[1] // 3 : size[1] // 2 + 1] = 200
    assert place_as_digit(levels, (28, 28)).max() == 255
