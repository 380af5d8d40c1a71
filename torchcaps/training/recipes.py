"""Reading recipes: YAML by name or path, overrides from the command line, and errors with the nearest name."""

from __future__ import annotations

import argparse
import copy
import difflib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.errors import DataError, FileError, TorchcapsError
from torchcaps.extras import comes_with_an_extra
from torchcaps.io import parse_yaml, read_text
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
FREE = ("model.options", "data.options")  # those of a model and of a data set are checked by these
RENAMED = {
    **{f"data.{key}": f"data.options.{key}" for key in ("base", "image_size", "unreadable", "protocol")},
    **{f"text.{key}": f"data.options.{key}" for key in ("text_column", "label_column", "fold", "fold_seed")},
    "text.least_count": "text.min_count",
    "text.most_words": "text.max_words",
    "text.longest": "text.max_length",
}
"""Keys of older recipes, by what they are called now."""
OLD_DEFAULTS: dict[str, Any] = {
    "base": "mnist-mini",
    "image_size": None,
    "unreadable": "refuse",
    "protocol": "instance",
    "text_column": "text",
    "label_column": "label",
    "fold": 0,
    "fold_seed": 0,
}
"""Of options that every older recipe has, also for data sets that know nothing of them."""
MODEL_OPTIONS = (
    "--model.options.NAME VALUE: an option of the model, such as routing, shared, squash, decoder, objects. "
    "--data.options.NAME VALUE: an option of the data set, such as base, protocol, image_size, fold."
)
SHORT = {
    "--data-dir": "--data.dir",
    "--devices": "--training.devices",
    "--epochs": "--training.epochs",
    "--seed": "--training.seed",
}


class RecipeError(TorchcapsError):
    """A recipe that cannot be: the message says which key and what would do."""


