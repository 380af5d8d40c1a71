"""Indices that must be in range, wherever they are: read where that costs nothing, else asserted by the device."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.errors import InputError
from torchcaps.ops.transforms import has_no_values

_KEYS = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "xpu": "XPU"}
_ASSERTING = frozenset(
    device
    for device, key in _KEYS.items()
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::_assert_async.msg", key)
)
"""Types of devices that can assert by themselves, while nobody waits for them."""


def asserts_in_graph(indices: Tensor) -> bool:
    """Whether a compiled graph can assert something about these indices; within vmap, for one, it cannot."""
    return indices.device.type in _ASSERTING and not torch._C._are_functorch_transforms_active()


def require_indices(
    indices: Tensor, count: int, sentence: str, *, advice: str = "", looked_up: bool = False
) -> tuple[int, int] | None:
    """Raise unless all indices are in 0 … count − 1.

    Eagerly they are read; those of a vmap, all at once, as they lie in memory. On CUDA that would make everything wait,
    and a compiled graph cannot raise: there the device asserts, which stops the program a little later, with the
    sentence as far as the device can print it. Tensors without values (meta, fake) are let through.

    Args:
        indices: of any shape, also of no elements.
        count: how many there are to choose from.
        sentence: what is expected, without a full stop.
        advice: what to do about it.
        looked_up: something is looked up by them in a moment, which makes the device assert anyway.

    Returns:
        The least and the largest, where they were read.
    """
    if torch.compiler.is_compiling():
        if not looked_up and asserts_in_graph(indices):
            _assert_by_device(indices, count, sentence)
        return None
    while torch._C._functorch.is_functorch_wrapped_tensor(indices):
        indices = torch._C._functorch.get_unwrapped(indices)
    if has_no_values(indices) or not indices.numel():
        return None
    if indices.device.type == "cuda":
        if not looked_up:
            _assert_by_device(indices, count, sentence)
        return None
    low, high = (int(bound) for bound in indices.aminmax())
    if low < 0 or high >= count:
        raise InputError(f"{sentence}, got values from {low} to {high}.{advice}")
    return low, high


def _assert_by_device(indices: Tensor, count: int, sentence: str) -> None:
    torch._assert_async(((indices >= 0) & (indices < count)).all(), f"{sentence}.")
