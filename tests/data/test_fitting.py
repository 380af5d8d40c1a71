"""How images of other sizes are brought to a model's shape, and that it is told."""

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data.dataset import Files
from torchcaps.data.image_folder import ImageFolder
from torchcaps.data.options import DataOptions
from torchcaps.data.pictures import fit_image
from torchcaps.data.registry import make_dataset
from torchcaps.errors import DataError
from torchcaps.training.errors import RunError
from torchcaps.training.tasks import ImageTask


def thirds(width=90, height=30):
    """Left 50, middle 150, right 250."""
    columns = np.repeat([50, 150, 250], width // 3).astype(np.uint8)
    return Image.fromarray(np.broadcast_to(columns, (height, width)).copy())


def test_letterbox_has_all_and_bars():
    pixels = fit_image(thirds(), (1, 30, 30))[0]
    assert (pixels[:10] == 0).all()
    assert (pixels[20:] == 0).all()
    assert pixels[15, [4, 15, 25]].tolist() == [50, 150, 250]


def test_crop_has_the_middle_and_no_bars():
    assert set(fit_image(thirds(), (1, 30, 30), "crop")[0].flatten().tolist()) == {150}
    tall = fit_image(thirds().rotate(90, expand=True), (1, 30, 30), "crop")[0]
    assert set(tall.flatten().tolist()) == {150}
    assert fit_image(thirds(), (1, 10, 30), "crop")[0, 5, [4, 15, 25]].tolist() == [50, 150, 250]


def test_stretch_has_all_and_no_bars():
    pixels = fit_image(thirds(), (1, 30, 30), "stretch")[0]
    assert pixels[0, [4, 15, 25]].tolist() == [50, 150, 250]
    assert pixels.min() == 50


@pytest.mark.parametrize("fit", ["letterbox", "crop", "stretch"])
@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3000, 2000), (33, 7)])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 9), (1, 1, 30)])
def test_every_size_gets_the_shape(size, shape, fit):
    pixels = fit_image(Image.new("RGB", size, (200, 200, 200)), shape, fit)
    assert pixels.shape == shape
    if fit != "letterbox":
        assert (pixels == 200).all()


@pytest.mark.parametrize("fit", ["letterbox", "crop", "stretch"])
def test_images_of_the_shape_stay_as_they_are(fit):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9), dtype=np.uint8))
    assert np.array_equal(fit_image(image, (1, 9, 9), fit)[0], np.asarray(image))


@pytest.fixture
def photos(tmp_path):
    for name in ("a", "b"):
        for index, size in enumerate([(640, 480), (480, 640), (32, 32), (100, 50)]):
            image = Image.fromarray(np.random.default_rng(index).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / "photos" / name / f"{index}.png")
    return tmp_path / "photos"


def notices(folder, **options):
    said = []
    make_dataset(DataOptions(name=str(folder), options=options)).load("train", Files(notice=said.append))
    return said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["6 of 8 images, of 100×50 to 640×480 pixels", "to 32×32:", "black bars", "data.options.fit", "crop"]),
        ({"image_size": 48}, ["8 of 8 images, of 32×32 to", "are brought to 48×48", "data.options.image_size"]),
        ({"fit": "crop"}, ["cut off (crop)", "another way (letterbox, stretch)"]),
        ({"fit": "stretch"}, ["(stretch)", "another way (letterbox, crop)"]),
    ],
)
def test_what_is_done_to_photographs_is_told(photos, options, words):
    (said,) = notices(photos, **options)
    for word in words:
        assert word in said, said


def test_images_of_the_right_size_are_not_spoken_of(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(3):
            Image.new("L", (20, 12), 100 + index).save(tmp_path / name / f"{index}.png")
    assert notices(tmp_path) == []
    assert ImageFolder(str(tmp_path)).load("train").image_shape == (1, 12, 20)


def test_a_wrong_fit_is_refused(photos):
    with pytest.raises(DataError, match="fit must be letterbox, crop or stretch, got 'zoom'") as refused:
        notices(photos, fit="zoom")
    assert refused.value.option == "data.options.fit"
    with pytest.raises(DataError, match="no option 'image_shape'"):
        notices(photos, image_shape=[1, 2, 3])


@pytest.mark.parametrize("shape", [(1, 12, 20), (3, 20, 12), (3, 32, 32)])
def test_other_data_gets_the_model_s_own_shape(photos, shape):
    """Not a square of its height; grey or coloured as the model wants it, as predict does."""
    said = []
    task = ImageTask(("a", "b"), shape, fit="crop")
    source = task.evaluation_source(ImageFolder(str(photos)), "all", Files(notice=said.append), own=False)
    assert source.image_shape == shape
    assert len(source) == 8
    (text,) = said
    assert f"brought to {shape[2]}×{shape[1]}:" in text
    assert "(crop); as in training." in text
    one = fit_image(Image.open(photos / "a" / "0.png"), shape, "crop")
    assert torch.equal(source.batch(torch.tensor([0]), 0).inputs[0], one.float() / 255)
    assert torch.equal(next(iter(task.read_items([photos / "a" / "0.png"]))).inputs[0, 0], one.float() / 255)


def test_it_is_in_the_header():
    plain, cropped = (ImageTask(("a", "b"), (3, 8, 8), fit=fit) for fit in ("letterbox", "crop"))
    assert "fit" not in plain.to_header()  # as before
    assert ImageTask.from_header({**plain.to_header(), "options": {}}) == plain
    assert ImageTask.from_header({**cropped.to_header(), "options": {}}) == cropped
    several = ImageTask(("a", "b"), (3, 8, 8), multi_label=True)
    assert ImageTask.from_header({**several.to_header(), "options": {}}) == several
    for key, value in (("fit", "zoom"), ("fit", 3), ("fit", ["crop"]), ("multi_label", 1), ("multi_label", "yes")):
        with pytest.raises(RunError, match=key):
            ImageTask.from_header({**plain.to_header(), "options": {}, key: value})
