"""When a fused op is not called: torch's transforms ask for derivatives that no kernel has.

A fused op has a first derivative, written out. Whoever asks for more (``torch.func`` with its ``grad``, ``jvp`` and
``hessian``, forward-mode automatic differentiation, ``create_graph=True``) gets the same numbers from plain torch,
which has derivatives of every order and stores votes. ``use_backend("plain")`` asks for that path everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from torchcaps.errors import StateError
from torchcaps.ops.backends import PLAIN, wanted_backend

_Optional = Tensor | None
_Maybe = TypeVar("_Maybe", Tensor, Tensor | None)


def plain_needed(foldable: bool = False) -> bool:
    """Whether plain torch must serve: it was asked for, or a transform is active that a fused op has no rule for.

    Args:
        foldable: the op has a rule for ``vmap``, so that this one alone is no reason.
    """
    return wanted_backend() == PLAIN or _transformed(foldable)


def _transformed(foldable: bool) -> bool:
    if forward_ad._current_level >= 0 or torch._C._get_tracing_state() is not None:
        return True  # torch.jit.trace passes sizes that are tensors, which no op of ours takes
    if torch._C._functorch.maybe_current_level() is None:
        return False
    vmap = torch._C._functorch.TransformType.Vmap
    stack = torch._C._functorch.get_interpreter_stack() or []
    return not (foldable and all(layer.key() == vmap for layer in stack))


# A compiled graph is guarded by the transforms it was made under, so they are read while it is made. (This is all that
# torch.compiler.assume_constant_result does, but for importing the compiler.)
_transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def has_no_values(tensor: Tensor) -> bool:
    """Whether a tensor has a shape only: on the device meta, or fake."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def can_be_read(tensor: Tensor) -> bool:
    """Whether what is computed may depend on the values of a tensor, at no cost: on the CPU, and nobody is watching."""
    return not (
        tensor.device.type != "cpu"
        or torch.compiler.is_compiling()
        or torch._C._functorch.maybe_current_level() is not None
        or torch._C._get_tracing_state() is not None
        or has_no_values(tensor)
    )


def fold(tensor: _Maybe, dim: int | None, size: int) -> _Maybe:
    """A tensor whose first dimension is images, and that ``vmap`` has ``size`` of: as more images."""
    if tensor is None:
        return tensor
    each = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return each.flatten(0, 1).contiguous()


def unfold(tensor: Tensor, dim: int, size: int) -> Tensor:
    """The images of each again, behind one another from ``dim`` on."""
    return torch.unflatten(tensor, dim, (size, tensor.shape[dim] // size))


def call_each(
    op: Callable[..., Sequence[Tensor]], in_dims: Sequence[int | None], size: int, *tensors: _Optional
) -> Any:
    """What an op gives for each of ``size`` sets of tensors, behind one another from the front on."""

    def take(n: int) -> list[_Optional]:
        pairs = zip(tensors, in_dims, strict=True)
        return [tensor if tensor is None or dim is None else tensor.select(dim, n) for tensor, dim in pairs]

    each = [op(*take(n)) for n in range(size)]
    return tuple(torch.stack(part) for part in zip(*each, strict=True))


def require_no_tangents(op: str) -> None:
    """Raise where forward-mode derivatives are taken: an op that was called all the same would give zero."""
    if forward_ad._current_level >= 0:
        raise StateError(
            f"torchcaps::{op} has no forward-mode derivative. The functions and layers of torchcaps take plain torch "
            "by themselves there; a program that was exported with the op in it does not: export it within "
            'torchcaps.use_backend("plain").'
        )


def gradients_by_plain_torch(
    function: Callable[..., Any], inputs: Sequence[_Optional], grads: Any
) -> tuple[_Optional, ...]:
    """Gradients of the inputs that are there, in a way that can itself be differentiated: None for the others.

    Args:
        function: of all ``inputs``, in plain torch.
        inputs: tensors, or None.
        grads: of what the function returns.
    """
    given = [tensor for tensor in inputs if tensor is not None]

    def of_given(*tensors: Tensor) -> Any:
        rest = iter(tensors)
        return function(*(None if tensor is None else next(rest) for tensor in inputs))

    pull = torch.func.vjp(of_given, *given)[1]
    found = iter(pull(grads))
    return tuple(None if tensor is None else next(found) for tensor in inputs)
