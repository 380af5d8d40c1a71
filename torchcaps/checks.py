"""Errors that teach: what was expected, what came, what to do about it.

Shape and type checks always run; they read metadata only. Looking for NaN or infinity reads the data
(and makes an accelerator wait), so it is off unless asked for with :func:`check_finite`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from torchcaps.errors import InputError, InputTypeError

_finite: ContextVar[bool] = ContextVar("torchcaps_check_finite", default=False)


@contextmanager
def check_finite(enabled: bool = True) -> Iterator[None]:
    """Within this context ops, layers and losses refuse NaN and infinite inputs, naming the tensor.

    What a mask hides is not looked at. Compiled graphs do not check.

    Example::

        with torchcaps.check_finite():
            model(images)
    """
    token = _finite.set(enabled)
    try:
        yield
    finally:
        _finite.reset(token)


def require_finite(name: str, tensor: Tensor) -> None:
    """Raise if checking is on and ``tensor`` holds NaN or infinity. Compiled graphs skip the check."""
    if torch.compiler.is_compiling() or not _finite.get():
        return
    bad = ~torch.isfinite(tensor)
    if bool(bad.any()):
        first = tuple(int(index) for index in bad.nonzero()[0])
        raise InputError(
            f"{name} holds {int(bad.sum())} NaN or infinite values of {tensor.numel()}, the first at {first}. "
            "Look at the layer or the data that made it: a too large learning rate, a division by zero or "
            "unscaled inputs are the usual causes."
        )


def require_float(name: str, tensor: Tensor) -> None:
    """Raise unless ``tensor`` is a floating point tensor."""
    if not isinstance(tensor, Tensor):
        raise InputTypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}.")
    if not tensor.is_floating_point():
        raise InputTypeError(
            f"{name} must be a floating point tensor, got {tensor.dtype}. Convert it first, e.g. {name}.float()."
        )


def require_float_type(dtype: torch.dtype | None) -> None:
    """Raise unless ``dtype`` is a type that weights can have, or None."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputTypeError(
            f"dtype must be a floating point type such as torch.float32 or torch.bfloat16, or None; got {dtype!r}."
        )


def require_like(name: str, tensor: Tensor, votes: Tensor) -> None:
    """Raise unless ``tensor`` is finite (if that check is on) and of the votes' type and device."""
    require_float(name, tensor)
    if tensor.dtype != votes.dtype or tensor.device != votes.device:
        raise InputTypeError(
            f"{name} must be {votes.dtype} on {votes.device} like the votes, got {tensor.dtype} on {tensor.device}. "
            f"Use {name}.to(votes)."
        )
    require_finite(name, tensor)


def require_votes(votes: Tensor) -> None:
    """Raise unless ``votes`` is a floating point tensor [B, I, J, D]."""
    require_float("votes", votes)
    if votes.dim() != 4:
        raise InputError(
            "votes must have four dimensions [batch, children, parents, parent pose size], "
            f"got shape {tuple(votes.shape)}. A single image needs votes.unsqueeze(0); "
            "matrix poses are flattened to their last dimension."
        )
    if votes.shape[2] == 0 or votes.shape[3] == 0:
        raise InputError(f"votes need at least one parent and one pose dimension, got shape {tuple(votes.shape)}.")


def require_shape(name: str, tensor: Tensor, *expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless ``tensor`` has one of the ``expected`` shapes."""
    if tuple(tensor.shape) not in expected:
        shapes = " or ".join(str(shape) for shape in dict.fromkeys(expected))
        raise InputError(f"{name} must have shape {shapes} ({meaning}), got {tuple(tensor.shape)}.")


def require_mask(name: str, mask: Tensor, *expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless ``mask`` is a boolean tensor of one of the ``expected`` shapes."""
    if mask.dtype != torch.bool:
        raise InputTypeError(f"{name} must be a bool tensor (True = takes part), got {mask.dtype}. Use {name}.bool().")
    require_shape(name, mask, *expected, meaning=meaning)


def require_count(name: str, value: int, least: int = 1) -> None:
    """Raise unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"{name} must be an integer, got {value!r}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {value}.")


def require_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise, with the nearest names, unless ``value`` is one of ``choices``."""
    known = sorted(choices)
    if value in known:
        return
    near = difflib.get_close_matches(str(value), known, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    raise InputError(f"unknown {name} {value!r}. {hint}Known: {', '.join(known)}.")
