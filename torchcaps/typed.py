"""Plain values against the types of a dataclass's fields, and those types in words. Nothing is imported or called."""

from __future__ import annotations

import difflib
import numbers
import os
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torchcaps.errors import FileError, InputError
from torchcaps.io import parse_yaml
from torchcaps.plain import shorten

_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "keys with values",
    type(None): "null", Any: "anything",
}  # fmt: skip
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NOTHING = ("null", "~")


def field_types(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields, by name."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def fits(value: Any, wanted: Any) -> bool:
    """Whether plain data is of a type as it is: bool, int, float, str, None, choices, a list, a map, or one of some."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return True
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in parts)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        return isinstance(value, (int, float))
    if origin is list and isinstance(value, list):
        return all(fits(entry, parts[0]) for entry in value)
    return isinstance(value, origin or wanted)


def convert(value: Any, wanted: Any) -> Any:
    """A value as a type wants it: a text, as a command line and a file give it, is read; numbers of numpy become plain.

    Args:
        value: plain data.
        wanted: the type of a field.

    Raises:
        InputError: the value is of another kind; :func:`describe_misfit` has the words.
    """
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return value
    if origin is Literal:
        return _choose(value, parts)
    if origin in (Union, types.UnionType):
        for part in sorted(parts, key=lambda part: part is str):  # a text stays one only if it is nothing else
            try:
                return convert(value, part)
            except InputError:
                continue
        raise InputError("none of several types")
    if origin is list or wanted is list:
        return [convert(entry, parts[0] if parts else Any) for entry in _require(_read(value), list)]
    if origin is dict or wanted is dict:
        return dict(_require(_read(value), Mapping))
    return _CONVERTERS[wanted](value) if wanted in _CONVERTERS else _require(value, origin or wanted)


def describe_type(wanted: Any) -> str:
    """A type in a sentence: "a whole number or null", "margin, spread or cross-entropy"."""
    return join_choices(dict.fromkeys(_list_words(wanted)))


def join_choices(choices: Iterable[object]) -> str:
    """Choices in a sentence: "test, train or all"."""
    *most, last = map(str, choices)
    return f"{', '.join(most)} or {last}" if most else last


def describe_misfit(name: str, value: Any, wanted: Any) -> str:
    """What to say of a value that is of another type than an option's, with the nearest choice."""
    known = [str(choice) for choice in _list_choices(wanted)]
    near = difflib.get_close_matches(value.lower(), known, n=1) if isinstance(value, str) else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{name} must be {describe_type(wanted)}, got {show_value(value)}.{hint}"


def guess_name(name: str, known: Iterable[str], meant: Mapping[str, str]) -> str | None:
    """The name that was probably meant by one that is not known: the same at its end, another word for it, or nearest.

    Args:
        name: with or without what comes before its last dot; dashes count as underscores.
        known: all names.
        meant: those that others have for some of them.
    """
    names = {other.lower().replace("-", "_"): other for other in known}
    spelled = name.lower().replace("-", "_")
    if spelled in names:
        return names[spelled]
    last = spelled.rpartition(".")[2]
    alike = [other for key, other in names.items() if key.rpartition(".")[2] == last]
    if alike or last in meant:
        return meant[last] if not alike else min(alike, key=len)
    near = difflib.get_close_matches(spelled, names, n=1, cutoff=0.6)
    if near:
        return names[near[0]]
    ends = {key.rpartition(".")[2]: key for key in names}
    near = difflib.get_close_matches(last, [*ends, *meant], n=1, cutoff=0.75)
    return None if not near else names[ends[near[0]]] if near[0] in ends else meant[near[0]]


def show_value(value: Any) -> str:
    """A value in a sentence, as files and command lines spell it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return shorten(value)


def _list_words(wanted: Any) -> list[str]:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return [str(choice) for choice in parts]
    if origin in (Union, types.UnionType):
        return [word for part in parts for word in _list_words(part)]
    if wanted is bool:
        return ["true", "false"]
    if origin is list:
        plural = {float: "numbers", int: "whole numbers", str: "texts"}
        return [f"a list of {plural.get(parts[0], 'values')}"]
    return [_WORDS.get(origin or wanted, getattr(wanted, "__name__", "something else"))]


def _list_choices(wanted: Any) -> list[Any]:
    if get_origin(wanted) is Literal:
        return list(get_args(wanted))
    return [choice for part in get_args(wanted) for choice in _list_choices(part)]


def _choose(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if (value == choice and type(value) is type(choice)) or (isinstance(value, str) and value == str(choice)):
            return choice
    raise InputError("not one of the choices")


def _require(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise InputError("of another kind")
    return value


def _read(value: Any) -> Any:
    """What a text says as YAML; other values as they are."""
    try:
        return parse_yaml(value, "the value") if isinstance(value, str) else value
    except FileError:
        raise InputError("not YAML") from None


def _to_int(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9](_?[0-9]){0,30}", value.strip()):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError("no whole number")
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Real)):
        raise InputError("no number")
    try:
        return float(re.sub(r"^([+-]?)\.(inf|nan)$", r"\1\2", value.lower()) if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        raise InputError("no number") from None


def _to_bool(value: Any) -> bool:
    value = _TRUTHS.get(value.lower(), value) if isinstance(value, str) else value
    return bool(_require(value, bool))


def _to_text(value: Any) -> str:
    return str(_require(os.fspath(value) if isinstance(value, os.PathLike) else value, str))


def _to_none(value: Any) -> None:
    if value is not None and not (isinstance(value, str) and value.lower() in _NOTHING):
        raise InputError("something")


_CONVERTERS: dict[Any, Any] = {
    int: _to_int, float: _to_float, bool: _to_bool, str: _to_text, type(None): _to_none
}  # fmt: skip
