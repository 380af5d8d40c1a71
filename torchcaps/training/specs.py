"""What a weights file says about its model: how to build it and how to feed it."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import nn

from torchcaps.data.images import ImageSource
from torchcaps.data.preparation import Preparation, PreparedImages
from torchcaps.data.text.sources import Texts, keeps_capitals
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.models.registry import create_model, list_models, model_factory, model_reads
from torchcaps.training.recipe import Recipe


class RunError(Exception):
    """Something is wrong with a run folder or a recipe; the message says what to do."""


@dataclass(frozen=True)
class ModelSpec:
    """How to build a model of images again and how to feed it.

    Args:
        name: of the model.
        image_shape: what the model sees: channels, height, width.
        class_names: what its classes are called.
        options: of the model.
        preparation: what is done to images first.
        picture_shape: of images before that; not given: as the model sees them.
    """

    name: str
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    options: dict[str, Any]
    preparation: Preparation = field(default_factory=Preparation)
    picture_shape: tuple[int, int, int] | None = None

    @property
    def fitted_shape(self) -> tuple[int, int, int]:
        """The shape that a file is fitted to, before the preparation."""
        return self.picture_shape or self.image_shape

    def build(self) -> nn.Module:
        """A new model with fresh weights."""
        return create_model(self.name, self.image_shape, len(self.class_names), **self.options)

    def as_json(self) -> str:
        """For the header of a weights file."""
        return json.dumps(
            {
                "name": self.name,
                "image_shape": list(self.image_shape),
                "class_names": list(self.class_names),
                "options": self.options,
                "preparation": asdict(self.preparation),
                "picture_shape": list(self.fitted_shape),
            }
        )

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> ModelSpec:
        """Back from the header; one from before there was a preparation has none."""
        channels, height, width = values["image_shape"]
        shape = channels, height, width
        channels, height, width = values.get("picture_shape", shape)
        preparation = Preparation(**values.get("preparation", {}))
        names, options = tuple(values["class_names"]), values["options"]
        return cls(values["name"], shape, names, options, preparation, (channels, height, width))


@dataclass(frozen=True)
class TextSpec:
    """How to build a model of text again and how to feed it.

    Args:
        name: of the model.
        words: rows of its table of word vectors.
        vector_size: of a word.
        class_names: what its classes are called.
        options: of the model.
        longest: texts are cut after so many words.
        lower: texts are made lower case.
        multi_label: a text may have any number of classes.
        vocabulary: the words; kept in a file of its own.
    """

    name: str
    words: int
    vector_size: int
    class_names: tuple[str, ...]
    options: dict[str, Any]
    longest: int
    lower: bool = True
    multi_label: bool = False
    vocabulary: Vocabulary | None = None

    def build(self) -> nn.Module:
        """A new model with fresh weights."""
        return create_model(self.name, (self.words, self.vector_size), len(self.class_names), **self.options)

    def as_json(self) -> str:
        """For the header of a weights file."""
        values = {name: value for name, value in vars(self).items() if name != "vocabulary"}
        return json.dumps({"reads": "words", **values})

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> TextSpec:
        """Back from the header."""
        kept = {name: value for name, value in values.items() if name != "reads"}
        return cls(**kept | {"class_names": tuple(values["class_names"])})


Spec = ModelSpec | TextSpec


def spec_from_json(text: str) -> Spec:
    """What :meth:`ModelSpec.as_json` or :meth:`TextSpec.as_json` wrote."""
    values = json.loads(text)
    return TextSpec.from_values(values) if values.get("reads") == "words" else ModelSpec.from_values(values)


def longest_text(recipe: Recipe) -> int:
    """After how many words texts are cut: a model with weights for so many positions cannot see more."""
    return min(recipe.text.longest, recipe.model.options.get("length") or recipe.text.longest)


def model_spec(recipe: Recipe, source: ImageSource | Texts, vector_size: int = 0) -> Spec:
    """The model of a recipe for its data; several objects per image are told to the models that can decode them."""
    name, has = recipe.model.name, "words" if isinstance(source, Texts) else "images"
    if model_reads(name) != has:
        fitting = ", ".join(list_models("words" if has == "words" else "images"))
        raise RunError(
            f"{recipe.data.name} has {source.kind}, but the model {name} reads {model_reads(name)}: choose "
            f"--model.name among {fitting}."
        )
    options, objects = dict(recipe.model.options), source.objects
    if isinstance(source, Texts):
        return TextSpec(
            name, len(source.vocabulary), vector_size, source.class_names, options, longest_text(recipe),
            not keeps_capitals(recipe.data.name), source.multi_label, source.vocabulary,
        )  # fmt: skip
    if objects > 1 and "objects" in inspect.signature(model_factory(name)).parameters:
        options.setdefault("objects", objects)
    spec = ModelSpec(name, source.image_shape, source.class_names, options)
    if isinstance(source, PreparedImages):
        return replace(spec, preparation=source.preparation, picture_shape=source.picture_shape)
    return spec
