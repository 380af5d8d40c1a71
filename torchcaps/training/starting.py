"""Weights to begin with: those of another model, as far as they fit, on other classes and other words too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.options import IN_MEMORY, DataOptions
from torchcaps.data.record import SplitRecord
from torchcaps.data.registry import find_dataset, list_datasets, option_names
from torchcaps.errors import TorchcapsError
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.recipes import DEFAULT_RECIPES, Notice, read_values, recipe_from_values
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import Prepared, task_of

MOST_LETTERS = 80
"""Of a run's name that comes from its data."""
MOST_NAMED = 6
"""Tensors that a sentence names."""


class Direction(NamedTuple):
    """How one of a task's axes lies in a tensor.

    Attributes:
        axis: its number.
        dim: of the tensor along which it lies; −1 if its size follows the names in another way.
        block: how many numbers along it belong to each name.
        more: whether a block without a name comes after them, such as that of a class for noise.
    """

    axis: int
    dim: int
    block: int = 0
    more: bool = False


@dataclass(frozen=True)
class Start:
    """A trained model that another training begins with.

    Args:
        name: what it is called in a sentence.
        spec: how it was built, and what it is for.
        tensors: its weights and buffers by name.
        recipe: by which it was trained, if that is known.
        record: of the data that it was trained on, if it has one.
    """

    name: str
    spec: ModelSpec
    tensors: Mapping[str, Tensor] = field(repr=False)
    recipe: Recipe | None = None
    record: SplitRecord | None = field(default=None, repr=False)

    def give(self, model: nn.Module, spec: ModelSpec) -> str:
        """Give a new model all weights that fit it; the others stay as they are.

        A tensor fits by its name and shape. Where a dimension is that of the classes, or of the words, those that both
        models know by the same name keep their part, wherever they are among the others.

        Args:
            model: new, with its first weights.
            spec: how it was built.

        Returns:
            A sentence that says what was taken and what was not.
        """
        old_sizes, new_sizes = _find_directions(self.spec), _find_directions(spec)
        old_axes, new_axes = self.spec.task.axes(), spec.task.axes()
        alike = [old.names == new.names for old, new in zip(old_axes, new_axes, strict=True)]
        given, whole, parts, fresh = dict(model.state_dict()), [], set(), []
        for name, first in given.items():
            mine, directions = self.tensors.get(name), new_sizes[name]
            if mine is not None and mine.shape == first.shape and all(alike[each.axis] for each in directions):
                given[name] = mine
                whole.append(name)
            elif mine is not None and _is_regular(directions) and old_sizes.get(name) == directions:
                axis = directions[0].axis
                mixed = _mix(mine, first, directions[0], old_axes[axis].names, new_axes[axis].names)
                fresh += [name] if mixed is None else []
                given[name] = first if mixed is None else mixed
                parts |= set() if mixed is None else {axis}
            else:
                fresh.append(name)
        if not whole and not parts:
            raise RunError(
                f"none of the weights of {self.name}, a {self.spec.name}, fit a {spec.name} for this data: leave the "
                "model to it, or begin with random weights.",
                option="start_from",
            )
        model.load_state_dict(given)
        said = [f"{len(whole)} of {len(given)} tensors as they are"]
        for axis in sorted(parts):
            known = len(set(old_axes[axis].names) & set(new_axes[axis].names)) - new_axes[axis].unnamed
            total = len(new_axes[axis].names) - new_axes[axis].unnamed
            said.append(f"{known:,} of the {total:,} {new_axes[axis].what} keep theirs")
        if fresh:
            said.append(f"begun anew: {', '.join(fresh[:MOST_NAMED])}{', …' if len(fresh) > MOST_NAMED else ''}")
        return f"Begins with the weights of {self.name}: {'; '.join(said)}."


def _find_directions(spec: ModelSpec) -> dict[str, tuple[Direction, ...]]:
    """Of every tensor the dimensions that follow the classes, or the words: seen in a model that has one more."""
    sizes = _list_shapes(spec)
    found: dict[str, tuple[Direction, ...]] = dict.fromkeys(sizes, ())
    for number, axis in enumerate(spec.task.axes()):
        count = len(axis.names)
        larger = _list_shapes(replace(spec, task=axis.larger))
        for name, shape in sizes.items():
            other = larger.get(name, torch.Size())
            if shape == other:
                continue
            dims = [dim for dim, size in enumerate(shape) if len(other) == len(shape) and other[dim] != size]
            block = other[dims[0]] - shape[dims[0]] if len(dims) == 1 else 0
            rest = shape[dims[0]] - count * block if block > 0 else -1
            regular = rest in (0, block)
            found[name] += (Direction(number, dims[0], block, rest > 0) if regular else Direction(number, -1),)
    return found


def _is_regular(directions: tuple[Direction, ...]) -> bool:
    return len(directions) == 1 and directions[0].dim >= 0


