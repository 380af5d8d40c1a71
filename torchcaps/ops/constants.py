"""Tables that never change, as tensors: made once for each device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor


def constant(make: Callable[[Any, torch.device], Tensor], key: Hashable, device: torch.device) -> Tensor:
    """What ``make(key, device)`` gives, kept: do not write to it.

    While a model is compiled, exported or looked at (by a transform, or a mode such as ``FakeTensorMode``), tensors may
    be stand-ins, which must neither be kept nor be mixed with kept ones: there it is made anew.

    Args:
        make: the tensor from a key, on a device.
        key: all that the tensor depends on.
        device: of the tensor.
    """
    if torch.compiler.is_compiling() or _watched():
        return make(key, device)
    return _kept(make, key, device)


def _watched() -> bool:
    return (
        torch._C._functorch.maybe_current_level() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
    )


@functools.lru_cache(maxsize=256)
def _kept(make: Callable[[Any, torch.device], Tensor], key: Hashable, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # what is made in inference mode cannot be used in training afterwards
        return make(key, device)
