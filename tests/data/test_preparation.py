"""Size, standardisation and patches: known answers, and randomness that belongs to seed and index."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data import preparation as module
from torchcaps.data.images import Images, ImageSet
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import Augmentation, AugmentedImages, Preparation, PreparedImages
from torchcaps.data.registry import dataset_class, make_image_dataset
from torchcaps.data.sources import evaluation_source, training_sources
from torchcaps.errors import DataError


def some_images(count=40, height=12, width=12, channels=2):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, height, width), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % 3, ("a", "b", "c"))


def numbered(height, width):
    """One image whose pixels say where they are."""
    return torch.arange(height * width, dtype=torch.uint8).view(1, 1, height, width)


def test_a_whole_factor_is_the_mean_of_the_pixels():
    image = torch.tensor([[0, 2, 10, 10], [4, 6, 10, 10], [255, 255, 1, 0], [255, 255, 0, 0]], dtype=torch.uint8)
    assert Preparation(resize=2).resize_images(image[None, None])[0, 0].tolist() == [[3, 10], [255, 0]]
    assert Preparation(resize=1).resize_images(image[None, None]).tolist() == [[[[67]]]]  # 1073 / 16


@pytest.mark.parametrize("side", [5, 8, 12, 20])
def test_other_sizes_keep_the_range_and_the_mean(side):
    data = some_images().images
    found = Preparation(resize=side).resize_images(data)
    assert found.shape == (40, 2, side, side)
    assert found.dtype == torch.uint8
    assert abs(float(found.float().mean() - data.float().mean())) < 3
    flat = torch.full((1, 1, 12, 12), 255, dtype=torch.uint8)
    assert (Preparation(resize=side).resize_images(flat) == 255).all()


def test_shrinking_does_not_alias():
    stripes = torch.tensor([0, 200], dtype=torch.uint8).repeat(20).expand(1, 1, 40, 40)
    inside = Preparation(resize=15).resize_images(stripes)[..., 2:-2, 2:-2]
    assert 80 < int(inside.min()) <= int(inside.max()) < 120  # bilinear alone would show stripes again


def test_proportions_stay():
    assert Preparation(resize=6).resize_images(some_images(2, 12, 24).images).shape == (2, 2, 6, 12)
    assert Preparation(resize=6).resize_shape((1, 30, 20)) == (1, 9, 6)
    assert Preparation(resize=6, crop=4).input_shape((1, 30, 20)) == (1, 4, 4)
    assert Preparation().input_shape((1, 30, 20)) == (1, 30, 20)


def test_resizing_in_parts_is_the_same(monkeypatch):
    data = some_images().images
    whole = Preparation(resize=7).resize_images(data)
    monkeypatch.setattr(module, "AT_A_TIME", 3)
    assert torch.equal(Preparation(resize=7).resize_images(data), whole)
    assert Preparation().resize_images(data) is data


def test_standardised_images_have_mean_zero_and_variance_one():
    values = Preparation(standardize=True).scale_values(some_images().images)
    assert values.dtype == torch.float32
    assert torch.allclose(values.mean(dim=(1, 2, 3)), torch.zeros(40), atol=1e-6)
    assert torch.allclose(values.var(dim=(1, 2, 3), correction=0), torch.ones(40), atol=1e-5)
    pair = torch.tensor([1, 3], dtype=torch.uint8).view(1, 2, 1, 1)  # the channels count together
    assert Preparation(standardize=True).scale_values(pair).flatten().tolist() == [-1, 1]


@given(st.integers(0, 255))
def test_a_constant_image_becomes_zero(level):
    flat = torch.full((2, 3, 7, 9), level, dtype=torch.uint8)
    assert (Preparation(standardize=True).scale_values(flat) == 0).all()
    flat[0, 0, 0, 0] = 255 - level  # hardly constant
    assert Preparation(standardize=True).scale_values(flat).isfinite().all()


def test_an_image_is_the_same_in_every_batch_to_the_bit():
    data = some_images().images
    prepared = Preparation(resize=10, standardize=True, crop=6, crops=13)
    together = prepared.cut_patches(prepared.resize_images(data))
    alone = [prepared.cut_patches(prepared.resize_images(image[None])) for image in data]
    assert torch.equal(together, torch.cat(alone))


def test_the_central_patch():
    image = numbered(5, 6)
    patch = (Preparation(crop=3).cut_patches(image)[0, 0, 0] * 255).round()
    assert patch.tolist() == [[7, 8, 9], [13, 14, 15], [19, 20, 21]]
    assert torch.equal(Preparation().cut_patches(image)[:, 0], image.float() / 255)
    assert torch.equal(Preparation(crop=5).cut_centre(numbered(5, 5)), numbered(5, 5))


def test_thirteen_patches_are_a_grid_and_the_centres_of_its_squares():
    size, crop = 14, 6  # room of 8: 0, 4, 8 and between them 2, 6
    corners = (Preparation(crop=crop, crops=13).cut_patches(numbered(size, size))[0, :, 0, 0, 0] * 255).round().int()
    places = [(int(corner) // size, int(corner) % size) for corner in corners]
    grid = [(row, column) for row in (0, 4, 8) for column in (0, 4, 8)]
    assert places == [*grid, (2, 2), (2, 6), (6, 2), (6, 6)]
    first = Preparation(crop=crop, crops=13).cut_patches(numbered(size, size))
    assert torch.equal(first[:, 4], Preparation(crop=crop).cut_patches(numbered(size, size))[:, 0])  # the centre


def test_standardisation_is_of_the_whole_image_not_of_the_patch():
    data = some_images(3).images
    whole = Preparation(standardize=True).scale_values(data)
    assert torch.equal(Preparation(standardize=True, crop=8).cut_patches(data)[:, 0], whole[..., 2:10, 2:10])


def augmented():
    return AugmentedImages(
        some_images(), Preparation(standardize=True, crop=7), Augmentation(brightness=0.3, contrast=0.4)
    )


def test_training_depends_on_seed_and_index_alone():
    source = augmented()
    assert source.input_shape == (2, 7, 7)
    assert source.image_shape == (2, 12, 12)
    indices = torch.tensor([5, 17, 3, 39])
    together = source.batch(indices, 7)
    for row, index in enumerate(indices):
        for one, many in zip(source.batch(index[None], 7), together, strict=True):
            assert torch.equal(one[0], many[row])
    again = source.batch(indices.flip(0), 7)
    assert torch.equal(again.inputs.flip(0), together.inputs)
    assert not torch.equal(source.batch(indices, 8).inputs, together.inputs)


def test_patches_come_from_everywhere_and_the_targets_are_their_pixels():
    height, width, crop = 9, 11, 7
    data = ImageSet(numbered(height, width).expand(900, -1, -1, -1), torch.arange(900) % 2, ("a", "b"))
    batch = AugmentedImages(data, Preparation(crop=crop)).batch(torch.arange(900), 3)
    assert torch.equal(batch.inputs, batch.targets)
    levels = (batch.targets[:, 0] * 255).round().int()
    corners = levels[:, 0, 0]
    assert torch.equal(levels[:, -1, -1] - corners, torch.full((900,), (crop - 1) * (width + 1), dtype=torch.int32))
    counts = corners.bincount(minlength=height * width).view(height, width)
    assert counts.sum() == counts[:3, :5].sum() == 900
    assert 30 < int(counts[:3, :5].min()) <= int(counts[:3, :5].max()) < 95  # 60 each


def test_brightness_and_contrast_stay_in_their_bounds_and_reach_them():
    indices = torch.arange(40)
    plain = AugmentedImages(some_images(), Preparation(standardize=True, crop=7))
    factors, added = [], []
    for seed in range(20):
        before, after = plain.batch(indices, seed), augmented().batch(indices, seed)
        assert torch.equal(before.targets, after.targets)  # a decoder draws the picture as it was
        old, new = before.inputs.flatten(1), after.inputs.flatten(1)
        factors.append(new.std(dim=1) / old.std(dim=1))
        added.append(new.mean(dim=1) - old.mean(dim=1))
        rest = new - new.mean(dim=1, keepdim=True) - factors[-1][:, None] * (old - old.mean(dim=1, keepdim=True))
        assert rest.abs().max() < 1e-5
    factor, bright = torch.cat(factors), torch.cat(added)
    assert 0.6 - 1e-4 < factor.min() < 0.62 < 1.38 < factor.max() < 1.4 + 1e-4
    assert -0.3 - 1e-4 < bright.min() < -0.28 < 0.28 < bright.max() < 0.3 + 1e-4
    assert abs(float(torch.corrcoef(torch.stack([factor, bright]))[0, 1])) < 0.1


def test_targets_are_pixels_and_nothing_is_random_when_judged():
    data = some_images()
    source = PreparedImages(data, Preparation(resize=6, standardize=True, crop=4))
    first, second = (source.batch(torch.arange(5), seed) for seed in (1, 2))
    assert torch.equal(first.inputs, second.inputs)
    assert first.inputs.shape == first.targets.shape == (5, 2, 4, 4)
    small = Preparation(resize=6).resize_images(data.images[:5])
    assert torch.equal(first.targets, small[..., 1:5, 1:5].float() / 255)
    many = PreparedImages(data, Preparation(crop=4, crops=13)).batch(torch.arange(5), 0)
    assert many.inputs.shape == (5, 13, 2, 4, 4)
    assert many.targets.shape == (5, 2, 4, 4)


def test_shifts_still_work_without_a_crop():
    shifted = Images(some_images(), shift=2).batch(torch.arange(9), 5)
    lit = AugmentedImages(some_images(), Preparation(), Augmentation(shift=2, brightness=0.1)).batch(torch.arange(9), 5)
    assert torch.equal(lit.targets, shifted.inputs)
    difference = (lit.inputs - shifted.inputs).flatten(1)
    assert torch.allclose(difference, difference[:, :1].expand_as(difference), atol=1e-6)
    assert len(difference[:, 0].unique()) == 9


def sources_of(options, seed):
    return training_sources(make_image_dataset(options), options, seed)


def judged_on(options):
    return evaluation_source(make_image_dataset(options), Preparation.from_options(options))


MATRIX = DataOptions(resize=14, standardize=True, crop=10, shift=0, brightness=0.2, contrast=0.2, crops=13)


def test_a_recipes_options_make_the_sources():
    train, validation = sources_of(MATRIX, seed=0)
    assert isinstance(train, AugmentedImages)
    assert train.augmentation == Augmentation(brightness=0.2, contrast=0.2)
    assert train.preparation == Preparation(14, True, 10, 13)
    assert train.input_shape == (1, 10, 10)
    assert type(validation) is PreparedImages
    assert validation.batch(torch.arange(2), 0).inputs.shape == (2, 1, 10, 10)  # one patch, to be quick
    assert judged_on(MATRIX).batch(torch.arange(2), 0).inputs.shape == (2, 13, 1, 10, 10)


def test_without_the_options_nothing_changes():
    train, validation = sources_of(DataOptions(), seed=0)
    assert [type(source) for source in (train, validation, judged_on(DataOptions()))] == [Images] * 3


@pytest.mark.parametrize(
    ("options", "words", "option"),
    [
        ({"crop": 20}, "give shift 0 with it", "data.shift"),
        ({"crop": 29, "shift": 0}, "larger than the images, which are 28×28: choose at most 28", "crop"),
        ({"crop": 20, "resize": 14, "shift": 0}, "14×14 after resize 14", "crop"),
        ({"crops": 13}, "give data.crop", "data.crop"),
        ({"crops": 5, "crop": 3, "shift": 0}, "must be 1", "data.crops"),
        ({"crop": 0, "shift": 0}, "data.crop is a number of pixels", "data.crop"),
        ({"resize": -1}, "data.resize is a number of pixels", "data.resize"),
        ({"brightness": -0.1}, "data.brightness is the most that is added", "data.brightness"),
        ({"contrast": 1.5}, "data.contrast is the most that a factor differs", "data.contrast"),
        *(
            ({"name": "multi-mnist", **one}, "own canvas", f"data.{next(iter(one))}")
            for one in ({"crop": 20}, {"contrast": 0.1}, {"mirror": True})
        ),
        ({"name": "affine-mnist", "standardize": True}, "own canvas", "data.standardize"),
    ],
)
def test_what_cannot_be_prepared_is_refused(options, words, option):
    with pytest.raises(DataError) as caught:
        sources_of(DataOptions(**options), seed=0)
    assert words in str(caught.value)
    assert caught.value.option == option


def test_a_shift_is_no_matter_where_nothing_is_random():
    assert judged_on(DataOptions(crop=20, shift=2)).input_shape == (1, 20, 20)


@pytest.mark.parametrize("name", ["small-norb", "viewpoints"])
def test_the_protocol_reaches_both_data_sets_that_have_one(name):
    dataset = make_image_dataset(replace(MATRIX, name=name, options={"protocol": "azimuth"}))
    assert dataset == dataset_class(name)(protocol="azimuth")
    dataset.check_split("familiar")
    assert dataset.downloads == (name == "small-norb")
