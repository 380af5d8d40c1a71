"""The tasks of a run until there is a module of tasks: how the model of a weights file is fed."""

from __future__ import annotations

from typing import NamedTuple

from torchcaps.data.images import Source
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import Preparation
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.training.evaluation import evaluation_images, evaluation_texts
from torchcaps.training.recipe import Recipe
from torchcaps.training.specs import Spec, TextSpec


class ImageTask(NamedTuple):
    """Classes of images."""

    class_names: tuple[str, ...]
    input_shape: tuple[int, int, int]
    image_shape: tuple[int, int, int]
    preparation: Preparation
    objects: int = 1
    kind: str = "images"


class TextTask(NamedTuple):
    """Classes of texts."""

    class_names: tuple[str, ...]
    vocabulary: Vocabulary | None
    max_length: int
    lower: bool
    multi_label: bool
    kind: str = "texts"


def as_task(spec: Spec) -> ImageTask | TextTask:
    """The task of a weights file's header."""
    if isinstance(spec, TextSpec):
        return TextTask(spec.class_names, spec.vocabulary, spec.longest, spec.lower, spec.multi_label)
    objects = int(spec.options.get("objects", 1))
    return ImageTask(spec.class_names, spec.image_shape, spec.fitted_shape, spec.preparation, objects)


def evaluation_data(spec: Spec, recipe: Recipe, overrides: DataOptions | None) -> Source:
    """The test data of a run, or other, as its model sees it."""
    if isinstance(spec, TextSpec):
        return evaluation_texts(overrides or recipe.data, recipe, "test", spec)
    return evaluation_images(overrides or recipe.data, "test", 1, spec, overrides is not None)
