"""Training images turned, scaled, slanted, erased and recoloured: known answers and exact references."""

import colorsys
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data.augmentation import choose_boxes, make_matrices, saturate, turn_hue, warp
from torchcaps.data.images import Images, ImageSet
from torchcaps.data.options import AUGMENTATIONS, DataOptions
from torchcaps.data.preparation import Augmentation, AugmentedImages, Preparation
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import training_sources
from torchcaps.errors import DataError

STILL = torch.zeros(1, 2, dtype=torch.int64)


def some_images(count=40, height=13, width=10, channels=3):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, height, width), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % 2, ("a", "b"))


def changed(image, rotation=0.0, scale=1.0, shear=0.0, shift=(0, 0)):
    """One grey image ``[H, W]``, warped."""
    return warp(image[None, None], make_matrices([rotation], [scale], [shear]), torch.tensor([shift]))[0, 0]


def by_hand(image, rotation, scale, shear, shift):
    """The same in loops, in float64: every pixel asks where it comes from."""
    height, width = image.shape
    a, r = math.tan(math.radians(shear)), math.radians(rotation)
    forward = (
        scale
        * torch.tensor(  # slant, then turn anticlockwise; x to the right, y down
            [[math.cos(r), math.sin(r)], [-math.sin(r), math.cos(r)]], dtype=torch.float64
        )
        @ torch.tensor([[1, -a], [0, 1]], dtype=torch.float64)
    )
    back = torch.linalg.inv(forward)
    out = torch.zeros(height, width, dtype=torch.float64)
    for row in range(height):
        for column in range(width):
            at = torch.tensor([column - (width - 1) / 2 - shift[1], row - (height - 1) / 2 - shift[0]]).double()
            x, y = (back @ at).tolist()
            x, y = x + (width - 1) / 2, y + (height - 1) / 2
            for i in (math.floor(y), math.floor(y) + 1):
                for j in (math.floor(x), math.floor(x) + 1):
                    if 0 <= i < height and 0 <= j < width:
                        out[row, column] += (1 - abs(y - i)) * (1 - abs(x - j)) * float(image[i, j])
    return out


def test_a_quarter_turn_is_anticlockwise():
    image = torch.arange(49, dtype=torch.uint8).view(7, 7)
    assert torch.equal(changed(image, rotation=90), torch.rot90(image))
    assert torch.equal(changed(image, rotation=180), torch.rot90(image, 2))
    assert torch.equal(changed(image), image)


def test_twice_as_large_and_a_slant_to_the_right():
    dot = torch.zeros(9, 9, dtype=torch.uint8)
    dot[3:6, 3:6] = 200
    assert (changed(dot, scale=2)[2:7, 2:7] == 200).all()
    assert int(changed(dot, scale=0.5).count_nonzero()) == 1  # its neighbours read two pixels away
    line = torch.zeros(9, 9, dtype=torch.uint8)
    line[:, 4] = 255
    assert changed(line, shear=45).argmax(dim=1).tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]  # the top leans to the right


def test_a_shift_alone_is_the_shift_of_before():
    source = some_images()
    plain = Images(source, shift=2).move(torch.arange(40), 3)
    offsets = AugmentedImages(source, Preparation(), Augmentation(shift=2, rotation=1e-9)).move(torch.arange(40), 3)
    assert torch.equal(plain, offsets)


