"""Reading recipes: YAML by name or path, overrides from the command line, and errors with the nearest name."""

from __future__ import annotations

import argparse
import copy
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.data.options import DataOptions, TextOptions
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
    "text": TextOptions,
    "model": ModelOptions,
    "loss": LossOptions,
    "optimizer": OptimizerOptions,
    "training": TrainingOptions,
}
PRECISIONS = ("32", "bf16-mixed", "16-mixed")
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
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    last = [name for name in known if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    guess = next(iter(last or near), None)
    hint = f" Did you mean {guess!r}?" if guess else " `torchcaps train --keys` lists all."
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


def _with_model_options(values: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Put --model.options.a.b VALUE where it belongs, beside what is there; returns the other overrides too.

    A routing that is given by its name becomes a mapping with that name, to which options are added.
    """
    import yaml

    values = copy.deepcopy(values)
    options = values.setdefault("model", {}).setdefault("options", {})
    others: list[str] = []
    rest = list(overrides)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--model.options."):
            others.append(name + equals + value)
            continue
        if not equals:
            if not rest:
                raise RecipeError(f"{name} needs a value.")
            value = rest.pop(0)
        *path, last = name.removeprefix("--model.options.").split(".")
        place = options
        for step in path:
            inner = place.get(step, {})
            place[step] = {"name": inner} if isinstance(inner, str) else inner
            place = place[step]
        place[last] = yaml.safe_load(value)
    return values, others


def recipe_from_values(values: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from plain values, with command-line overrides; every value is checked against its type."""
    parser = make_parser()
    values, others = _with_model_options(values, _checked_arguments(overrides))
    try:
        base = parser.parse_object(values)
        parsed = parser.instantiate(parser.parse_args(others, namespace=base))
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
        ("text.vector_size", recipe.text.vector_size),
        ("text.least_count", recipe.text.least_count),
        ("text.longest", recipe.text.longest),
    ):
        if value < 1:
            raise RecipeError(f"{name} must be at least 1, got {value}.")
    if recipe.text.most_words is not None and recipe.text.most_words < 1:
        raise RecipeError(f"text.most_words must be at least 1, got {recipe.text.most_words}.")
    if training.threads is not None and training.threads < 1:
        raise RecipeError(f"training.threads must be at least 1, got {training.threads}.")
    if not 0 <= training.seed < 2**62:
        raise RecipeError(f"training.seed must be between 0 and 2^62, got {training.seed}.")
    if str(training.precision) not in PRECISIONS:
        raise RecipeError(f"training.precision must be one of {', '.join(PRECISIONS)}; got {training.precision}.")
    if recipe.loss.kind != "spread" and recipe.loss.margin_schedule != "constant":
        raise RecipeError("loss.margin_schedule is of the spread loss: give --loss.kind spread too.")
    if not 0 < optimizer.decay <= 1:
        raise RecipeError(f"optimizer.decay must be in (0, 1], got {optimizer.decay}.")
    if optimizer.lr <= 0:
        raise RecipeError(f"optimizer.lr must be positive, got {optimizer.lr}.")
    if optimizer.clip is not None and optimizer.clip <= 0:
        raise RecipeError(f"optimizer.clip is a length, more than 0; got {optimizer.clip}.")
    if optimizer.ema is not None and not 0 < optimizer.ema < 1:
        raise RecipeError(f"optimizer.ema must be between 0 and 1, such as 0.999; got {optimizer.ema}.")
    if not 0 <= recipe.data.validation < 1:
        raise RecipeError(f"data.validation is a part of the training data, in [0, 1); got {recipe.data.validation}.")
    if training.keep == "best" and not recipe.data.validation:
        raise RecipeError("training.keep=best needs validation: give --data.validation 0.1, or keep the last epoch.")
    if recipe.data.shift < 0:
        raise RecipeError(f"data.shift must not be negative, got {recipe.data.shift}.")
