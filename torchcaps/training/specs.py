"""What a weights file says about its model: how to build it and how to feed it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torchcaps.data.images import ImageSource, check_names
from torchcaps.data.preparation import Preparation, PreparedImages
from torchcaps.data.registry import make_text_dataset
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import TorchcapsError
from torchcaps.io import parse_json
from torchcaps.models import Model, create_model, list_models
from torchcaps.models.registry import model_factory, model_reads
from torchcaps.plain import MOST_NUMBER, require_modest
from torchcaps.training.recipe import Recipe

MOST_SIDE = 10_000
"""Pixels of an image's side that a weights file may ask for."""


class RunError(TorchcapsError):
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

    def build(self) -> Model:
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
        """Back from the header, of which nothing is believed; one from before there was a preparation has none."""
        shape = _shape(values, "image_shape")
        picture_shape = _shape(values, "picture_shape") if "picture_shape" in values else shape
        preparation = Preparation(**_preparation(values.get("preparation", {})))
        if max(preparation.resize_shape(picture_shape)[1:]) > MOST_SIDE:
            raise RunError(f"images would be resized to {preparation.resize_shape(picture_shape)}.")
        if preparation.input_shape(picture_shape) != shape:
            raise RunError(f"images of {picture_shape} do not become {shape} by its preparation.")
        return cls(_name(values), shape, _names(values), _options(values), preparation, picture_shape)


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

    def build(self) -> Model:
        """A new model with fresh weights."""
        return create_model(self.name, (self.words, self.vector_size), len(self.class_names), **self.options)

    def as_json(self) -> str:
        """For the header of a weights file."""
        values = {name: value for name, value in vars(self).items() if name != "vocabulary"}
        return json.dumps({"reads": "words", **values})

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> TextSpec:
        """Back from the header, of which nothing is believed."""
        words, size, longest = (_whole(values, key) for key in ("words", "vector_size", "longest"))
        lower, multi_label = (bool(_of(values, key, bool, default)) for key, default in _TRUTHS.items())
        name, names = _name(values), _names(values)
        return cls(name, words, size, names, _options(values), longest, lower, multi_label)


Spec = ModelSpec | TextSpec


def spec_from_json(text: str) -> Spec:
    """What :meth:`ModelSpec.as_json` or :meth:`TextSpec.as_json` wrote."""
    values = parse_json(text, "its header")
    if not isinstance(values, dict):
        raise RunError(f"its header must be keys with values, got {values!r:.60}.")
    return TextSpec.from_values(values) if values.get("reads") == "words" else ModelSpec.from_values(values)


_TRUTHS = {"lower": True, "multi_label": False}


def _of(values: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """A value of a header that must be of a kind."""
    found = values.get(key, default)
    if not isinstance(found, kind):
        raise RunError(f"{key} must be of type {kind.__name__}, got {found!r:.60}.")
    return found


def _name(values: Mapping[str, Any]) -> str:
    name: str = _of(values, "name", str)
    if len(name) > 100:
        raise RunError(f"no model has such a name: {name!r:.60}.")
    return name


def _whole(values: Mapping[str, Any], key: str, most: int = MOST_NUMBER) -> int:
    found: int = _of(values, key, int)
    if isinstance(found, bool) or not 1 <= found <= most:
        raise RunError(f"{key} must be a whole number from 1 to {most:,}, got {found!r:.60}.")
    return found


def _shape(values: Mapping[str, Any], key: str) -> tuple[int, int, int]:
    found = _of(values, key, list)
    if len(found) != 3:
        raise RunError(f"{key} must be channels, height and width, got {found!r:.60}.")
    channels, height, width = (_whole({key: size}, key, MOST_SIDE) for size in found)
    return channels, height, width


def _names(values: Mapping[str, Any]) -> tuple[str, ...]:
    names = _of(values, "class_names", list)
    if not names or not all(isinstance(name, str) for name in names):
        raise RunError(f"class_names must be texts, got {names!r:.60}.")
    check_names(names)
    return tuple(names)


def _preparation(values: Any) -> dict[str, Any]:
    kinds = {"resize": int, "standardize": bool, "crop": int, "crops": int}
    if not isinstance(values, dict) or not values.keys() <= kinds.keys():
        raise RunError(f"preparation must have keys among {', '.join(kinds)}, got {values!r:.60}.")
    for key in values:
        if values[key] is not None:
            _of(values, key, kinds[key])
    return values


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options for a model, plain data. The model refuses those that it does not have."""
    options: dict[str, Any] = _of(values, "options", dict)
    require_modest(options)
    return options


def longest_text(recipe: Recipe) -> int:
    """After how many words texts are cut: a model with weights for so many positions cannot see more."""
    return min(recipe.text.max_length, recipe.model.options.get("length") or recipe.text.max_length)


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
            make_text_dataset(recipe.data).lower, source.multi_label, source.vocabulary,
        )  # fmt: skip
    if objects > 1 and "objects" in inspect.signature(model_factory(name)).parameters:
        options.setdefault("objects", objects)
    spec = ModelSpec(name, source.input_shape, source.class_names, options)
    if isinstance(source, PreparedImages):
        return replace(spec, preparation=source.preparation, picture_shape=source.image_shape)
    return spec