@given(
    st.floats(-180, 180), st.floats(0.3, 2), st.floats(-60, 60),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)), st.sampled_from([(8, 8), (7, 12), (11, 5)]),
)  # fmt: skip
def test_warping_against_loops(rotation, scale, shear, shift, size):
    image = torch.randint(0, 256, size, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    found = changed(image, rotation, scale, shear, shift).double()
    expected = by_hand(image, rotation, scale, shear, shift)
    assert (found - expected).abs().max() < 0.51  # rounded to a grey level


def everything():
    augmentation = Augmentation(
        shift=2, mirror=True, brightness=0.2, contrast=0.2, rotation=30, scale=0.2, shear=10, erasing=0.6,
        saturation=0.5, hue=0.3,
    )  # fmt: skip
    return AugmentedImages(some_images(), Preparation(standardize=True), augmentation)


def test_an_image_is_the_same_in_every_batch_to_the_bit():
    source, indices = everything(), torch.tensor([5, 17, 3, 39, 0, 8, 9])
    together = source.batch(indices, 7)
    for row, index in enumerate(indices):
        for one, many in zip(source.batch(index[None], 7), together, strict=True):
            assert torch.equal(one[0], many[row])
    again = source.batch(indices.flip(0), 7)
    assert torch.equal(again.inputs.flip(0), together.inputs)
    assert not torch.equal(source.batch(indices, 8).inputs, together.inputs)


def test_the_number_of_threads_is_no_matter():
    source, indices = everything(), torch.arange(40)
    alone = source.batch(indices, 7)
    torch.set_num_threads(2)
    assert torch.equal(source.batch(indices, 7).inputs, alone.inputs)


def test_targets_are_moved_but_neither_erased_nor_recoloured():
    indices = torch.arange(40)
    moved = Augmentation(shift=1, rotation=20, scale=0.1)
    seen = Augmentation(shift=1, rotation=20, scale=0.1, erasing=1, saturation=0.5, hue=0.3, brightness=0.2)
    plain = AugmentedImages(some_images(), Preparation(), moved).batch(indices, 3)
    other = AugmentedImages(some_images(), Preparation(), seen).batch(indices, 3)
    assert torch.equal(plain.inputs, plain.targets)
    assert torch.equal(other.targets, plain.targets)
    assert not torch.equal(other.inputs, plain.inputs)


def test_numbers_are_of_their_own_and_reach_their_bounds():
    """A long bar, whose direction and length are what was drawn."""
    bar = torch.zeros(1, 1, 41, 41, dtype=torch.uint8)
    bar[..., 20, 5:36] = 255
    data = ImageSet(bar.expand(600, -1, -1, -1), torch.arange(600) % 2, ("a", "b"))
    images = AugmentedImages(data, Preparation(), Augmentation(rotation=40, scale=0.2)).move(torch.arange(600), 1)
    weights = images[:, 0].double() / images.sum(dim=(1, 2, 3)).double()[:, None, None]
    place = torch.arange(41, dtype=torch.float64) - 20
    xx, yy = (weights * place**2).sum(dim=(1, 2)), (weights * place[:, None] ** 2).sum(dim=(1, 2))
    xy = (weights * place * place[:, None]).sum(dim=(1, 2))
    angles = -0.5 * torch.atan2(2 * xy, xx - yy).rad2deg()
    sizes = ((xx + yy) / (31**2 / 12)).sqrt()
    assert -40.5 < angles.min() < -39
    assert 39 < angles.max() < 40.5
    assert abs(angles.mean()) < 2
    assert 0.77 < sizes.min() < 0.83
    assert 1.17 < sizes.max() < 1.23
    assert abs(float(torch.corrcoef(torch.stack([angles, sizes]))[0, 1])) < 0.1


@pytest.mark.parametrize("size", [(28, 28), (32, 43), (40, 8)])
def test_erased_rectangles_are_those_of_the_paper(size):
    height, width = size
    boxes = choose_boxes(5, torch.arange(4000), 0.5, size)
    there = [box for box in boxes if box.height]
    assert 1880 < len(there) < 2120
    assert all(box.top >= 0 and box.top + box.height <= height for box in there)
    assert all(box.left >= 0 and box.left + box.width <= width for box in there)
    areas = torch.tensor([box.height * box.width / (height * width) for box in there])
    assert 0.01 < areas.min() < 0.03
    assert 0.31 < areas.max() < 0.37
    assert abs(float(areas.mean()) - 0.175) < 0.01  # uniform
    if height == width:
        aspects = torch.tensor([box.height / box.width for box in there]).log()
        assert aspects.min() < math.log(0.4)
        assert aspects.max() > math.log(2.6)
        assert abs(aspects.mean()) < 0.05
    assert {box.top for box in there} >= {0}
    assert max(box.top + box.height for box in there) == height


def test_erasing_fills_with_noise_and_leaves_the_rest():
    data = ImageSet(torch.full((300, 1, 20, 20), 100, dtype=torch.uint8), torch.arange(300) % 2, ("a", "b"))
    erased = AugmentedImages(data, Preparation(), Augmentation(erasing=1.0)).batch(torch.arange(300), 2)
    touched = erased.inputs != erased.targets
    assert (touched.flatten(1).sum(dim=1) > 0).all()
    noise = erased.inputs[touched]
    assert noise.min() >= 0
    assert noise.max() < 1
    assert abs(float(noise.mean()) - 0.5) < 0.02
    assert abs(float(noise.std()) - 1 / math.sqrt(12)) < 0.02
    assert len(noise.unique()) > 0.9 * len(noise)
    nothing = AugmentedImages(data, Preparation(), Augmentation(erasing=1e-9)).batch(torch.arange(300), 2)
    assert torch.equal(nothing.inputs, nothing.targets)


@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=20), st.floats(-0.5, 0.5))
def test_hue_against_colorsys(colours, turn):
    values = (torch.tensor(colours).float() / 255).T.reshape(1, 3, 1, -1)
    found = turn_hue(values, [turn])[0, :, 0].T
    for colour, now in zip(colours, found.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in colour))
        assert now == pytest.approx(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), abs=2e-5)


