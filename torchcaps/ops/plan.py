"""A plan: the options of an algorithm, made and checked once, and passed whole to everything below."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from torchcaps.errors import InputTypeError, TorchcapsError

_Made = TypeVar("_Made", bound="Plan")


@dataclass(frozen=True)
class Plan:
    """Options of an algorithm: a frozen dataclass of numbers, names and truth values that checks itself when made.

    A custom op takes nothing but tensors, numbers and texts. So a plan crosses into one as :attr:`text` and is read
    back there by :func:`read_plan`: an option is one field of the plan, and no signature on the way down names it.

    Attributes:
        text: the plan as a custom op takes it.
    """

    text: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        """Check the fields; what a subclass does before it calls this."""
        for name in option_names(type(self)):
            if isinstance(value := getattr(self, name), list):
                self._derive(name, tuple(value))  # so that a plan can be remembered
        self._derive("text", json.dumps(self.plain()))

    def plain(self) -> dict[str, Any]:
        """The options as JSON can hold them; a subclass resolves those that it cannot."""
        return {name: getattr(self, name) for name in option_names(type(self))}

    def _derive(self, name: str, value: object) -> None:
        """Keep what follows from the options. Fields, not properties: those a compiled graph cannot read."""
        object.__setattr__(self, name, value)


def option_names(kind: type[Any]) -> tuple[str, ...]:
    """The options that a plan of a kind, or another dataclass, is made from."""
    return tuple(one.name for one in fields(kind) if one.init)


def derived(default: Any) -> Any:
    """A field of a plan that follows from its options."""
    return field(init=False, repr=False, compare=False, default=default)


def make_plan(kind: type[_Made], /, **options: Any) -> _Made:
    """A plan of a kind; the same options give the same plan, without being checked again."""
    return _constant_plan(kind, **options)[0]


def _constant_plan(kind: type[_Made], /, **options: Any) -> tuple[_Made]:
    try:
        return (_make(kind, **options),)  # type: ignore[arg-type] # a class is hashable
    except TypeError as error:
        if isinstance(error, TorchcapsError):
            raise
        require_options(kind, options)
    return (kind(**options),)  # with a list in it, which nothing can be remembered by


# A compiled graph is made for one plan. This is all that torch.compiler.assume_constant_result does, but for importing
# the compiler, which takes seconds. The tuple is for torch 2.6 and 2.7, which fail on a constant object with a float in
# it, but not on what a constant tuple holds.
_constant_plan._dynamo_marked_constant = True  # type: ignore[attr-defined]


def require_options(kind: type[Any], options: Iterable[str]) -> None:
    """Raise unless all of these are options that a plan of a kind, or another dataclass, has."""
    known = option_names(kind)
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(known)}."
        raise InputTypeError(f"{kind.__name__} has no option {unknown!r}.{hint}")


@functools.lru_cache(maxsize=1024, typed=True)
def _make(kind: Any, /, **options: Any) -> Any:
    return kind(**options)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_options(kind: type[Any], *given: str) -> Callable[[_Function], _Function]:
    """Show the options of a dataclass in the signature of a function whose ``**options`` they are: a decorator.

    Args:
        kind: that dataclass, such as a plan.
        given: options that the function names itself, or sets.
    """

    def show(function: _Function) -> _Function:
        own = inspect.signature(function)
        plain = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        more = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
            for one in fields(kind)
            if one.init and one.name not in {*given, *own.parameters}
        ]
        function.__signature__ = own.replace(parameters=[*plain, *more])  # type: ignore[attr-defined]
        return function

    return show


@functools.lru_cache(maxsize=1024)
def read_plan(kind: type[_Made], text: str) -> _Made:
    """The plan of a kind that has this :attr:`Plan.text`."""
    return kind(**json.loads(text))
