"""Models by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from torchcaps.checks import require_choice, require_count
from torchcaps.errors import InputError

ModelFactory = Callable[..., nn.Module]
Reads = Literal["images", "words"]
_models: dict[str, tuple[ModelFactory, Reads]] = {}
DEFAULT_SHAPES: dict[Reads, tuple[int, ...]] = {"images": (1, 28, 28), "words": (10_000, 100)}


def register_model(name: str, reads: Reads = "images") -> Callable[[ModelFactory], ModelFactory]:
    """Make ``factory(input_shape, classes, **options)`` available to :func:`create_model`: a decorator.

    Args:
        name: of the model.
        reads: ``images``, or ``words`` as numbers of a vocabulary.
    """

    def register(factory: ModelFactory) -> ModelFactory:
        if name in _models:
            raise InputError(f"a model named {name!r} is already registered; choose another name.")
        _models[name] = factory, reads
        return factory

    return register


def list_models(reads: Reads | None = None) -> list[str]:
    """The names of all registered models, or of those that read images, or words."""
    return sorted(name for name, (_, what) in _models.items() if reads in (None, what))


def model_factory(name: str) -> ModelFactory:
    """The function that makes a model; its docstring describes it."""
    require_choice("model", name, _models)
    return _models[name][0]


def model_reads(name: str) -> Reads:
    """What a model reads."""
    require_choice("model", name, _models)
    return _models[name][1]


def create_model(name: str, input_shape: Sequence[int] | None = None, classes: int = 10, **options: Any) -> nn.Module:
    """Make a model by name.

    Args:
        name: one of :func:`list_models`.
        input_shape: of images channels, height and width, (1, 28, 28) if not given; for text the rows of the table of
            word vectors (``len(vocabulary)``) and the vectors' size, (10000, 100) if not given.
        classes: number of classes.
        options: of that model; see its function in :mod:`torchcaps.models`.

    Returns:
        A module: ``model(images or numbers of words, target=None)`` → :class:`~torchcaps.models.ModelOutput`.
    """
    require_choice("model", name, _models)
    factory, reads = _models[name]
    given = DEFAULT_SHAPES[reads] if input_shape is None else input_shape
    shape = tuple(given) if isinstance(given, Sequence) else (given,)
    if len(shape) != len(DEFAULT_SHAPES[reads]) or any(
        isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape
    ):
        meaning = "(channels, height, width)" if reads == "images" else "(words, size of a word's vector)"
        raise InputError(f"input_shape of {name} must be {meaning}, got {input_shape!r}.")
    require_count("classes", classes, least=2)
    parameters = list(inspect.signature(factory).parameters)
    for option in options:
        require_choice(f"option of model {name!r}", option, set(parameters[2:]))
    return factory(shape, classes, **options)