def test_a_standardised_image_has_the_hues_of_the_image():
    values = some_images(4).images.float() / 255
    turned = turn_hue(values * 3 - 1.7, [0.1, -0.4, 0.5, 0.25])
    assert torch.allclose(turned, turn_hue(values, [0.1, -0.4, 0.5, 0.25]) * 3 - 1.7, atol=1e-5)


def test_saturation():
    values = some_images(3).images.float() / 255
    grey = (values * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(dim=1, keepdim=True)
    found = saturate(values, [0.0, 1.0, 1.5])
    assert torch.allclose(found[0], grey[0].expand(3, -1, -1), atol=1e-6)
    assert torch.allclose(found[1], values[1], atol=1e-6)
    assert torch.allclose(found[2], 1.5 * values[2] - 0.5 * grey[2], atol=1e-6)


def test_patches_are_cut_from_the_turned_image():
    source = AugmentedImages(some_images(height=20, width=20), Preparation(crop=8), Augmentation(rotation=45))
    batch = source.batch(torch.arange(20), 1)
    assert batch.inputs.shape == (20, 3, 8, 8)
    assert torch.equal(batch.inputs, batch.targets)


def sources_of(options):
    chosen = DataOptions(**options)
    return training_sources(make_image_dataset(chosen), chosen, 0)


@pytest.mark.parametrize(
    ("options", "words", "option"),
    [
        ({"rotation": 181}, "data.rotation is the most degrees", "data.rotation"),
        ({"rotation": math.nan}, "data.rotation is the most degrees", "data.rotation"),
        ({"scale": 1.0}, "in [0, 1)", "data.scale"),
        ({"shear": 90}, "in [0, 90)", "data.shear"),
        ({"erasing": 1.1}, "data.erasing is a probability", "data.erasing"),
        ({"saturation": -0.1}, "data.saturation is the most", "data.saturation"),
        ({"hue": 0.6}, "in [0, 0.5]", "data.hue"),
        ({"hue": 0.1}, "hue would change the colours of RGB images, and these are grey", "data.hue"),
        ({"saturation": 0.1, "hue": 0.1}, "saturation and hue would", "data.saturation"),
        ({"name": "multi-mnist", "rotation": 5}, "own canvas: rotation cannot be given; resize, ", "data.rotation"),
        ({"name": "affine-mnist", "erasing": 0.5}, "own canvas", "data.erasing"),
    ],
)
def test_what_cannot_be_is_refused(options, words, option):
    with pytest.raises(DataError) as caught:
        sources_of(options)
    assert words in str(caught.value)
    assert caught.value.option == option


def test_every_option_reaches_the_training_images():
    options = {name: 1 if name == "shift" else 0.3 for name in AUGMENTATIONS if name not in ("saturation", "hue")}
    train, validation = sources_of({**options, "mirror": True})
    assert train.augmentation == Augmentation(**options, mirror=True)
    assert torch.equal(validation.batch(torch.arange(3), 0).inputs, validation.batch(torch.arange(3), 1).inputs)
