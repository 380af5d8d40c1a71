"""Reading recipes: YAML by name or path, values that replace some of theirs, and errors with the nearest key."""

from __future__ import annotations

import copy
import difflib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.errors import FileError, InputError, TorchcapsError
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
from torchcaps.typed import convert, describe_misfit, field_types, guess_name, show_value

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

LARGEST: dict[type, float] = {int: 2**31 - 1, float: 1e30}
"""What no key but the seed needs more of."""
MEANT = {
    "learning_rate": "optimizer.lr", "rate": "optimizer.lr", "optim": "optimizer.lr", "scheduler": "optimizer.schedule",
    "lr_scheduler": "optimizer.schedule", "grad_clip": "optimizer.clip", "gradient_clip": "optimizer.clip",
    "wd": "optimizer.weight_decay", "batch": "training.batch_size", "bs": "training.batch_size",
    "num_epochs": "training.epochs", "n_epochs": "training.epochs", "max_epochs": "training.epochs",
    "gpu": "training.accelerator", "gpus": "training.accelerator", "cuda": "training.accelerator",
    "cpu": "training.accelerator", "device": "training.accelerator", "amp": "training.precision",
    "fp16": "training.precision", "bf16": "training.precision", "mixed_precision": "training.precision",
    "workers": "training.threads", "num_workers": "training.threads", "num_threads": "training.threads",
    "random_seed": "training.seed", "manual_seed": "training.seed", "save_best": "training.keep",
    "save_every": "training.checkpoint_every", "arch": "model.name", "architecture": "model.name",
    "network": "model.name", "net": "model.name", "routing": "model.options.routing",
    "iterations": "model.options.routing.iterations", "decoder": "model.options.decoder",
    "squash": "model.options.squash", "dataset": "data.name", "data_set": "data.name", "data_path": "data.name",
    "root": "data.dir", "val": "data.validation", "val_split": "data.validation", "flip": "data.mirror",
    "hflip": "data.mirror", "normalize": "data.standardize", "image_size": "data.options.image_size",
    "img_size": "data.options.image_size", "text_column": "data.options.text_column",
    "label_column": "data.options.label_column", "embeddings": "text.vectors", "glove": "text.vectors",
    "embedding_size": "text.vector_size", "vocab_size": "text.max_words", "max_len": "text.max_length",
    "criterion": "loss.kind", "loss_function": "loss.kind",
    **{name: f"{name}.{key}" for name, key in (("model", "name"), ("data", "name"), ("loss", "kind"))},
}  # fmt: skip
"""What others call a key of ours, for advice only."""
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
    description = read_key("description", merged.pop("description", ""))
    typed = {name: {key: read_key(f"{name}.{key}", value) for key, value in merged[name].items()} for name in merged}
    try:
        return Recipe(description, **{name: cls(**typed.get(name, {})) for name, cls in SECTIONS.items()})
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


def read_key(key: str, value: Any) -> Any:
    """The value of a key as its type wants it; a text, as a command line gives it, is read.

    Sections of :data:`FREE` are plain data, which the data set and the model check.
    """
    if key in FREE and value is None:  # a section that was left empty
        return {}
    section, _, name = key.rpartition(".")
    wanted = field_types(SECTIONS[section])[name] if section else str
    try:
        read = convert(value, wanted)
    except InputError:
        raise RecipeError(describe_misfit(key, value, wanted), key) from None
    most = LARGEST.get(type(read))
    if most is not None and key != "training.seed" and abs(read) > most and abs(read) != math.inf:
        raise RecipeError(f"{key} must be at most {most:,}, got {shorten(value)}.", key)
    return read


def make_unknown_key_error(key: str) -> RecipeError:
    """What to say of a key that no recipe has, with the one that was probably meant."""
    guess = guess_name(key, [*list_known_keys(), *SECTIONS], MEANT)
    hint = f" Did you mean {guess!r}?" if guess else " docs/training.md lists all."
    return RecipeError(f"a recipe has no key {shorten(key)}.{hint}")


def _check_keys(values: Any, prefix: str = "") -> None:
    """Refuse keys that no recipe has, and sections that are none."""
    if not isinstance(values, Mapping):
        what = f"the section {prefix.rstrip('.')!r}" if prefix else "a recipe"
        raise RecipeError(f"{what} must be keys with values, got {show_value(values)}.")
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
