"""Values of a weights file's header, which may come from anyone: of their types and within their limits, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchcaps.data.images import check_names
from torchcaps.data.pictures import FITS, Fit
from torchcaps.plain import MOST_NUMBER, require_modest
from torchcaps.training.errors import RunError

MOST_SIDE = 10_000
"""Pixels of an image's side that a weights file may ask for."""


def read_value(values: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """A value that must be of a kind."""
    value = values.get(key, default)
    if not isinstance(value, kind):
        raise RunError(f"{key} must be of type {kind.__name__}, got {value!r:.60}.")
    return value


def read_count(values: Mapping[str, Any], key: str, most: int = MOST_NUMBER) -> int:
    """A whole number from 1 to ``most``."""
    count: int = read_value(values, key, int)
    if isinstance(count, bool) or not 1 <= count <= most:
        raise RunError(f"{key} must be a whole number from 1 to {most:,}, got {count!r:.60}.")
    return count


def read_shape(values: Mapping[str, Any], key: str) -> tuple[int, int, int]:
    """Channels, height and width."""
    shape = read_value(values, key, list)
    if len(shape) != 3:
        raise RunError(f"{key} must be channels, height and width, got {shape!r:.60}.")
    channels, height, width = (read_count({key: size}, key, MOST_SIDE) for size in shape)
    return channels, height, width


def read_class_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Texts that can be shown."""
    names = read_value(values, "class_names", list)
    if not names or not all(isinstance(name, str) for name in names):
        raise RunError(f"class_names must be texts, got {names!r:.60}.")
    check_names(names)
    return tuple(names)


def read_preparation(values: Any) -> dict[str, Any]:
    """The arguments of a :class:`~torchcaps.data.preparation.Preparation`."""
    kinds = {"resize": int, "standardize": bool, "crop": int, "crops": int}
    if not isinstance(values, dict) or not values.keys() <= kinds.keys():
        raise RunError(f"preparation must have keys among {', '.join(kinds)}, got {values!r:.60}.")
    for key in values:
        if values[key] is not None:
            read_value(values, key, kinds[key])
    return values


def read_fit(values: Mapping[str, Any]) -> Fit:
    """How images are brought to their shape; not given: with bars, as 0.1 did."""
    fit = values.get("fit", FITS[0])
    for known in FITS:
        if fit == known:
            return known
    raise RunError(f"fit must be one of {', '.join(FITS)}, got {fit!r:.60}.")


def read_model(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The model's name and its options, plain data. The model refuses those that it does not have."""
    name: str = read_value(values, "name", str)
    if len(name) > 100:
        raise RunError(f"no model has such a name: {name!r:.60}.")
    options: dict[str, Any] = read_value(values, "options", dict)
    require_modest(options)
    return name, options
