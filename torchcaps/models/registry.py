"""Models by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from torchcaps.checks import require_choice, require_count

ModelFactory = Callable[..., nn.Module]
_models: dict[str, ModelFactory] = {}


def register_model(name: str) -> Callable[[ModelFactory], ModelFactory]:
    """Make ``factory(image_shape, classes, **options)`` available to :func:`create_model`: a decorator."""

    def register(factory: ModelFactory) -> ModelFactory:
        if name in _models:
            raise ValueError(f"a model named {name!r} is already registered; choose another name.")
        _models[name] = factory
        return factory

    return register


def list_models() -> list[str]:
    """The names of all registered models."""
    return sorted(_models)


def model_factory(name: str) -> ModelFactory:
    """The function that makes a model; its docstring describes it."""
    require_choice("model", name, _models)
    return _models[name]


def create_model(name: str, image_shape: Sequence[int] = (1, 28, 28), classes: int = 10, **options: Any) -> nn.Module:
    """Make a model by name.

    Args:
        name: one of :func:`list_models`.
        image_shape: channels, height and width of the images.
        classes: number of classes.
        options: of that model; see its function in :mod:`torchcaps.models`.

    Returns:
        A module: ``model(images, target=None)`` → :class:`~torchcaps.models.ModelOutput`.
    """
    require_choice("model", name, _models)
    shape = tuple(image_shape) if isinstance(image_shape, Sequence) else (image_shape,)
    if len(shape) != 3 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise ValueError(f"image_shape must be (channels, height, width), got {image_shape!r}.")
    require_count("classes", classes, least=2)
    factory = _models[name]
    for option in options:
        known = set(inspect.signature(factory).parameters) - {"image_shape", "classes"}
        require_choice(f"option of model {name!r}", option, known)
    return factory(shape, classes, **options)
