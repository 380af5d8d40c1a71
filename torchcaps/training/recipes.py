"""Reading recipes: YAML by name or path, values that replace some of theirs, and errors with the nearest key."""

from __future__ import annotations

import argparse
import copy
import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.errors import FileError, TorchcapsError
from torchcaps.extras import comes_with_an_extra
from torchcaps.io import parse_yaml, read_text
from torchcaps.plain import shorten
from torchcaps.training.recipe import (
    LossOptions,
    ModelOptions,
    OptimizerOptions,
    Recipe,
    RecipeError,
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
FREE = ("data.options", "model.options")
"""Sections without keys of their own: the data set and the model check them."""
RENAMED = {
    "data.base": ("data.options.base", "mnist-mini"),
    "data.image_size": ("data.options.image_size", None),
    "data.unreadable": ("data.options.unreadable", "refuse"),
    "data.protocol": ("data.options.protocol", "instance"),
    "text.text_column": ("data.options.text_column", "text"),
    "text.label_column": ("data.options.label_column", "label"),
    "text.fold": ("data.options.fold", 0),
    "text.fold_seed": ("data.options.fold_seed", 0),
    "text.least_count": ("text.min_count", 1),
    "text.most_words": ("text.max_words", None),
    "text.longest": ("text.max_length", 400),
}
"""Keys that had another name in 0.1: the present one, and the value that said nothing."""

DEFAULT_RECIPES = {"images": "quickstart", "texts": "text"}
"""By which data of a kind is trained on if no recipe is named."""

Notice = Callable[[str], None]


def list_recipes() -> dict[str, str]:
    """The recipes of the package: name and first line of the description."""
    summaries = {}
    for file in sorted(resources.files("torchcaps.recipes").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            text = parse_yaml(file.read_text(encoding="utf-8"), file.name).get("description", "")
            summaries[file.name.removesuffix(".yaml")] = text.strip().split("\n")[0]
    return summaries


def list_known_keys() -> list[str]:
    """Every key of a recipe, with its section."""
    return ["description", *(f"{section}.{field.name}" for section, cls in SECTIONS.items() for field in fields(cls))]


def is_free(key: str) -> bool:
    """Whether a key is below one of :data:`FREE`, or one itself."""
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def recipe_from_file(
    name: str | Path, overrides: Mapping[str, Any] | None = None, notice: Notice | None = None
) -> Recipe:
    """A recipe by name or path; see :func:`recipe_from_values`."""
    return recipe_from_values(read_values(name), overrides, notice)


def recipe_from_values(
    values: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, notice: Notice | None = None
) -> Recipe:
    """A recipe from plain values; every one is checked against its type.

    Args:
        values: by section, as in a YAML file.
        overrides: values that replace others, by key: ``{"training.epochs": 3, "model.options.routing.name": "em"}``.
            A routing that is given by its name becomes a mapping with that name, to which options are added.
        notice: told of keys that have another name by now.
    """
    _check_keys(values)
    merged, changes = _update_names(values, notice), overrides or {}
    if changes.get("data.name", None) not in (None, merged.get("data", {}).get("name")) and _get_options(
        merged, "data"
    ):
        merged["data"]["options"] = _keep_known(merged["data"]["options"], changes["data.name"])
    for key, value in changes.items():
        if key in RENAMED:
            _tell(notice, key)
        present = RENAMED[key][0] if key in RENAMED else key
        if present not in list_known_keys() and not is_free(present):
            raise make_unknown_key_error(key)
        _put(merged, present, copy.deepcopy(value))
    description = merged.pop("description", "")
    if not isinstance(description, str):
        raise RecipeError(f"description must be a text, got {shorten(description)}.", "description")
    typed = {name: {key: merged[name][key] for key in merged[name] if key != "options"} for name in merged}
    try:
        parsed = make_parser().parse_object(typed)
    except (argparse.ArgumentError, TypeError, ValueError, RecursionError) as error:
        message = f"{error}".replace('Parser key "', "the recipe's key \"").strip()
        raise RecipeError(message if len(message) < 1_000 else f"{message[:1_000]}…") from None
    try:
        sections = {
            name: cls(**vars(parsed[name]), **({"options": options} if (options := _get_options(merged, name)) else {}))
            for name, cls in SECTIONS.items()
        }
        return Recipe(description, **sections)
    except TorchcapsError as error:
        raise error if isinstance(error, RecipeError) else RecipeError(error, error.option) from None


def read_values(name: str | Path) -> dict[str, Any]:
    """The YAML of a recipe by name, or of a file by path, as plain data.

    A recipe may come from anyone, so it cannot ask for a download: ``data.download`` in it is ignored.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        text = _read_file(path)
    else:
        file = resources.files("torchcaps.recipes").joinpath(f"{name}.yaml")
        if os.sep in str(name) or not file.is_file():
            near = difflib.get_close_matches(str(name), list_recipes(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise RecipeError(
                f"there is no recipe {shorten(str(name))}.{hint} Recipes: {', '.join(list_recipes())}; or a .yaml file."
            )
        text = file.read_text(encoding="utf-8")
    values = parse_value(text, str(name))
    _check_keys(values)
    if not values:
        raise RecipeError(f"{name} is no recipe: it has no keys. docs/training.md lists those that there are.")
    values.get("data", {}).pop("download", None)
    return dict(values)


def _read_file(path: Path) -> str:
    try:
        return read_text(path)
    except FileError as error:
        raise RecipeError(f"the recipe cannot be read: {error}") from None


def parse_value(text: str, name: str) -> Any:
    """Plain data from YAML; ``name`` says in messages where it is from."""
    try:
        return parse_yaml(text, name)
    except FileError as error:
        raise RecipeError(error) from None


def make_parser(prog: str = "torchcaps train") -> ArgumentParser:
    """The typed parser of all keys in sections but those of :data:`FREE`.

    Those are plain data, which the parser must never see: in a value of any type it takes ``class_path`` for something
    to import and to call.
    """
    with comes_with_an_extra():
        import jsonargparse

    parser = jsonargparse.ArgumentParser(prog=prog, exit_on_error=False, add_help=False, default_env=False)
    for name, cls in SECTIONS.items():
        parser.add_class_arguments(cls, name, skip={"options"} & {field.name for field in fields(cls)})
    return parser


def make_unknown_key_error(key: str, more: Iterable[str] = ()) -> RecipeError:
    """What to say of a key that no recipe has, with the nearest one."""
    known = [*list_known_keys(), *SECTIONS, *more]
    last = [name for name in known if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    guess = next(iter(last or difflib.get_close_matches(key, known, n=1, cutoff=0.6)), None)
    hint = f" Did you mean {guess!r}?" if guess else " docs/training.md lists all."
    return RecipeError(f"a recipe has no key {shorten(key)}.{hint}")


def _check_keys(values: Any, prefix: str = "") -> None:
    """Refuse keys that no recipe has, and sections that are none."""
    if not isinstance(values, Mapping):
        what = f"the section {prefix.rstrip('.')!r}" if prefix else "a recipe"
        raise RecipeError(f"{what} must be keys with values, got {shorten(values)}.")
    known = {*list_known_keys(), *RENAMED}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in SECTIONS:
            _check_keys(value, f"{name}.")
        elif name not in known:
            raise make_unknown_key_error(name)


def _update_names(values: Mapping[str, Any], notice: Notice | None) -> dict[str, Any]:
    """A copy of a recipe's values in which every key has its present name."""
    merged: dict[str, Any] = copy.deepcopy(dict(values))
    for old, (new, silent) in RENAMED.items():
        section, key = old.split(".")
        if key not in merged.get(section, {}):
            continue
        value = merged[section].pop(key)
        if value != silent:  # files written by a program have all keys, also those that their data has no use for
            _tell(notice, old)
            _put(merged, new, value)
    return merged


def _keep_known(options: Mapping[str, Any], data: str) -> dict[str, Any]:
    """The options of a recipe's own data that other data in its place has, too."""
    from torchcaps.data.registry import find_dataset, option_names

    try:
        known = option_names(find_dataset(data))
    except TorchcapsError:  # which is told when the data is asked for
        return {}
    return {key: value for key, value in options.items() if key in known}


def _tell(notice: Notice | None, old: str) -> None:
    if notice is not None:
        notice(f"the key {old} is called {RENAMED[old][0]} now.")


def _get_options(values: Mapping[str, Any], section: str) -> Any:
    return values.get(section, {}).get("options")


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set a value by its key, whose parts are mappings; a name in their place becomes a mapping with that name."""
    *path, last = key.split(".")
    for step in path:
        inner = values.get(step)
        values[step] = {} if inner is None else {"name": inner} if isinstance(inner, str) else inner
        values = values[step]
        if not isinstance(values, dict):
            raise RecipeError(f"{key}: {step} is {shorten(values)}, which has no options of its own.", key)
    values[last] = value
