"""Shapes drawn by hand come out with the width, slant, thickness and place that they were drawn with."""

import math

import pytest
import torch

from torchcaps.analysis.moments import Shape, measure_shape, perimeter


def rectangle(top: int, left: int, height: int, width: int, size: int = 40) -> torch.Tensor:
    image = torch.zeros(size, size)
    image[top : top + height, left : left + width] = 1
    return image


def leaning(slant: float, width: int = 4, height: int = 21, size: int = 60, right: float = 0.0) -> torch.Tensor:
    """A bar whose row k above the middle is shifted by ``slant·k`` columns, with soft edges for parts of a pixel."""
    rows = torch.arange(size) - (size - 1) / 2
    columns = torch.arange(size) - (size - 1) / 2
    centre = -slant * rows[:, None] + right
    inside = ((width + 1) / 2 - (columns - centre).abs()).clamp(0, 1)  # how much of a pixel the bar covers
    return inside * (rows.abs() <= height / 2)[:, None]


def turned_bar(degrees: float, width: float, length: float = 70, size: int = 101) -> torch.Tensor:
    """A bar at an angle; a pixel is covered as far as its centre is inside, softly over one pixel."""
    at = torch.arange(size) - (size - 1) / 2
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    across, along = at * cos + at[:, None] * sin, -at * sin + at[:, None] * cos
    return (width / 2 - across.abs() + 0.5).clamp(0, 1) * (length / 2 - along.abs() + 0.5).clamp(0, 1)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 8), (10, 2), (7, 7), (1, 20)])
def test_rectangles_have_exactly_their_sides(width, height):
    found = measure_shape(rectangle(5, 9, height, width))
    assert float(found.mass) == width * height
    assert float(found.width) == pytest.approx(width, abs=1e-4)
    assert float(found.height) == pytest.approx(height, abs=1e-4)
    assert float(found.slant) == pytest.approx(0, abs=1e-6)


def test_place_is_counted_from_the_centre_to_the_right_and_down():
    found = measure_shape(rectangle(10, 25, 4, 6, size=40))
    assert float(found.x) == pytest.approx(25 + 2.5 - 19.5, abs=1e-5)
    assert float(found.y) == pytest.approx(10 + 1.5 - 19.5, abs=1e-5)


@pytest.mark.parametrize("slant", [-1.0, -0.5, -0.2, 0.0, 0.25, 0.7, 1.0])
def test_bars_lean_as_they_were_drawn_and_are_not_wider_for_it(slant):
    found = measure_shape(leaning(slant))
    assert float(found.slant) == pytest.approx(slant, abs=0.005)
    assert float(found.width) == pytest.approx(4, abs=0.4)  # soft edges spread: 4.36 at most; with the slant up to 22
    assert float(found.height) == pytest.approx(float(measure_shape(leaning(0)).height), abs=1e-3)


def test_rows_shifted_by_whole_pixels_are_exact():
    image = torch.zeros(30, 40)
    for row in range(4, 24):
        image[row, 30 - row : 35 - row] = 1  # five columns, one further left per row downwards: leans right
    found = measure_shape(image)
    assert float(found.slant) == pytest.approx(1, abs=1e-5)
    assert float(found.width) == pytest.approx(5, abs=1e-3)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
def test_thickness_of_a_bar(width):
    """The two ends count as edge: w·l/(w + l), less half a percent for the corners."""
    length = 100
    found = measure_shape(rectangle(10, 20, length, width, size=120))
    assert float(found.thickness) == pytest.approx(width * length / (width + length), rel=0.01)
    assert float(found.thickness) == pytest.approx(width, rel=0.08)


@pytest.mark.parametrize("degrees", [0, 15, 30, 45, 60, 90])
@pytest.mark.parametrize("width", [3, 6])
def test_thickness_does_not_depend_on_the_direction(degrees, width):
    found = float(measure_shape(turned_bar(degrees, width)).thickness)
    assert found == pytest.approx(width * 70 / (width + 70), rel=0.04)


def test_perimeter_along_the_grid_and_at_45_degrees():
    triangle = torch.ones(50, 50).tril()
    assert float(perimeter(triangle)) == pytest.approx(50 + 50 + 50 * math.sqrt(2), rel=0.01)
    assert float(perimeter(rectangle(3, 3, 20, 30))) == pytest.approx(100, abs=4 - 4 * 0.7)


def test_shifting_changes_the_place_only():
    image = leaning(0.4)
    before, after = measure_shape(image), measure_shape(image.roll((3, -5), dims=(0, 1)))
    for name in ("mass", "width", "height", "slant", "thickness"):
        torch.testing.assert_close(getattr(after, name), getattr(before, name), atol=2e-4, rtol=1e-4)
    assert float(after.x - before.x) == pytest.approx(-5, abs=1e-4)
    assert float(after.y - before.y) == pytest.approx(3, abs=1e-4)


def test_brightness_changes_the_ink_only():
    image = leaning(0.4)
    bright, dim = measure_shape(image), measure_shape(image / 4)
    for name in Shape._fields[2:]:
        torch.testing.assert_close(getattr(dim, name), getattr(bright, name), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(dim.mass, bright.mass / 4)
    assert float(dim.peak) == float(bright.peak) / 4


@pytest.mark.parametrize("haze", [0.03, 0.1, 0.2])
def test_a_faint_haze_does_not_count(haze):
    """With the pixels themselves as weights a haze of 0.03 would make this bar sixteen pixels wide instead of four."""
    image = leaning(0.4)
    clear, hazy = measure_shape(image), measure_shape(image.clamp_min(haze))
    for name in Shape._fields[1:]:
        torch.testing.assert_close(getattr(hazy, name), getattr(clear, name), atol=1e-4, rtol=1e-4)
    assert float(hazy.mass) > float(clear.mass)


@pytest.mark.parametrize("width", [6, 8, 12])
def test_blur_hardly_counts(width):
    """Blur is symmetric at an edge, so a stroke that is thick compared with it keeps its width."""
    image = rectangle(20, 20, 60, width, size=100)
    spread = torch.exp(-(torch.arange(-6.0, 7.0) ** 2) / (2 * 1.2**2))
    kernel = (spread[:, None] * spread)[None, None] / spread.sum() ** 2
    blurred = torch.nn.functional.conv2d(image[None, None], kernel, padding=6)[0, 0]
    sharp, soft = measure_shape(image), measure_shape(blurred)
    assert float(soft.thickness) == pytest.approx(float(sharp.thickness), rel=0.15)
    assert float(soft.width) == pytest.approx(float(sharp.width), rel=0.15)


def test_a_mirror_turns_the_slant_round():
    found, mirrored = measure_shape(leaning(0.4, right=3)), measure_shape(leaning(0.4, right=3).flip(-1))
    assert float(mirrored.slant) == pytest.approx(-float(found.slant), abs=1e-5)
    assert float(mirrored.x) == pytest.approx(-float(found.x), abs=1e-4)


def test_black_is_all_zeros():
    assert all(float(value) == 0 for value in measure_shape(torch.zeros(9, 11)))


def test_batches_are_measured_one_by_one():
    images = torch.rand(2, 3, 12, 17)
    images[1, 2] = 0
    found = measure_shape(images)
    for row in range(2):
        for column in range(3):
            one = measure_shape(images[row, column])
            for name in Shape._fields:
                torch.testing.assert_close(getattr(found, name)[row, column], getattr(one, name))


def test_what_is_no_picture_is_refused():
    with pytest.raises(TypeError, match="floating point"):
        measure_shape(torch.zeros(4, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match="height, width"):
        measure_shape(torch.zeros(4))
