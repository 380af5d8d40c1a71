"""Recipes: complete, typed, and with errors that name the nearest key."""

import pytest
import yaml

from torchcaps import create_model
from torchcaps.commands.base import CommandError
from torchcaps.commands.keys import read_keys
from torchcaps.data.registry import list_datasets, make_dataset
from torchcaps.losses import CapsuleLoss
from torchcaps.training.recipe import Recipe
from torchcaps.training.recipes import RecipeError, list_known_keys, list_recipes, recipe_from_file, recipe_from_values


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_of_the_package_can_be_built(name):
    recipe = recipe_from_file(name)
    assert recipe.description.strip()
    assert make_dataset(recipe.data).name == recipe.data.name in list_datasets()
    create_model(recipe.model.name, **recipe.model.options)
    CapsuleLoss(recipe.loss.kind, reconstruction_scale=recipe.loss.reconstruction_scale)


def test_the_recipes_that_are_promised():
    promised = {"quickstart", "mnist", "fashion-mnist", "multi-mnist", "affine-mnist", "text"}
    assert set(list_recipes()) >= promised


def test_the_paper_is_followed():
    recipe = recipe_from_file("mnist")
    assert (recipe.model.name, recipe.training.batch_size, recipe.data.shift) == ("capsnet", 128, 2)
    optimizer = recipe.optimizer
    assert (optimizer.lr, optimizer.decay, optimizer.decay_steps, optimizer.floor) == (1e-3, 0.96, 2000, 1e-6)
    assert recipe.loss.reconstruction_scale == 0.0005


def test_every_key_can_be_overridden_and_survives_yaml():
    first = ["--data.name=mnist", "--seed", "7", "--optimizer.ema", "0.99", "--model.options.routing", "em"]
    second = ["--devices=2", "--model.options.decoder", "[32, 64]", "--training.inverse_temperature", "[0.1, 0.5]"]
    recipe = recipe_from_file("quickstart", read_keys([*first, *second]))
    assert (recipe.data.name, recipe.training.seed, recipe.optimizer.ema, recipe.training.devices) == (
        "mnist",
        7,
        0.99,
        2,
    )
    assert recipe.model.options == {"routing": "em", "decoder": [32, 64]}
    assert recipe.training.inverse_temperature == [0.1, 0.5]
    again = recipe_from_values(yaml.safe_load(yaml.safe_dump(recipe.as_dict())))
    assert again == recipe


def test_options_of_a_model_are_added_to_what_is_there(tmp_path):
    name = tmp_path / "own.yaml"
    name.write_text("model: {name: capsnet, options: {routing: {name: dynamic, iterations: 1}, decoder: true}}")
    recipe = recipe_from_file(str(name), {"model.options.routing.iterations": 2, "model.options.shared": True})
    assert recipe.model.options == {"routing": {"name": "dynamic", "iterations": 2}, "decoder": True, "shared": True}
    keys = read_keys(["--model.options.routing.iterations", "2", "--model.options.routing", "em"])
    recipe = recipe_from_file("quickstart", keys)
    assert recipe.model.options == {"routing": {"name": "em", "iterations": 2}}
    with pytest.raises(CommandError, match="needs a value"):
        read_keys(["--model.options.routing"])


