"""Who computes: backends of the fused routings and of convolutions, and which of them serves a call.

A backend is an object that says whether it can serve a call and then does its passes, forward and backward. Backends
register for an algorithm and a type of device. Of those that can serve a call the one that was registered last does, so
that a backend from outside the package comes first; the passes in torch, which can serve everything, come last.

``TORCHCAPS_BACKEND=torch`` (or ``cpu``, or the name of any other) in the environment, or :func:`use_backend`, asks for
one; if it cannot serve a call, an error says why. ``plain`` asks for none at all: votes are stored and no custom op is
called, so that a model exported there runs where torchcaps is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from torchcaps.checks import require_choice
from torchcaps.errors import InputError, TorchcapsError


class BackendError(TorchcapsError, RuntimeError):
    """No backend, or not the one that was asked for, can serve a call; the message says why."""


class Backend:
    """What serves an algorithm on a type of device. An algorithm's own base class adds the passes.

    Attributes:
        name: by which it is asked for, such as ``torch`` or ``cpu``.
    """

    name: str

    def unavailable(self) -> str | None:
        """Why it cannot be used on this machine at all, None if it can."""
        return None

    def supports(self, plan: Any, tensors: Sequence[Tensor | None]) -> str | None:
        """None if it can serve a call, else the reason why not.

        Args:
            plan: the algorithm's options.
            tensors: of the call, the first of which says the device.
        """
        return self.unavailable()

    def describe(self) -> str:
        """What it is, in a few words for ``torchcaps info``."""
        return self.name


class Registered(NamedTuple):
    """A backend and what it serves; ``device`` is None for every type of device."""

    algorithm: str
    device: str | None
    backend: Backend


PLAIN = "plain"
"""No backend and no custom op: see :mod:`torchcaps.ops.transforms`."""
_Class = TypeVar("_Class", bound=type[Backend])
_registered: list[Registered] = []
_registrations = 0
_serving: dict[tuple[str, str], tuple[Backend, ...]] = {}
_wanted: str | None = os.environ.get("TORCHCAPS_BACKEND") or (
    "torch" if os.environ.get("TORCHCAPS_NATIVE") == "0" else None
)


def register_backend(algorithm: str, device: str | None = None) -> Callable[[_Class], _Class]:
    """Let a class of backends serve an algorithm: a decorator.

    Args:
        algorithm: ``dynamic`` (dynamic and optimised routing without votes), ``em`` or ``convolution``.
        device: type of device, such as ``cuda``; None for every one.
    """

    def register(kind: _Class) -> _Class:
        taken = [one.backend.name for one in _registered if (one.algorithm, one.device) == (algorithm, device)]
        if kind.name in taken:
            raise InputError(f"{algorithm} on {device or 'every device'} already has a backend named {kind.name!r}.")
        _registered.append(Registered(algorithm, device, kind()))
        _changed()
        return kind

    return register


def unregister_backend(algorithm: str, name: str) -> None:
    """Forget a backend, for instance one that a test has registered."""
    _registered[:] = [one for one in _registered if (one.algorithm, one.backend.name) != (algorithm, name)]
    _changed()


def _changed() -> None:
    global _registrations
    _registrations += 1
    _serving.clear()


def registrations() -> int:
    """Another number after every change of the registered backends: what was chosen among them holds no longer."""
    return _registrations


def list_backends() -> list[Registered]:
    """All backends, in the order in which they were registered."""
    return list(_registered)


@contextmanager
def use_backend(name: str | None) -> Iterator[None]:
    """Within this context the backend of that name serves; None lets the library choose.

    Args:
        name: of a backend (``torchcaps info`` lists them), or ``plain`` for torch's own operators only.

    Example::

        with torchcaps.use_backend("plain"):
            program = torch.export.export(model, (images,))  # runs without torchcaps
    """
    global _wanted
    if name is not None:
        require_choice("backend", name, {PLAIN, *(one.backend.name for one in _registered)})
    before, _wanted = _wanted, name
    try:
        yield
    finally:
        _wanted = before


def wanted_backend() -> str | None:
    """The backend that was asked for, None if the library chooses."""
    return _wanted


def _candidates(algorithm: str, device: str) -> tuple[Backend, ...]:
    """Those for a type of device, the last registered first; then those for every type."""
    found = _serving.get((algorithm, device))
    if found is None:
        fitting = [one for one in reversed(_registered) if one.algorithm == algorithm and one.device in (device, None)]
        found = tuple(one.backend for one in sorted(fitting, key=lambda one: one.device is None))
        _serving[algorithm, device] = found
    return found


def choose_backend(algorithm: str, plan: Any, tensors: Sequence[Tensor | None], optional: bool = False) -> Backend:
    """The backend that serves a call.

    Args:
        algorithm: see :func:`register_backend`.
        plan: the algorithm's options.
        tensors: of the call, the first of which says the device.
        optional: the library chooses if the algorithm has no backend of the name that was asked for.
    """
    first = tensors[0]
    assert first is not None
    reasons = []
    wanted = "torch" if _wanted == PLAIN else _wanted  # an op that was called all the same
    candidates = _candidates(algorithm, first.device.type)
    if optional and all(backend.name != wanted for backend in candidates):
        wanted = None
    for backend in candidates:
        if wanted is not None and backend.name != wanted:
            continue
        reason = backend.supports(plan, tensors)
        if reason is None:
            return backend
        reasons.append(f"{backend.name}: {reason}")
    if _wanted is not None and not reasons:
        known = ", ".join(dict.fromkeys(one.backend.name for one in _registered if one.algorithm == algorithm))
        reasons.append(f"{algorithm} has no backend {_wanted!r} for {first.device.type} tensors; it has {known}")
    asked = "" if _wanted is None else f", which was asked for (TORCHCAPS_BACKEND or use_backend({_wanted!r}))"
    raise BackendError(f"no backend{asked} can serve this call of {algorithm}. {'; '.join(reasons)}.")


def passed_over(algorithm: str, plan: Any, tensors: Sequence[Tensor | None]) -> dict[str, str]:
    """The backends before the one that serves a call, and why each of them does not."""
    first = tensors[0]
    assert first is not None
    found = {}
    for backend in _candidates(algorithm, first.device.type):
        reason = backend.supports(plan, tensors)
        if reason is None:
            break
        found[backend.name] = reason
    return found