def list_recipes() -> dict[str, str]:
    """The recipes of the package: name and first line of the description."""
    found = {}
    for file in sorted(resources.files("torchcaps.recipes").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            text = parse_yaml(file.read_text(encoding="utf-8"), file.name).get("description", "")
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
    return RecipeError(f"a recipe has no key {_shown(key)}.{hint}")


def _shown(value: object, most: int = 200) -> str:
    """A value in a message, which stays a message whatever the value is."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def rename_old_keys(values: Any) -> Any:
    """The values of a recipe with older keys written as they are now."""
    if not isinstance(values, dict):
        return values
    values = copy.deepcopy(values)
    for old, new in RENAMED.items():
        section, key = old.split(".")
        if not isinstance(values.get(section), dict) or key not in values[section]:
            continue
        value, place = values[section].pop(key), values
        *path, last = new.split(".")
        for step in path:
            place = place.setdefault(step, {})
            if not isinstance(place, dict):
                return values
        place.setdefault(last, value)
    return values


def check_keys(values: Any, prefix: str = "") -> None:
    """Refuse keys that no recipe has, naming the nearest."""
    if not isinstance(values, dict):
        what = f"the section {prefix.rstrip('.')!r}" if prefix else "a recipe"
        raise RecipeError(f"{what} must be keys with values, got {_shown(values)}.")
    known = known_keys()
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in SECTIONS:
            check_keys(value, f"{name}.")
        elif name not in known:
            raise _unknown(name, [*known, *SECTIONS])


def make_parser(prog: str = "torchcaps train") -> ArgumentParser:
    """The typed parser of all keys but the model's options.

    Those are plain data that the model itself checks. The parser must never see them: in a value of any type it takes
    ``class_path`` for something to import and to call.
    """
    with comes_with_an_extra():
        import jsonargparse

    parser = jsonargparse.ArgumentParser(
        prog=prog, exit_on_error=False, add_help=False, default_env=False, epilog=MODEL_OPTIONS
    )
    parser.add_argument("--description", type=str, default="", help="what the experiment is")
    for name, cls in SECTIONS.items():
        parser.add_class_arguments(cls, name, skip={"options"} if cls in (ModelOptions, DataOptions) else None)
    return parser


def _checked_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments with the short names written out, after looking for unknown ones."""
    known, out = known_keys(), []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        name = SHORT.get(name, name)
        if name.startswith("--"):
            key = name[2:].replace("-", "_")
            key = RENAMED.get(key, key)
            if key not in known and not any(key.startswith(f"{free}.") for free in FREE):
                raise _unknown(name[2:], known)
            name = f"--{key}"
        out.append(name + equals + value)
    return out


def read_values(name: str | Path) -> dict[str, Any]:
    """The YAML of a recipe by name, or of a file by path, as plain data.

    A recipe may come from anyone, so it cannot ask for a download: ``data.download`` counts on the command line only.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        text = _read_recipe(path)
    else:
        file = resources.files("torchcaps.recipes").joinpath(f"{name}.yaml")
        if os.sep in str(name) or not file.is_file():
            near = difflib.get_close_matches(str(name), list_recipes(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise RecipeError(
                f"there is no recipe {_shown(str(name))}.{hint} Recipes: {', '.join(list_recipes())}; or a .yaml file."
            )
        text = file.read_text(encoding="utf-8")
    try:
        values = parse_yaml(text, name)
    except FileError as error:
        raise RecipeError(error) from None
    values = rename_old_keys(values)
    check_keys(values)
    if not values:
        raise RecipeError(f"{name} is no recipe: it has no keys. `torchcaps train --keys` lists those that there are.")
    values.get("data", {}).pop("download", None)
    return dict(values)


def _read_recipe(path: Path) -> str:
    try:
        return read_text(path)
    except FileError as error:
        raise RecipeError(f"the recipe cannot be read: {error}") from None


def _parsed(name: str, value: str) -> Any:
    try:
        return parse_yaml(value, name)
    except FileError as error:
        raise RecipeError(error) from None


def _with_options(section: str, values: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options of model or data with what --model.options.a.b VALUE puts beside them, and the other overrides.

    A routing that is given by its name becomes a mapping with that name, to which options are added.
    """
    prefix = f"--{section}.options"
    options = copy.deepcopy(values.get(section, {}).get("options") or {})
    others: list[str] = []
    rest = list(overrides)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name != prefix and not name.startswith(f"{prefix}."):
            others.append(name + equals + value)
            continue
        if not equals:
            if not rest:
                raise RecipeError(f"{name} needs a value.")
            value = rest.pop(0)
        if name == prefix:
            options = _parsed(name, value)
        else:
            _place(options, name, _parsed(name, value))
    if not isinstance(options, dict):
        raise RecipeError(f"{section}.options must be keys with values, got {_shown(options)}.")
    return options, others


def _place(options: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".options.", 1)[1].split(".")
    for step in path:
        inner = options.get(step, {})
        options[step] = {"name": inner} if isinstance(inner, str) else inner
        options = options[step]
        if not isinstance(options, dict):
            raise RecipeError(f"{name}: {step} is {_shown(options)}, which has no options of its own.")
    options[last] = value


def recipe_from_values(values: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from plain values, with command-line overrides; every value is checked against its type."""
    parser = make_parser()
    values = rename_old_keys(values)
    options, others = _with_options("model", values, _checked_arguments(overrides))
    data_options, others = _with_options("data", values, others)
    typed = {
        **values,
        **{
            section: {key: value for key, value in values.get(section, {}).items() if key != "options"}
            for section in ("model", "data")
        },
    }
    try:
        base = parser.parse_object(typed)
        parsed = parser.instantiate(parser.parse_args(others, namespace=base))
    except DataError as error:
        raise RecipeError(error, option=error.option) from None
    except (argparse.ArgumentError, TypeError, ValueError, RecursionError) as error:
        message = f"{error}".replace('Parser key "', "the recipe's key \"").strip()
        raise RecipeError(message if len(message) < 1_000 else f"{message[:1_000]}…") from None
    recipe = Recipe(parsed.description, *(getattr(parsed, section) for section in SECTIONS))
    recipe.model.options = options
    recipe.data.options = _own_options(recipe.data.name, data_options, values)
    check_values(recipe)
    return recipe


def _own_options(name: str, options: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Options of a data set without those that an older recipe, or a recipe for another data set, has beside them."""
    from torchcaps.data.registry import find_dataset, option_names

    try:
        known = option_names(find_dataset(name))
    except DataError:  # which the one who looks for the data will hear of
        return options
    section = values.get("data", {})
    other = section.get("options") or {} if name != section.get("name", name) else {}
    return {
        key: value
        for key, value in options.items()
        if key in known or not (OLD_DEFAULTS.get(key, _NOTHING) == value or other.get(key, _NOTHING) == value)
    }


_NOTHING = object()


def recipe_from_file(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by name or path, with overrides."""
    return recipe_from_values(read_values(name), overrides)


def check_values(recipe: Recipe) -> None:
    """Refuse numbers that cannot be trained with."""
    training, optimizer, data = recipe.training, recipe.optimizer, recipe.data
    for name, value in (
        ("training.epochs", training.epochs),
        ("training.batch_size", training.batch_size),
        ("training.nodes", training.nodes),
        ("training.checkpoint_every", training.checkpoint_every),
        ("optimizer.decay_steps", optimizer.decay_steps),
    ):
        if value < 1:
            raise RecipeError(f"{name} must be at least 1, got {_shown(value)}.")
    most = max(256, 4 * (os.cpu_count() or 1))  # each is a thread or a process of this machine
    for name, workers in (("training.threads", training.threads), ("training.devices", training.devices)):
        if workers is not None and not 1 <= workers <= most:
            raise RecipeError(f"{name} must be between 1 and {most}, got {_shown(workers)}.")
    for name, number in (
        ("optimizer.floor", optimizer.floor),
        ("optimizer.weight_decay", optimizer.weight_decay),
        ("loss.reconstruction_scale", recipe.loss.reconstruction_scale),
    ):
        if not 0 <= number < math.inf:
            raise RecipeError(f"{name} must be a number that is not negative, got {_shown(number)}.")
    if not 0 <= training.seed < 2**62:
        raise RecipeError(f"training.seed must be between 0 and 2^62, got {_shown(training.seed)}.")
    if str(training.precision) not in PRECISIONS:
        raise RecipeError(
            f"training.precision must be one of {', '.join(PRECISIONS)}; got {_shown(training.precision)}."
        )
    if recipe.loss.kind != "spread" and recipe.loss.margin_schedule != "constant":
        raise RecipeError("loss.margin_schedule is of the spread loss: give --loss.kind spread too.")
    _check_optimizer(optimizer)
    if not all(0 < value < math.inf for value in training.inverse_temperature or ()):
        raise RecipeError(
            f"training.inverse_temperature must be positive numbers, got {_shown(training.inverse_temperature)}."
        )
    if training.keep == "best" and not data.validation:
        raise RecipeError("training.keep=best needs validation: give --data.validation 0.1, or keep the last epoch.")


def _check_optimizer(optimizer: OptimizerOptions) -> None:
    if not 0 < optimizer.decay <= 1:
        raise RecipeError(f"optimizer.decay must be in (0, 1], got {optimizer.decay}.")
    if not 0 < optimizer.lr < math.inf:
        raise RecipeError(f"optimizer.lr must be positive, got {optimizer.lr}.")
    if optimizer.clip is not None and not 0 < optimizer.clip < math.inf:
        raise RecipeError(f"optimizer.clip is a length, more than 0; got {optimizer.clip}.")
    if optimizer.ema is not None and not 0 < optimizer.ema < 1:
        raise RecipeError(f"optimizer.ema must be between 0 and 1, such as 0.999; got {optimizer.ema}.")