def test_an_empty_recipe_has_the_defaults():
    assert recipe_from_values({}) == Recipe()
    assert "optimizer.lr" in list_known_keys()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data": {"nme": "mnist"}}, "no key 'data.nme'. Did you mean 'data.name'"),
        ({"trainig": {}}, "Did you mean 'training'"),
        ({"lr": 1}, "Did you mean 'optimizer.lr'"),
        ({"data": 3}, "the section 'data' must be keys"),
        ({"training": {"epochs": "many"}}, "training.epochs"),
        ({"training": {"epochs": 0}}, "epochs must be at least 1"),
        ({"training": {"batch_size": -1}}, "batch_size must be at least 1"),
        ({"optimizer": {"lr": 0}}, "lr must be positive"),
        ({"optimizer": {"ema": 2}}, "ema must be between"),
        ({"optimizer": {"clip": 0}}, "clip is a length"),
        ({"optimizer": {"schedule": "cosine"}}, "optimizer.schedule"),
        ({"data": {"validation": 1.5}}, "data.validation"),
        ({"data": {"shift": -1}}, "data.shift"),
        ({"training": {"threads": 0}}, "training.threads"),
        ({"training": {"seed": -1}}, "training.seed"),
        ({"training": {"precision": 64}}, "training.precision"),
        ({"optimizer": {"decay": -0.5}}, "optimizer.decay"),
        ({"loss": {"margin_schedule": "by-epoch"}}, "spread"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values, words, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(RecipeError) as caught:
        recipe_from_file(path)
    assert words in str(caught.value)


def test_recipes_that_are_not_there_or_not_yaml(tmp_path):
    with pytest.raises(RecipeError, match="Did you mean 'quickstart'"):
        recipe_from_file("quikstart")
    with pytest.raises(RecipeError, match="cannot be read"):
        recipe_from_file(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(RecipeError, match="not YAML"):
        recipe_from_file(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(RecipeError, match="must be keys"):
        recipe_from_file(tmp_path / "list.yaml")


def test_yaml_cannot_make_objects(tmp_path):
    (tmp_path / "evil.yaml").write_text("description: !!python/object/apply:os.getcwd []")
    with pytest.raises(RecipeError, match="not YAML"):
        recipe_from_file(tmp_path / "evil.yaml")


OLD_DATA = {"base": "mnist-mini", "image_size": None, "unreadable": "refuse", "protocol": "instance"}
OLD_TEXT = {"least_count": 2, "most_words": 50, "longest": 30} | {
    "text_column": "text",
    "label_column": "label",
    "fold": 0,
    "fold_seed": 0,
}


def test_a_recipe_with_older_keys_means_the_same():
    recipe = recipe_from_values({"data": {"name": "mnist", **OLD_DATA}, "text": OLD_TEXT})
    assert recipe.data.options == {}
    assert (recipe.text.min_count, recipe.text.max_words, recipe.text.max_length) == (2, 50, 30)
    made = recipe_from_values({"data": {"name": "multi-mnist", **OLD_DATA, "base": "mnist"}, "text": OLD_TEXT})
    assert made.data.options == {"base": "mnist"}
    folded = recipe_from_values({"data": {"name": "mr", **OLD_DATA}, "text": OLD_TEXT | {"fold": 3}})
    assert folded.data.options == {"fold": 3}
    wrong = recipe_from_values({"data": {"name": "mnist", **OLD_DATA, "protocol": "azimuth"}})
    assert wrong.data.options == {"protocol": "azimuth"}, "which mnist will refuse"


def test_older_keys_work_on_the_command_line():
    recipe = recipe_from_file("viewpoints", read_keys(["--data.protocol=elevation", "--text.longest", "7"]))
    assert recipe.data.options == {"protocol": "elevation"}
    assert recipe.text.max_length == 7


def test_options_of_a_recipes_own_data_set_go_with_it():
    assert recipe_from_file("multi-mnist", {"data.name": "mnist"}).data.options == {}
    assert recipe_from_file("viewpoints", {"data.name": "small-norb"}).data.options == {"protocol": "azimuth"}
    kept = recipe_from_file("multi-mnist", {"data.options.base": "mnist-mini", "data.name": "affine-mnist"})
    assert kept.data.options == {"base": "mnist-mini"}


def test_older_keys_are_told_of(capsys):
    told = []
    recipe_from_values({"text": {"longest": 30, "least_count": 1}}, {"data.protocol": "azimuth"}, told.append)
    assert told == [
        "the key text.longest is called text.max_length now.",
        "the key data.protocol is called data.options.protocol now.",
    ]