def _list_shapes(spec: ModelSpec) -> dict[str, torch.Size]:
    """Of a model's tensors by name; without memory where the model can be made so."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                model = spec.build()
        except (RuntimeError, TypeError):  # a model of one's own that looks at numbers while it is made
            model = spec.build()
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _mix(
    old: Tensor, new: Tensor, direction: Direction, old_names: tuple[str, ...], new_names: tuple[str, ...]
) -> Tensor | None:
    """The new tensor with the parts of the names that both have; None if the rest of their shapes differs."""
    dim, block = direction.dim, direction.block
    if old.dim() != new.dim() or any(
        a != b for at, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)) if at != dim
    ):
        return None
    place = {name: number for number, name in enumerate(old_names)}
    pairs = [(number, place[name]) for number, name in enumerate(new_names) if name in place]
    pairs += [(len(new_names), len(old_names))] if direction.more else []
    before, after = new.shape[:dim], new.shape[dim + 1 :]
    mixed, kept = (each.reshape(*before, -1, block, *after) for each in (new, old.to(new.dtype)))
    to, origin = (torch.tensor([pair[side] for pair in pairs], dtype=torch.int64) for side in (0, 1))
    return mixed.index_copy(dim, to, kept.index_select(dim, origin)).reshape(new.shape)


def recipe_from_start(
    start: Start, recipe: str | None = None, overrides: Mapping[str, Any] | None = None, notice: Notice | None = None
) -> Recipe:
    """A recipe that goes on with a trained model: its model, and the data prepared as it knows it.

    Args:
        start: the trained model.
        recipe: name or path of a recipe; not given: the one by which the model was trained, or the usual for its kind.
        overrides: values that replace those of both, see :func:`~torchcaps.training.recipes.recipe_from_values`.
        notice: told of keys that have another name by now.
    """
    given, task = dict(overrides or {}), start.spec.task
    if recipe is not None:
        values = read_values(recipe)
    elif start.recipe is not None:
        values = start.recipe.as_dict()
        values["training"]["first_epoch"] = 0
    else:
        values = read_values(DEFAULT_RECIPES[task.kind])
    own: dict[str, Any] = {"model.options": {}}
    if given.get("model.name", start.spec.name) == start.spec.name:
        by_data = task.model_options(start.spec.name, {})  # which the new data decides about
        options = {key: value for key, value in start.spec.options.items() if key not in by_data}
        own = {"model.name": start.spec.name, "model.options": options}
    data = given.get("data.name", values.get("data", {}).get("name"))
    own |= task.to_keys(_list_options(data) if "data.name" in given else ())
    return recipe_from_values(values, {**{key: own[key] for key in own if key not in given}, **given}, notice)


def _list_options(data: str | None) -> list[str]:
    """The options of a data set, by its name or path; none if it is not there, which is told when it is asked for."""
    try:
        return [] if data is None else option_names(find_dataset(data))
    except TorchcapsError:
        return []


def match_inputs(
    start: Start, recipe: Recipe, prepared: Prepared, dataset: Dataset, files: Files, say: Callable[[str], None] | None
) -> tuple[Recipe, Prepared]:
    """Bring data that is not as a trained model knows it to the size that it has, where that can be done.

    Args:
        start: the trained model.
        recipe: by which the data was prepared.
        prepared: that data.
        dataset: what it was made from.
        files: where that is looked for.
        say: told what is done.
    """
    task, known = prepared.task, start.spec.task
    if task.input_shape == known.input_shape or type(task) is not type(known):
        return recipe, prepared
    changes = task.match(known, dataset)
    if changes:
        recipe = replace(recipe, data=replace(recipe.data, **changes))
        prepared = task_of(dataset).prepare(recipe, dataset, files._replace(notice=None))
    if say and (said := prepared.task.describe_inputs(known, bool(changes))):
        say(said)
    return recipe, prepared


def keep_split(start: Start, recipe: Recipe, dataset: Dataset) -> SplitRecord | None:
    """The split of the data that a model was trained on, if this is the same data, cut in the same way."""
    record, then = start.record, start.recipe
    if record is None or then is None or then.data.validation != recipe.data.validation:
        return None
    entries = dataset.list_entries()
    return record if entries is not None and record.matches(entries) else None


def name_folder(named: str | None, recipe: Recipe, start: Start | None = None) -> str:
    """A name for the folder of a run.

    Args:
        named: the recipe's name or path, if one was given.
        recipe: what is run.
        start: the trained model that it begins with.
    """
    if named is not None:
        return _name_run(Path(named).stem, recipe.data.name, read_values(named).get("data", {}).get("name"))
    assert start is not None
    own = None if start.recipe is None else start.recipe.data.name
    return _name_run(f"{Path(start.name).stem}-more", recipe.data.name, own)


def _name_run(recipe: str, data: str, own: str | None = None) -> str:
    """What the folder of a run is called: after its data, or after its recipe if that is what the recipe is about.

    Args:
        recipe: its name.
        data: name or path of what it is trained on.
        own: data that the recipe itself names; not given: the default.
    """
    if data in (own or DataOptions().name, IN_MEMORY):
        return recipe
    path = Path(os.path.abspath(data))
    name = data if data in list_datasets() else path.name if path.is_dir() else path.stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:MOST_LETTERS] or recipe
