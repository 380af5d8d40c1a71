"""What backends by the library of kernels share: whether it is there, and a call of one of its functions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torchcaps.errors import InputError, StateError
from torchcaps.ops.backends import Backend
from torchcaps.ops.backends.library import SUFFIXES, Function, load_library


class KernelBackend(Backend):
    """Serves float32 and float64 on the CPU, if the library is there and fits.

    Attributes:
        call: the name of the struct that its functions take.
        fields: which it fills.
    """

    name = "cpu"
    call: str
    fields: frozenset[str]

    @functools.cache  # noqa: B019 - there is one of each
    def unavailable(self) -> str | None:
        """The library is not there, or of another version."""
        library, reason = load_library()
        return reason if library is None else library.mismatch(self.call, self.fields)

    def supports(self, plan: Any, tensors: Sequence[Tensor | None]) -> str | None:
        """Two types of numbers, the same in poses and weights."""
        poses, weight = tensors[:2]
        assert poses is not None
        assert weight is not None
        if poses.dtype not in SUFFIXES or weight.dtype != poses.dtype:
            return f"it computes in float32 or float64, got {poses.dtype} and {weight.dtype}"
        return self.unavailable()

    def describe(self) -> str:
        """With the instruction set in use."""
        library, _ = load_library()
        return "kernel" if library is None else f"kernel, {library.variant}"


@functools.cache
def _function(name: str, call: str) -> Function:
    library, reason = load_library()
    if library is None:
        raise StateError(f"the kernel is not available: {reason}")
    return library.function(name, call)


class KernelCall:
    """One call: numbers, and addresses of tensors whose shapes were checked.

    Args:
        call: the name of the struct.
        like: a tensor of the call's type of numbers.
        values: of the fields; tensors are put in later, 0 is none.
    """

    def __init__(self, call: str, like: Tensor, values: dict[str, int]) -> None:
        self.call, self.like, self.values = call, like, values
        self.kept: list[object] = []  # alive while the kernel runs

    def put(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
        """Let the kernel have a tensor, or none, after making sure that it reads and writes inside it."""
        if tensor is None:
            return
        if tensor.shape != shape or tensor.dtype != self.like.dtype or not tensor.is_contiguous():
            raise InputError(
                f"the kernel needs {name} contiguous, {self.like.dtype}, of shape {shape}; "
                f"got {tensor.dtype} {tuple(tensor.shape)}."
            )
        self.kept.append(tensor)
        self.values[name] = tensor.data_ptr()

    def new(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor for the kernel to write to."""
        tensor = self.like.new_empty(shape)
        self.put(name, tensor, shape)
        return tensor

    def run(self, function: str) -> int:
        """Call a function of the library."""
        return _function(function, self.call)(self.like.dtype, self.values)
