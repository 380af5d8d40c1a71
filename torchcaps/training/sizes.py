"""How large images of one's own are made where nobody says so: large ones are brought to what a model is made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from torchcaps.data.dataset import Dataset, ImageDataset
from torchcaps.data.preparation import Preparation
from torchcaps.machine import WeightLimit
from torchcaps.models import create_model
from torchcaps.models.cnn import parameter_count
from torchcaps.training.errors import RunError
from torchcaps.training.memory import StepBudget, measure_without_memory
from torchcaps.training.recipe import Recipe
from torchcaps.training.specs import ModelSpec

LARGEST_KEPT = 64
"""Pixels of a side up to which images stay as they are."""
LARGE, SMALL = (64, 48), 32
"""Shorter sides that images are brought to: the first with which a model is not too large, and the last resort."""
FEW, ENOUGH, TOO_MANY = 1_000_000, 10_000_000, 50_000_000
"""Weights: of a model that is made for small images, of one that may see larger ones, and what nobody gets unasked."""
TRIALS = 4
"""Times as many numbers a model may make on the way: some are made in several sizes, to find the one that matches."""


def is_size_chosen(recipe: Recipe) -> bool:
    """Whether a recipe says how large images are."""
    data = recipe.data
    return data.resize is not None or data.crop is not None or "image_size" in data.options


def settle_size(recipe: Recipe, dataset: Dataset, tell: Callable[[str], None] | None = None) -> Recipe:
    """The same recipe with a size for large images of one's own, where nobody chose one.

    Args:
        recipe: of a new run.
        dataset: what it is trained on.
        tell: told what was chosen, and how to choose otherwise.
    """
    if dataset.name or not isinstance(dataset, ImageDataset) or is_size_chosen(recipe):
        return recipe
    look = dataset.look()
    if look is None or max(look.image_shape[1:]) <= LARGEST_KEPT or min(look.image_shape[1:]) <= SMALL:
        return recipe
    side = choose_side(recipe.model.name, recipe.model.options, look.image_shape, look.classes)
    _, height, width = look.image_shape
    small = Preparation(resize=side).resize_shape(look.image_shape)
    if tell:
        tell(
            f"The images of {height}×{width} are brought to {small[1]}×{small[2]} (data.resize {side}), a size for "
            f"{recipe.model.name}. Choose another with data.resize; {min(height, width)} leaves them as they are."
        )
    return replace(recipe, data=replace(recipe.data, resize=side))


def choose_side(name: str, options: Mapping[str, Any], image_shape: tuple[int, int, int], classes: int) -> int:
    """The shorter side that images should be brought to for a model.

    A model that is small at 32 pixels is made for small images; a larger one sees 64 or 48 if it stays below ten
    million weights.
    """
    if has_few_weights(name, options, Preparation(resize=SMALL).resize_shape(image_shape), classes, FEW):
        return SMALL
    for side in LARGE:
        shape = Preparation(resize=side).resize_shape(image_shape)
        if side <= min(image_shape[1:]) and has_few_weights(name, options, shape, classes, ENOUGH):
            return side
    return SMALL


class _TooManyError(Exception):
    pass


def has_few_weights(
    name: str, options: Mapping[str, Any], shape: tuple[int, int, int], classes: int, most: int
) -> bool:
    """Whether a model for images of a shape has ``most`` weights or fewer; not if it cannot be made at all."""
    try:
        with torch.random.fork_rng(devices=[]), WeightLimit(TRIALS * most, lambda _: _TooManyError()):
            return parameter_count(create_model(name, shape, max(2, classes), **options)) <= most
    except Exception:  # too many, or options and sizes that do not fit, which is told when it is made
        return False


def is_asked_for(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether somebody chose what makes a model as large as it is: the data's makers, or a user by a size or option."""
    return bool(dataset.name) or dataset.kind != "images" or is_size_chosen(recipe) or bool(recipe.model.options)


@contextmanager
def refuse_unasked(budget: StepBudget) -> Iterator[Callable[[nn.Module], None]]:
    """Refuse a model of more than fifty million weights that nobody asked for: by what this gives, or while it is made.

    >>> with refuse_unasked(budget) as check:
    ...     check(budget.spec.build())
    """

    def refuse(needed: int) -> RunError:
        spec, shape = budget.spec, budget.spec.task.input_shape
        need = measure_without_memory(spec, budget.recipe, budget.batch)
        weights = f"{need.weights:,} weights" if need is not None else f"{needed:,} weights or more"
        return RunError(
            f"{spec.name} would have {weights} for images of {'×'.join(map(str, shape))}. Bring them to fewer pixels "
            f"({_find_size(budget)}), choose a smaller model (model.name), or give data.resize {min(shape[1:])} to "
            "train it as it is.",
            option="data.resize",
        )

    def check(model: nn.Module) -> None:
        if parameter_count(model) > TOO_MANY:
            raise refuse(parameter_count(model))

    with WeightLimit(TRIALS * TOO_MANY, refuse):
        yield check


def _find_size(budget: StepBudget) -> str:
    """A size with fewer weights, and how many."""
    for side in (*LARGE, SMALL, 24, 16):
        smaller = budget.spec.task.resize_to(side)
        if smaller is None or side >= min(budget.spec.task.input_shape[1:]):
            continue
        spec = ModelSpec(budget.spec.name, smaller, budget.spec.options)
        need = measure_without_memory(spec, budget.recipe, budget.batch)
        if need is not None and need.weights <= TOO_MANY:
            return f"data.resize {side} gives {need.weights:,}"
    return "data.resize"
