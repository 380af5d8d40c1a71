"""Drawings on a plain ground are told from photographs, and black bars from the picture between them."""

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from torchcaps.analysis.ground import find_content, find_ground, lay_on_black
from torchcaps.analysis.moments import measure_shape
from torchcaps.data.pictures import fit_image
from torchcaps.data.registry import dataset_class
from torchcaps.data.synthetic.viewpoints import render_instances
from torchcaps.errors import InputError


def textures(count=60, channels=3, side=32, grain=4, seed=0):
    """Like photographs: smooth, of any colour, each another."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, grain, grain, generator=generator)
    return F.interpolate(coarse, (side, side), mode="bilinear", align_corners=True).clamp(0.02, 1)


def skies(count=60, side=32, seed=0):
    """A plain sky of a hue of its own above a texture."""
    images = textures(count, side=side, grain=8, seed=seed)
    images[:, :, : side // 2] = torch.rand(count, 3, 1, 1, generator=torch.Generator().manual_seed(seed + 1))
    return images.clamp_min(0.02)


def drawings(ground, ink, count=40, side=24):
    """Rectangles of some colour on a ground of another."""
    generator = torch.Generator().manual_seed(0)
    images = torch.tensor(ground)[None, :, None, None].repeat(count, 1, side, side)
    for image in images:
        top, left = torch.randint(2, 9, (2,), generator=generator).tolist()
        image[:, top : top + 11, left : left + 5] = torch.tensor(ink)[:, None, None]
    return (images + 0.02 * torch.randn(images.shape, generator=generator)).clamp(0, 1)


def letterboxed(count, size, side=32, seed=0):
    """Textures of a width and height, brought to a square as files are."""
    pictures = textures(count, side=64, seed=seed).mul(255).byte()
    return (
        torch.stack(
            [
                fit_image(Image.fromarray(picture.permute(1, 2, 0).numpy()).resize(size), (3, side, side))
                for picture in pictures
            ]
        ).float()
        / 255
    )


def test_digits_lie_on_black():
    digits = dataset_class("mnist-mini")().load("test").images[:300].float() / 255
    found = find_ground(digits)
    assert found.colour.tolist() == [0]
    assert found.content is None
    assert found.barred == 0
    assert found.plain > 0.99


def test_solids_lie_on_grey():
    found = find_ground(render_instances((0,), (20,), (30, 60)).float() / 255)
    assert found.colour is not None
    assert 0.5 < float(found.colour) < 0.9
    assert found.content is None


@pytest.mark.parametrize(
    ("ground", "ink"),
    [([0.0], [1.0]), ([1.0], [0.0]), ([0.9, 0.9, 0.8], [0.1, 0.2, 0.6]), ([0.0, 0.4, 0.0], [1.0, 0.4, 0.0])],
)
def test_the_colour_of_a_plain_ground_is_found(ground, ink):
    found = find_ground(drawings(ground, ink))
    assert found.colour.tolist() == pytest.approx(ground, abs=0.03)


@pytest.mark.parametrize(
    "images",
    [
        torch.rand(50, 1, 32, 32, generator=torch.Generator().manual_seed(0)),
        torch.rand(50, 3, 32, 32, generator=torch.Generator().manual_seed(0)),
        textures(),
        textures(channels=1),
        textures(grain=16),
        skies(),
        letterboxed(40, (640, 480)),
        letterboxed(40, (640, 360)),
        letterboxed(40, (900, 200)),
        torch.cat([drawings([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], count=20, side=32), textures(20)]),
    ],
    ids=["noise", "colour-noise", "textures", "grey", "fine", "skies", "4:3", "16:9", "panorama", "mixed"],
)
def test_photographs_have_no_plain_ground(images):
    assert find_ground(images).colour is None


@pytest.mark.parametrize(
    ("size", "side", "begin", "end"),
    [
        ((640, 480), 32, (4, 0), (28, 32)),
        ((480, 640), 32, (0, 4), (32, 28)),
        ((640, 360), 32, (7, 0), (25, 32)),
        ((700, 480), 32, (5, 0), (27, 32)),
        ((640, 500), 32, (3, 0), (28, 32)),  # an odd rest
        ((640, 400), 33, (6, 0), (27, 33)),
        ((500, 500), 32, (0, 0), (32, 32)),
    ],
)
def test_bars_are_where_files_get_them(size, side, begin, end):
    images = letterboxed(3, size, side)
    expected = torch.zeros(side, side, dtype=torch.bool)
    expected[begin[0] : end[0], begin[1] : end[1]] = True
    assert all(bool((content[0] == expected).all()) for content in find_content(images))


def test_bars_are_counted_for_each_image():
    images = torch.cat([letterboxed(5, (640, 480)), letterboxed(7, (480, 640)), letterboxed(6, (480, 480))])
    found = find_ground(images)
    assert found.barred == 12
    assert found.content.shape == (18, 1, 32, 32)
    assert bool(found.content[12:].all())


def test_what_is_no_bar():
    black = torch.zeros(1, 3, 16, 16)
    framed = F.pad(torch.ones(1, 3, 8, 8), (4, 4, 4, 4))
    uneven = F.pad(torch.ones(1, 3, 10, 16), (0, 0, 1, 5))
    one_side = F.pad(torch.ones(1, 3, 12, 16), (0, 0, 4, 0))
    stroke = torch.zeros(1, 3, 16, 16)
    stroke[..., 5:11, 3:6] = 1
    stroke[..., 8, :] = 1
    assert bool(find_content(torch.cat([black, framed, uneven, one_side, stroke])).all())


def test_drawings_between_bars_are_drawings():
    drawn = drawings([1.0, 1.0, 1.0], [0.1, 0.1, 0.4])
    found = find_ground(F.pad(drawn, (0, 0, 4, 4)))
    assert found.colour.tolist() == pytest.approx([1, 1, 1], abs=0.05)
    assert found.barred == len(drawn)
    shape = measure_shape(lay_on_black(F.pad(drawn, (0, 0, 4, 4)), found.colour, found.content))
    assert shape.height.mean() == pytest.approx(11, abs=0.5)
    assert shape.width.mean() == pytest.approx(5, abs=0.5)


def test_a_drawing_is_measured_alike_on_every_ground():
    drawn = torch.zeros(1, 3, 9, 9)
    drawn[..., 2:7, 3:5] = 0.75
    assert torch.equal(lay_on_black(1 - drawn, torch.ones(3)), lay_on_black(drawn, torch.zeros(3)))
    digits = torch.rand(4, 1, 8, 8)
    assert torch.equal(lay_on_black(digits, torch.zeros(1)), digits.mean(dim=1))


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="at least one, channels"):
        find_ground(torch.rand(3, 8, 8))
    with pytest.raises(InputError, match="at least one, channels"):
        find_ground(torch.rand(0, 1, 8, 8))
