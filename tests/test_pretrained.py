"""The models that come with the package: they are there, small, what their cards say, and they work."""

import csv
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from torchcaps.commands.keys import read_keys
from torchcaps.models.capsnet import CapsNet
from torchcaps.pretrained import list_pretrained, pretrained_card, pretrained_samples, weights_path
from torchcaps.run import load

FOLDER = Path(str(files("torchcaps.pretrained")))
RESULTS = Path(__file__).parent.parent / "results" / "pretrained.csv"
NAMES = list_pretrained()
EVERY = pytest.mark.parametrize("name", NAMES)
SHAPES = {"mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "multi-mnist": (1, 36, 36)}
CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def found(name):
    """The classes that a model finds in its samples, sorted for each: ``[N, M]``."""
    model = load(name).model
    images = torch.from_numpy(pretrained_samples(name)["images"]).float() / 255
    with torch.inference_mode():
        return model(images).scores.topk(model.objects, dim=1).indices.sort(dim=1).values.numpy()


def rows():
    if not RESULTS.is_file():
        return {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_there_are_three():
    assert NAMES == ["mnist", "fashion-mnist", "multi-mnist"]
    assert {path.stem for path in FOLDER.glob("*.safetensors")} == set(NAMES)


def test_the_list_is_ones_own():
    list_pretrained().clear()
    assert list_pretrained() == NAMES


@EVERY
def test_a_model_is_ready_to_use(name):
    run = load(name)
    model, task = run.model, run.task
    assert isinstance(model, CapsNet)
    assert not model.training
    assert task.input_shape == task.image_shape == SHAPES[name]
    assert len(task.class_names) == 10
    assert model.objects == (2 if name == "multi-mnist" else 1)
    assert {weights.dtype for weights in model.parameters()} == {torch.float32}
    output = model(torch.rand(2, *task.image_shape))
    assert output.scores.shape == (2, 10)
    assert torch.isfinite(output.scores).all()
    assert output.reconstruction is not None


@EVERY
def test_weights_are_kept_with_16_bits(name):
    from safetensors.torch import load_file

    model = load(name).model
    kept = load_file(FOLDER / f"{name}.safetensors")
    assert {tensor.dtype for tensor in kept.values() if tensor.is_floating_point()} == {torch.float16}
    assert all(torch.equal(kept[key].float(), value.float()) for key, value in model.state_dict().items())


def test_all_weights_together_are_small():
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 4_000_000


def test_samples_are_small():
    assert sum(path.stat().st_size for path in FOLDER.glob("*.npz")) < 200_000


@EVERY
def test_samples_show_every_class(name):
    samples, task = pretrained_samples(name), load(name).task
    images, labels = samples["images"], samples["labels"]
    objects = 2 if name == "multi-mnist" else 1
    assert images.dtype == np.uint8
    assert images.shape[1:] == task.image_shape
    assert labels.shape == (len(images), objects)
    assert set(labels[:, 0].tolist()) == set(range(10))
    assert images.reshape(len(images), -1).any(axis=1).all()
    assert len({image.tobytes() for image in images}) == len(images)
    if objects == 1:
        assert set(samples) == {"images", "labels"}
    else:
        assert samples["parts"].shape == (len(images), objects, *task.image_shape)
        assert (labels[:, 0] != labels[:, 1]).all()


@EVERY
def test_a_card_says_how_it_was_trained_and_what_it_measured(name):
    card, run = pretrained_card(name), load(name)
    model, spec = run.model, run.spec
    kinds = {"command": str, "seed": int, "epochs": int, "training_minutes": float, "test_error_percent": float}
    assert {key: type(card[key]) for key in kinds} == kinds
    assert 0 < card["test_error_percent"] < 20
    assert card["training_minutes"] > 0
    assert card["epochs"] > 0
    assert card["test_images"] == 10_000
    assert card["model"] == spec.name
    assert card["parameters"] == sum(weights.numel() for weights in model.parameters())
    assert card["bytes"] == (FOLDER / f"{name}.safetensors").stat().st_size
    assert card["data"] == name
    assert card["command"].startswith("torchcaps train ")


@EVERY
def test_a_card_is_its_row_in_the_results(name):
    if name not in rows():
        pytest.skip(f"results/pretrained.csv has no row of {name}")
    card, row = pretrained_card(name), rows()[name]
    assert set(card) <= set(row)
    assert row == {"name": name, **{key: str(card.get(key, "")) for key in row if key != "name"}}


@EVERY
def test_the_text_of_a_card_says_the_same(name):
    card, text = pretrained_card(name), (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert f"{card['test_error_percent']:.2f} %" in text
    assert card["command"] in text
    assert f"{card['parameters']:,} parameters" in text
    assert f'torchcaps.load("{name}")' in text


@EVERY
def test_the_command_of_a_card_can_be_read(name):
    """As written, apart from where the data is: its options exist and mean what the card says."""
    import shlex

    from torchcaps.training.recipes import recipe_from_file

    card = pretrained_card(name)
    recipe_name, *words = shlex.split(card["command"])[2:]
    recipe = recipe_from_file(recipe_name, read_keys(_without(words, "--data-dir")))
    assert (recipe.training.seed, recipe.training.epochs) == (card["seed"], card["epochs"])
    assert (recipe.model.name, recipe.data.name) == (card["model"], card["data"])


def _without(words, option):
    at = words.index(option) if option in words else len(words)
    return words[:at] + words[at + 2 :]


def test_clothes_have_names():
    assert load("fashion-mnist").classes == CLOTHES


def test_digits_are_called_by_their_digit():
    digits = tuple("0123456789")
    assert load("mnist").classes == load("multi-mnist").classes == digits


def test_digits_are_classified_right():
    labels = pretrained_samples("mnist")["labels"]
    assert (found("mnist") == labels).mean() >= 58 / 60


@pytest.mark.parametrize("use", [weights_path, pretrained_card, pretrained_samples])
@pytest.mark.parametrize("name", ["mnits", "", "../explorer/app", "MNIST"])
def test_an_unknown_name_is_told_with_the_known_ones(use, name):
    with pytest.raises(ValueError, match="pretrained model") as error:
        use(name)
    assert all(known in str(error.value) for known in NAMES)


def test_no_lightning_is_needed_to_load_one():
    code = (
        "import sys; import torchcaps; torchcaps.load('mnist'); "
        "print([name for name in ('pytorch_lightning', 'fastapi', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
