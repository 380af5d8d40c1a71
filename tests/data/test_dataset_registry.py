"""Data sets by name and path, their options as plain data, and registering one's own."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch

import torchcaps
from torchcaps.data import registry
from torchcaps.data.dataset import Dataset, Files, ImageDataset
from torchcaps.data.image_arrays import ImageArrays
from torchcaps.data.image_folder import ImageFolder
from torchcaps.data.images import ImageSet
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.registry import (
    dataset_class,
    find_dataset,
    keep_own_options,
    list_datasets,
    make_dataset,
    make_image_dataset,
    make_text_dataset,
    option_names,
    register_dataset,
)
from torchcaps.data.synthetic.composed import AffineMNIST
from torchcaps.data.text.files import TextFile
from torchcaps.errors import DataError, InputError

IMAGES = {"mnist-mini", "mnist", "fashion-mnist", "cifar10", "small-norb", "affnist", "viewpoints"} | {
    "multi-mnist",
    "affine-mnist",
}
TEXTS = {"mr-mini", "mr", "subj", "cr", "mpqa", "trec", "sst1", "sst2", "reuters", "reuters8"}


@pytest.fixture
def forget(monkeypatch):
    """What a test registers is gone after it."""
    list_datasets()
    monkeypatch.setattr(registry, "_DATASETS", dict(registry._DATASETS))


def test_the_data_sets_that_come_with_the_package():
    assert set(list_datasets("images")) == IMAGES
    assert set(list_datasets("texts")) == TEXTS
    assert set(list_datasets()) == IMAGES | TEXTS


@pytest.mark.parametrize("name", sorted(IMAGES | TEXTS))
def test_every_data_set_describes_itself(name):
    cls = dataset_class(name)
    assert (cls.name, cls().title) == (name, name)
    assert cls.description()
    assert {"train", "test"} <= set(cls.splits)
    assert make_dataset(DataOptions(name=name)) == cls()
    with pytest.raises(DataError, match="nowhere"):
        cls().load("nowhere")


def test_a_path_is_read_by_what_is_there(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "train.tsv").write_text("")
    for name, cls in (("texts", TextFile), (".", ImageFolder), ("a.csv", TextFile), ("a.npz", ImageArrays)):
        assert find_dataset(str(tmp_path / name)) is cls
    folder = make_dataset(DataOptions(str(tmp_path), options={"image_size": 20, "unreadable": "skip"}))
    assert folder == ImageFolder(str(tmp_path), 20, "skip")
    assert folder.title == str(tmp_path)
    columns = make_dataset(DataOptions("a.jsonl", options={"text_column": "review"}))
    assert columns == TextFile("a.jsonl", "review", "label")
    assert option_names(TextFile) == ["text_column", "label_column", "label_separator"]


@dataclass(frozen=True)
class Typed(ImageDataset):
    """Options of every type."""

    count: int = 1
    scale: float = 1.0
    deep: bool = False
    label: str = ""
    most: int | None = None
    way: Literal["up", "down", 3] = "up"


GOOD = [
    {"count": 3},
    {"scale": 2},
    {"scale": 0.5},
    {"deep": True},
    {"label": "x"},
    {"most": 4},
    {"most": None},
    {"way": 3},
]
BAD = [
    {"count": True},
    {"count": 1.0},
    {"count": None},
    {"scale": True},
    {"scale": "1"},
    {"deep": 1},
    {"label": 3},
    {"most": "4"},
    {"most": False},
    {"way": "left"},
    {"way": 3.0},
    {"count": {"class_path": "os.system"}},
]


@pytest.mark.parametrize("options", GOOD)
def test_options_of_the_right_type(options, forget):
    register_dataset("typed")(Typed)
    assert make_dataset(DataOptions("typed", options=options)) == Typed(**options)


@pytest.mark.parametrize("options", BAD)
def test_options_of_a_wrong_type_are_refused(options, forget):
    register_dataset("typed")(Typed)
    (name,) = options
    with pytest.raises(DataError, match=f"{name} must be .*, got .*Options of typed: count .a whole number.") as caught:
        make_dataset(DataOptions("typed", options=options))
    assert caught.value.option == f"data.options.{name}"


@pytest.mark.parametrize(
    ("options", "words", "option"),
    [
        (DataOptions("mnist", options={"protocol": "azimuth"}), "mnist has no option 'protocol'.*none", "protocol"),
        (DataOptions("mr", options={"fld": 1}), "no option 'fld'.*fold .a whole number., fold_seed", "fld"),
        (DataOptions("mr", options={"fold": 10}), "0 … 9, got 10. Options of mr: fold", "fold"),
        (DataOptions("a.csv", options={"path": "b.csv"}), "no option 'path'. Options of a.csv: text_column", "path"),
        (DataOptions("viewpoints", options={"protocol": 3}), "instance, azimuth or elevation, got 3", "protocol"),
    ],
)
def test_options_that_cannot_be_name_those_that_can(options, words, option):
    with pytest.raises(DataError, match=words) as caught:
        make_dataset(options)
    assert caught.value.option == f"data.options.{option}"


def test_options_must_be_keys_with_values():
    with pytest.raises(DataError, match="keys with values"):
        make_dataset(DataOptions(options=[1]))


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(DataError, match="Did you mean 'small-norb'.*One's own data") as caught:
        make_dataset(DataOptions("small-nord"))
    assert caught.value.option == "data.name"


def test_images_are_not_texts():
    with pytest.raises(DataError, match="mr has texts, but images are needed"):
        make_image_dataset(DataOptions("mr"))
    with pytest.raises(DataError, match="mnist has images, but texts are needed"):
        make_text_dataset(DataOptions("mnist"))


def test_options_that_another_data_set_has_left_can_be_dropped():
    left = DataOptions("affine-mnist", options={"base": "mnist", "protocol": "azimuth"})
    assert make_dataset(keep_own_options(left)) == AffineMNIST("mnist")


def test_a_name_is_registered_once(forget):
    register_dataset("typed")(Typed)
    with pytest.raises(InputError, match="registered as 'typed' already"):
        register_dataset("typed")(Typed)


def test_what_is_no_data_set_cannot_be_registered(forget):
    class Plain(ImageDataset):
        """Without @dataclass: its fields would be no options."""

        side: int = 3

    @dataclass(frozen=True)
    class Needy(Dataset):
        side: int

    for wrong in (Plain, int, print):
        with pytest.raises(InputError, match="must be a dataclass that derives"):
            register_dataset("wrong")(wrong)
    with pytest.raises(InputError, match="needs a default; Needy has none for side"):
        register_dataset("wrong")(Needy)
    assert "wrong" not in list_datasets()


def test_a_data_set_of_ones_own_is_trained_on_like_any_other(forget):
    @register_dataset("stripes")
    @dataclass(frozen=True)
    class Stripes(ImageDataset):
        """Stripes, across or down."""

        side: int = 8

        def load(self, split, files=Files(), class_names=None):
            self.check_split(split)
            image = torch.zeros(2, 1, self.side, self.side, dtype=torch.uint8)
            image[0, :, ::2], image[1, ..., ::2] = 255, 255
            return ImageSet(image.repeat(20, 1, 1, 1), torch.arange(40) % 2, ("across", "down"))

    from torchcaps.data.sources import evaluation_source, training_sources

    options = DataOptions("stripes", options={"side": 6}, validation=0.25)
    dataset = make_image_dataset(options)
    train, validation = training_sources(dataset, options, seed=0)
    assert (len(train), len(validation), train.input_shape) == (30, 10, (1, 6, 6))
    assert evaluation_source(dataset).class_names == ("across", "down")
    assert Stripes.description() == "Stripes, across or down"


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: DataOptions(name=" "), "data.name"),
        (lambda: DataOptions(validation=1.0), "data.validation"),
        (lambda: DataOptions(shift=-1), "data.shift"),
        (lambda: DataOptions(brightness=float("nan")), "data.brightness"),
        (lambda: TextOptions(vector_size=0), "text.vector_size"),
        (lambda: TextOptions(min_count=0), "text.min_count"),
        (lambda: TextOptions(max_words=0), "text.max_words"),
        (lambda: TextOptions(max_length=0), "text.max_length"),
    ],
)
def test_options_check_themselves(make, option):
    with pytest.raises(DataError, match=option) as caught:
        make()
    assert caught.value.option == option


def test_data_knows_no_command_line():
    for path in (Path(torchcaps.__file__).parent / "data").rglob("*.py"):
        assert not re.search(r"--[a-z]", path.read_text(encoding="utf-8")), path


def test_options_need_no_torch():
    import subprocess
    import sys

    code = "import sys; import torchcaps.data.options; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
