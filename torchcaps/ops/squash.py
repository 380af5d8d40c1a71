"""Squash: a length becomes a probability, the direction stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.checks import require_choice, require_finite, require_float
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.transforms import plain_needed


class _Kind(NamedTuple):
    """v = f(n)·s for a vector s of length n > 0."""

    factor: Callable[[Tensor], Tensor]
    """f(n)."""
    slope: Callable[[Tensor], Tensor] | None
    """f'(n); None where f is constant."""


def _rational(a: float) -> _Kind:
    """n²/(a + n²) · s/n. The slope is divided by b twice, since b² overflows long before b does."""

    def slope(n: Tensor) -> Tensor:
        b = a + n * n
        return (a - n * n) / b / b

    return _Kind(lambda n: n / (a + n * n), slope)


# The kernel has the same in csrc/dynamic/steps.h, by the same names.
_KINDS = {
    "sabour": _rational(1.0),
    "exponential": _Kind(
        lambda n: -torch.expm1(-n) / n,  # expm1: exact for short vectors
        lambda n: (torch.exp(-n) + torch.expm1(-n) / n) / n,
    ),
    "half": _rational(0.5),
    "unit": _Kind(lambda n: 1 / n, lambda n: -1 / n.square()),
    "none": _Kind(torch.ones_like, None),
}
SQUASH_KINDS = tuple(_KINDS)


def length(pose: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Euclidean length ‖s‖ along ``dim``, with gradient 0 at s = 0 (where a bare square root gives NaN).

    So are its further derivatives there, where those of torch's norm are NaN.
    """
    require_float("pose", pose)
    return norm(pose, dim, keepdim)


def norm(pose: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """:func:`length` of what is known to be floating point numbers."""
    found: Tensor
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if not torch.is_grad_enabled() and not tracing:  # a trace is checked without gradients, and must be the same
        found = torch.linalg.vector_norm(pose, dim=dim, keepdim=keepdim)
        return found
    if plain_needed() or torch.compiler.is_compiling():
        absent = torch.linalg.vector_norm(pose, dim=dim, keepdim=True) == 0
        found = torch.linalg.vector_norm(pose.masked_fill(absent, 1), dim=dim, keepdim=True).masked_fill(absent, 0)
    else:
        found = _Norm.apply(pose, dim)  # type: ignore[no-untyped-call]
    return found if keepdim else found.squeeze(dim)


class _Norm(torch.autograd.Function):
    """torch's norm with a gradient that can be differentiated at zero, too; ``dim`` is kept, with size 1."""

    @staticmethod
    def forward(ctx, pose, dim):  # type: ignore[no-untyped-def]
        found = torch.linalg.vector_norm(pose, dim=dim, keepdim=True)
        ctx.save_for_backward(pose, found)
        return found

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        pose, found = ctx.saved_tensors
        absent = found == 0
        if not torch.is_grad_enabled():
            return grad * (pose / found).masked_fill_(absent, 0), None
        return grad * (pose / found.masked_fill(absent, 1)).masked_fill(absent, 0), None


def squash(pose: Tensor, kind: str = "sabour", dim: int = -1) -> Tensor:
    r"""Shrink every vector to a length that reads as a probability; keep its direction.

    ===============  ==============================  ==================================================
    kind             value                           from
    ===============  ==============================  ==================================================
    ``sabour``       ``‖s‖²/(1+‖s‖²) · s/‖s‖``       Sabour et al. 2017, arXiv 1710.09829, eq. 1
    ``exponential``  ``(1 − e^(−‖s‖)) · s/‖s‖``      Efficient-CapsNet, Mazzia et al. 2021
    ``half``         ``‖s‖²/(0.5+‖s‖²) · s/‖s‖``     common in text capsule code; steeper than sabour
    ``unit``         ``s/‖s‖``                       notes of Su Jianlin 2018; length is always one
    ``none``         ``s``                           to see what squash is for: lengths are no probabilities then
    ===============  ==============================  ==================================================

    The zero vector has no direction: there, value and gradient are 0 for every kind. (For ``exponential`` and
    ``none`` this is a convention: their gradient elsewhere near it is the identity. It keeps absent capsules silent.)

    No epsilon is added anywhere, so no precision is lost for short vectors. A vector without a finite length has no
    direction: all its numbers become NaN. Only ``none`` leaves each as it is (:mod:`torchcaps.ops.finite`).

    Args:
        pose: floating point tensor.
        kind: one of the table.
        dim: the dimension that holds the vector.

    Shapes:
        pose ``[..., D]`` → the same.
    """
    require_float("pose", pose)
    require_finite("pose", pose)
    require_choice("squash kind", kind, SQUASH_KINDS)
    n = length(pose, dim, keepdim=True)
    absent = n == 0
    if kind == "none":
        return torch.where(absent, pose.detach(), pose)
    return pose * torch.where(absent, 0, _KINDS[kind].factor(_divisor(n, absent)))


def squash_gradient(s: Tensor, grad: Tensor, kind: str) -> Tensor:
    """Gradient of v = f(n)·s, n = ‖s‖: f·g + (f'/n)(s·g)·s; zero at s = 0.

    Written out for passes that run inside a custom op, where autograd does not record.
    """
    n = length(s, keepdim=True)
    absent, (factor, slope) = n == 0, _KINDS[kind]
    if slope is None:
        return torch.where(absent, 0, grad)
    n = _divisor(n, absent)
    radial = (s * grad).sum(dim=-1, keepdim=True) * slope(n) / n
    return torch.where(absent, 0, factor(n) * grad + radial * s)


def _divisor(n: Tensor, absent: Tensor) -> Tensor:
    """Lengths to divide by: never zero, not even in the branch that is not taken, and NaN where they are not finite."""
    return torch.where(absent, 1, finite_or_nan(n))


def squash_reference(pose: Tensor, kind: str = "sabour") -> Tensor:
    """One vector ``[D]`` at a time, as the formulas are written: the text that :func:`squash` is tested against."""
    if not bool(pose.any()):
        return pose * 0
    if kind == "none":
        return pose
    n = finite_or_nan((pose * pose).sum().sqrt())
    direction = pose / n
    factors = {
        "sabour": n**2 / (1 + n**2),
        "exponential": 1 - torch.exp(-n),
        "half": n**2 / (0.5 + n**2),
        "unit": torch.ones_like(n),
    }
    return factors[kind] * direction
