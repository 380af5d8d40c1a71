"""In which type of number routing computes: half precision in float32, and never by autocast's choice."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)
_Maybe = TypeVar("_Maybe", Tensor, Tensor | None)


def result_type(tensor: Tensor, other: Tensor) -> torch.dtype:
    """The type of what two give together, as torch promotes: bfloat16 with float32 is float32."""
    return tensor.dtype if tensor.dtype == other.dtype else torch.promote_types(tensor.dtype, other.dtype)


def compute_type(tensor: Tensor, other: Tensor) -> torch.dtype:
    """The type to compute with: that of the result, but float32 for half precision."""
    found = result_type(tensor, other)
    return torch.float32 if found in _HALF else found


def widen(tensor: _Maybe) -> _Maybe:
    """Half precision in float32, everything else as it is."""
    return tensor.float() if tensor is not None and tensor.dtype in _HALF else tensor


def cast(tensor: _Maybe, dtype: torch.dtype) -> _Maybe:
    """In that type, without a call where nothing is to be done, which counts for single images."""
    return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)


def exact(tensor: Tensor) -> AbstractContextManager[None]:
    """No autocast inside: everything is computed in the type that it has."""
    device = tensor.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # of meta, torch does not know
        return nullcontext()
    return torch.autocast(device, enabled=False)
