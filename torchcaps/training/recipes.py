"""Reading recipes: YAML by name or path, overrides from the command line, and errors with the nearest name."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.data.options import DataOptions
from torchcaps.training.recipe import (
    LossOptions,
    ModelOptions,
    OptimizerOptions,
    Recipe,
    TrainingOptions,
)

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

SECTIONS: dict[str, type] = {
    "data": DataOptions,
    "model": ModelOptions,
    "loss": LossOptions,
    "optimizer": OptimizerOptions,
    "training": TrainingOptions,
}
FREE = ("model.options",)  # a model's options are checked by the model
SHORT = {
    "--data-dir": "--data.dir",
    "--devices": "--training.devices",
    "--epochs": "--training.epochs",
    "--seed": "--training.seed",
}


class RecipeError(Exception):
    """A recipe that cannot be: the message says which key and what would do."""


def list_recipes() -> dict[str, str]:
    """The recipes of the package: name and first line of the description."""
    import yaml

    found = {}
    for file in sorted(resources.files("torchcaps.recipes").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            text = yaml.safe_load(file.read_text(encoding="utf-8")).get("description", "")
            found[file.name.removesuffix(".yaml")] = text.strip().split("\n")[0]
    return found


def known_keys() -> list[str]:
    """Every key of a recipe, as it is written on the command line."""
    return ["description", *(f"{section}.{field.name}" for section, cls in SECTIONS.items() for field in fields(cls))]


def _unknown(key: str, known: Iterable[str]) -> RecipeError:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    last = [name for name in known if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    guess = next(iter(last or near), None)
    hint = f" Did you mean {guess!r}?" if guess else " `torchcaps train --help` lists all keys."
    return RecipeError(f"a recipe has no key {key!r}.{hint}")


def check_keys(values: Any, prefix: str = "") -> None:
    """Refuse keys that no recipe has, naming the nearest."""
    if not isinstance(values, dict):
        what = f"the section {prefix.rstrip('.')!r}" if prefix else "a recipe"
        raise RecipeError(f"{what} must be keys with values, got {values!r}.")
    known = known_keys()
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in SECTIONS:
            check_keys(value, f"{name}.")
        elif name not in known:
            raise _unknown(name, [*known, *SECTIONS])


def make_parser(prog: str = "torchcaps train") -> ArgumentParser:
    """The typed parser of all keys."""
    import jsonargparse

    parser = jsonargparse.ArgumentParser(prog=prog, exit_on_error=False, add_help=False, default_env=False)
    parser.add_argument("--description", type=str, default="", help="what the experiment is")
    for name, cls in SECTIONS.items():
        parser.add_argument(f"--{name}", type=cls, default=cls())
    return parser


def _checked_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments with the short names written out, after looking for unknown ones."""
    known, out = known_keys(), []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        name = SHORT.get(name, name)
        if name.startswith("--"):
            key = name[2:].replace("-", "_")
            if key not in known and not any(key.startswith(f"{free}.") for free in FREE):
                raise _unknown(name[2:], known)
            name = f"--{key}"
        out.append(name + equals + value)
    return out


def read_values(name: str | Path) -> dict[str, Any]:
    """The YAML of a recipe by name, or of a file by path."""
    import yaml

    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"the recipe {path} cannot be read: {error}.") from None
    else:
        file = resources.files("torchcaps.recipes").joinpath(f"{name}.yaml")
        if not file.is_file():
            near = difflib.get_close_matches(str(name), list_recipes(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise RecipeError(
                f"there is no recipe {str(name)!r}.{hint} Recipes: {', '.join(list_recipes())}; or a .yaml file."
            )
        text = file.read_text(encoding="utf-8")
    try:
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise RecipeError(f"{name} is not YAML: {error}") from None
    check_keys(values)
    return dict(values)


def recipe_from_values(values: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from plain values, with command-line overrides; every value is checked against its type."""
    parser = make_parser()
    try:
        base = parser.parse_object(values)
        parsed = parser.instantiate(parser.parse_args(_checked_arguments(overrides), namespace=base))
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise RecipeError(f"{error}".replace('Parser key "', "the recipe's key \"").strip()) from None
    recipe = Recipe(parsed.description, *(getattr(parsed, section) for section in SECTIONS))
    check_values(recipe)
    return recipe


def recipe_from_file(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by name or path, with overrides."""
    return recipe_from_values(read_values(name), overrides)


def check_values(recipe: Recipe) -> None:
    """Refuse numbers that cannot be trained with."""
    training, optimizer = recipe.training, recipe.optimizer
    for name, value in (
        ("training.epochs", training.epochs),
        ("training.batch_size", training.batch_size),
        ("training.devices", training.devices),
        ("training.nodes", training.nodes),
        ("training.checkpoint_every", training.checkpoint_every),
        ("optimizer.decay_steps", optimizer.decay_steps),
    ):
        if value < 1:
            raise RecipeError(f"{name} must be at least 1, got {value}.")
    if optimizer.lr <= 0:
        raise RecipeError(f"optimizer.lr must be positive, got {optimizer.lr}.")
    if optimizer.ema is not None and not 0 < optimizer.ema < 1:
        raise RecipeError(f"optimizer.ema must be between 0 and 1, such as 0.999; got {optimizer.ema}.")
    if not 0 <= recipe.data.validation < 1:
        raise RecipeError(f"data.validation is a part of the training images, in [0, 1); got {recipe.data.validation}.")
    if recipe.data.shift < 0:
        raise RecipeError(f"data.shift must not be negative, got {recipe.data.shift}.")
