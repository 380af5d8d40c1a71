"""Models by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypeVar, cast, get_type_hints

import torch
from torch import nn
from torch.types import Device

from torchcaps.checks import require_choice, require_count, require_float_type
from torchcaps.errors import InputError, InputTypeError
from torchcaps.models.base import Model
from torchcaps.models.config import ModelConfig
from torchcaps.typed import describe_misfit, fits

ModelFactory = Callable[..., nn.Module]
Reads = Literal["images", "words"]
_Factory = TypeVar("_Factory", bound=ModelFactory)
_models: dict[str, tuple[ModelFactory, Reads]] = {}
DEFAULT_SHAPES: dict[Reads, tuple[int, ...]] = {"images": (1, 28, 28), "words": (10_000, 100)}


def register_model(name: str, reads: Reads = "images") -> Callable[[_Factory], _Factory]:
    """Make ``factory(input_shape, classes, **options)`` available to :func:`create_model`: a decorator.

    It should return a :class:`~torchcaps.models.Model`; any other module that is called alike will do. What it was
    made from is kept as its ``config``, also if the function is called directly, unless it has one of its own.

    Args:
        name: of the model.
        reads: ``images``, or ``words`` as token ids.
    """

    def register(factory: _Factory) -> _Factory:
        if name in _models:
            raise InputError(f"a model named {name!r} is already registered; choose another name.")
        _models[name] = factory, reads
        return factory if isinstance(factory, type) else _remember_arguments(name, factory)

    return register


def _remember_arguments(name: str, factory: _Factory) -> _Factory:
    """A factory whose models know what they were made from."""

    @functools.wraps(factory)
    def make(*positional: Any, **named: Any) -> nn.Module:
        signature = inspect.signature(factory)
        try:
            given = signature.bind(*positional, **named)
        except TypeError:
            return factory(*positional, **named)  # which says it better
        shape, classes, *more = given.args
        options = dict(zip(list(signature.parameters)[2:], more, strict=False)) | given.kwargs
        return _make(factory, ModelConfig(name, shape, classes, options), *more, **given.kwargs)

    return cast(_Factory, make)


def _make(factory: ModelFactory, config: ModelConfig, *more: Any, **options: Any) -> nn.Module:
    """A model that knows what it was made from. The options are as given: a routing itself, not how it is described."""
    _check_plain_options(factory, options)
    model = factory(config.input_shape, config.classes, *more, **options)
    if isinstance(getattr(model, "config", None), (ModelConfig, type(None))):  # not a user's own of that name
        model.config = config  # type: ignore[assignment] # torch knows of modules and tensors only
    return model


def _check_plain_options(factory: ModelFactory, options: Mapping[str, Any]) -> None:
    """Refuse a text, a list or the like for an option that is a truth value or a number: a text would count as true."""
    for name, value in options.items():
        if name.endswith("dropout") and isinstance(value, (int, float)) and not 0 <= value < 1:
            raise InputError(f"{name} is a share, at least 0 and below 1; got {value!r}.", option=name)
    try:
        hints = get_type_hints(factory)
    except (NameError, TypeError):  # a user's own, with types that cannot be looked up
        return
    for name, value in options.items():
        wanted = hints.get(name)
        plain = (wanted is bool and value is not None) or isinstance(value, (bool, str, list, dict))
        if wanted in (bool, int, float) and plain and not fits(value, wanted):
            raise InputTypeError(describe_misfit(name, value, wanted), option=name)


def list_models(reads: Reads | None = None) -> list[str]:
    """The names of all registered models, or of those that read images, or words."""
    return sorted(name for name, (_, what) in _models.items() if reads in (None, what))


def model_factory(name: str) -> ModelFactory:
    """The function that makes a model; its docstring describes it."""
    require_choice("model", name, _models)
    return _models[name][0]


def input_kind(name: str) -> Reads:
    """What a model reads."""
    require_choice("model", name, _models)
    return _models[name][1]


def require_input_shape(name: str, input_shape: Sequence[int]) -> tuple[int, ...]:
    """Raise unless a model can be made for inputs of that shape; return it."""
    reads = input_kind(name)
    shape = tuple(input_shape) if isinstance(input_shape, Sequence) else (input_shape,)
    if len(shape) != len(DEFAULT_SHAPES[reads]) or any(
        isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape
    ):
        meaning = "(channels, height, width)" if reads == "images" else "(words, size of a word's vector)"
        raise InputError(f"input_shape of {name} must be {meaning}, got {input_shape!r}.")
    return shape


def create_model(
    name: str,
    input_shape: Sequence[int] | None = None,
    classes: int = 10,
    *,
    device: Device = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Model:
    """Make a model by name.

    Args:
        name: one of :func:`list_models`.
        input_shape: of images channels, height and width, (1, 28, 28) if not given; for text the rows of the table of
            word vectors (``len(vocabulary)``) and the vectors' size, (10000, 100) if not given.
        classes: number of classes.
        device: on which it is made; ``meta`` for a model without memory. Not given: torch's default.
        dtype: to which its weights are converted when they are made: with the same seed those of float32, rounded.
        options: of that model; see its function in :mod:`torchcaps.models`.

    Returns:
        A :class:`~torchcaps.models.Model`: ``model(images or token ids, target=None)`` →
        :class:`~torchcaps.models.ModelOutput`. ``model.config`` says what it was made from. A function that a user has
        registered may return any other module; it should be called alike.
    """
    shape = DEFAULT_SHAPES[input_kind(name)] if input_shape is None else require_input_shape(name, input_shape)
    require_count("classes", classes, least=2)
    return build_model(ModelConfig(name, shape, classes, options), options, device, dtype)


def build_model(
    config: ModelConfig, options: Mapping[str, Any], device: Device = None, dtype: torch.dtype | None = None
) -> Model:
    """The model of a config, with the options as given, made on a device and converted to a type."""
    require_float_type(dtype)
    with nullcontext() if device is None else torch.device(device):
        model = _make(model_factory(config.name), config, **options)
    return cast(Model, model if device is None and dtype is None else model.to(device=device, dtype=dtype))
