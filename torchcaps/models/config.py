"""What a model was made from, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.types import Device

from torchcaps.checks import require_choice, require_count
from torchcaps.errors import InputError, InputTypeError
from torchcaps.plain import as_json, describe, require_modest, shorten

if TYPE_CHECKING:
    from torchcaps.models.base import Model


@dataclass(frozen=True, eq=False)
class ModelConfig:
    """How to make a model: its name, what it sees, and all of its options.

    Options that are not given have the values that the model has for them, so two models that are made alike have
    equal configs, however they were asked for. A routing is described by its name and options.

    Args:
        name: one of :func:`~torchcaps.list_models`.
        input_shape: of images channels, height and width; for text words and size of a word's vector.
        classes: number of classes.
        options: of that model.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from torchcaps.models.registry import model_factory, require_input_shape

        known = inspect.signature(model_factory(self.name)).parameters
        object.__setattr__(self, "input_shape", require_input_shape(self.name, self.input_shape))
        require_count("classes", self.classes)
        if not isinstance(self.options, Mapping):
            raise InputTypeError(f"options of a model are a mapping of names to values, got {shorten(self.options)}.")
        free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
        own = [parameter for parameter in list(known.values())[2:] if parameter.kind is not parameter.VAR_KEYWORD]
        for option in () if free else self.options:
            require_choice(f"option of model {self.name!r}", option, {parameter.name for parameter in own})
        defaults = {one.name: one.default for one in own if one.default is not one.empty}
        options = {name: describe(value, name) for name, value in {**defaults, **self.options}.items()}
        object.__setattr__(self, "options", options)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> Model:
        """A new model with fresh weights, on that device and of that type."""
        from torchcaps.models.registry import build_model

        as_json(self.options)  # raises where plain data does not tell everything
        return build_model(self, self.options, device, dtype)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts, lists and dictionaries, as JSON has them; :meth:`from_dict` reads them.

        An option that plain data cannot hold, such as a function or a routing that is not registered, is an error.
        """
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "classes": self.classes,
            "options": as_json(self.options),
        }

    @classmethod
    def from_dict(cls, values: object) -> ModelConfig:
        """What :meth:`to_dict` gave; of values from elsewhere nothing is believed and nothing is imported.

        A model may still be larger than the memory: ``build(device="meta")`` makes it without any.
        """
        keys = ("name", "input_shape", "classes", "options")
        if not isinstance(values, Mapping) or set(values) != set(keys):
            raise InputError(f"a model's config has the keys {', '.join(keys)}, got {shorten(values)}.")
        name, shape, classes, options = (values[key] for key in keys)
        for key, kinds in {"name": (str,), "input_shape": (list, tuple), "options": (dict,)}.items():
            if not isinstance(values[key], kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise InputTypeError(f"{key} of a model's config must be of type {wanted}, got {shorten(values[key])}.")
        require_modest([name, shape, classes, options])
        return cls(name, shape, classes, options)

    def _compared(self) -> tuple[Any, ...]:
        return self.name, self.input_shape, self.classes, _alike(self.options)

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, ModelConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.input_shape, self.classes))


def _alike(value: Any) -> Any:
    """The same for values that mean the same: a list and a tuple, a routing's name and a mapping with nothing else."""
    if isinstance(value, dict):
        return value["name"] if set(value) == {"name"} else {key: _alike(entry) for key, entry in value.items()}
    return [_alike(entry) for entry in value] if isinstance(value, (list, tuple)) else value
