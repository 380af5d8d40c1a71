"""Options as plain data: what JSON can hold, and what stands in for the rest."""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchcaps.errors import InputError

MOST_VALUES, MOST_DEPTH, MOST_LETTERS, MOST_NUMBER = 1_000, 20, 1_000, 2**31 - 1
"""Of options that come from elsewhere: how many, how many in each other, the longest text and the largest number."""
MOST_ITERATIONS = 1_000
"""Of a routing that such options may ask for: each costs time, and after some tens nothing changes."""


@dataclass(frozen=True)
class Undescribed:
    """Stands in for an option that plain data cannot hold; nothing is said about it before somebody asks.

    Args:
        reason: a sentence.
    """

    reason: str


def shorten(value: object) -> str:
    """A value in a sentence, shortened however large it is."""
    try:
        return reprlib.repr(value)
    except Exception:  # a number of 5,000 digits has no repr, nor has what a hostile __repr__ makes
        return f"a {type(value).__name__}"


@functools.singledispatch
def describe(value: Any, name: str) -> Any:
    """A value as plain data, in new lists, tuples and dictionaries; a class may register how it is described.

    Args:
        value: of an option.
        name: of that option, for the sentence if plain data cannot hold the value.
    """
    if value is None or isinstance(value, (bool, int, str, Undescribed)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: describe(entry, name) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(describe(entry, name) for entry in value)
    return Undescribed(
        f"{name} is {shorten(value)}, which plain data cannot hold. Give numbers, texts, truth values, and lists "
        "or dictionaries of them."
    )


def given_arguments(function: Callable[..., Any], *positional: Any, **named: Any) -> dict[str, Any]:
    """What a function was called with, by the names of its parameters and in their order, as plain data."""
    signature = inspect.signature(function)
    arguments: dict[str, Any] = {}
    for name, value in signature.bind(*positional, **named).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= {key: describe(entry, key) for key, entry in value.items()}
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            arguments[name] = Undescribed(f"*{name} takes values without names, which options cannot have.")
        else:
            arguments[name] = describe(value, name)
    return arguments


def as_json(value: Any) -> Any:
    """Described values as JSON gives them back, tuples as lists; an :class:`InputError` where one is not plain."""
    if isinstance(value, Undescribed):
        raise InputError(value.reason)
    if isinstance(value, dict):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    return value


def require_modest(options: Any) -> None:
    """Raise unless these options, which come from elsewhere, are plain data of a size that options have.

    Whether a model has them is not looked at.
    """
    waiting, seen = [(options, 0)], 0
    while waiting:
        (value, depth), seen = waiting.pop(), seen + 1
        if seen > MOST_VALUES or depth > MOST_DEPTH:
            raise InputError(f"options hold more than {MOST_VALUES:,} values, or more than {MOST_DEPTH} in each other.")
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            iterations = value.get("iterations", 1)
            if not isinstance(iterations, int) or iterations > MOST_ITERATIONS:
                raise InputError(f"iterations must be a whole number, at most {MOST_ITERATIONS:,}.")
            waiting += [(entry, depth + 1) for pair in value.items() for entry in pair]
        elif isinstance(value, (list, tuple)):
            waiting += [(entry, depth + 1) for entry in value]
        elif isinstance(value, int) and abs(value) > MOST_NUMBER:
            raise InputError(f"options hold a number beyond ±{MOST_NUMBER:,}.")
        elif isinstance(value, str) and len(value) > MOST_LETTERS:
            raise InputError(f"options hold a text of more than {MOST_LETTERS:,} letters.")
        elif describe(value, "an option") is not value:
            raise InputError(f"options hold {shorten(value)}, which is no plain data.")
