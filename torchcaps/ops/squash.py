"""Squash: a length becomes a probability, the direction stays."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.checks import require_choice, require_finite, require_float

SQUASH_KINDS = ("sabour", "exponential", "half", "unit", "none")


def length(pose: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Euclidean length ‖s‖ along ``dim``, with gradient 0 at s = 0 (where a bare square root gives NaN)."""
    require_float("pose", pose)
    norm: Tensor = torch.linalg.vector_norm(pose, dim=dim, keepdim=keepdim)
    return norm


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

    No epsilon is added anywhere, so no precision is lost for short vectors.

    Args:
        pose: floating point tensor.
        kind: one of the table.
        dim: the dimension that holds the vector.

    Shapes:
        pose ``[..., D]`` → the same.
    """
    require_float("pose", pose)
    require_finite("pose", pose)
    n = length(pose, dim, keepdim=True)
    if kind == "sabour":
        return pose * (n / (1 + n * n))
    if kind == "half":
        return pose * (n / (0.5 + n * n))
    present = n > 0
    divisor = torch.where(present, n, 1)  # never divide by zero, not even in the branch that is not taken
    if kind == "exponential":
        return pose * torch.where(present, -torch.expm1(-n) / divisor, 0)  # expm1: exact for short vectors
    if kind == "unit":
        return pose * torch.where(present, 1 / divisor, 0)
    if kind == "none":
        return torch.where(present, pose, 0)
    require_choice("squash kind", kind, SQUASH_KINDS)
    raise AssertionError(f"squash kind {kind!r} is listed but not implemented")


def squash_reference(pose: Tensor, kind: str = "sabour") -> Tensor:
    """One vector ``[D]`` at a time, as the formulas are written: the text that :func:`squash` is tested against."""
    if not bool(pose.any()):
        return pose * 0
    n = (pose * pose).sum().sqrt()
    direction = pose / n
    factors = {
        "sabour": n**2 / (1 + n**2),
        "exponential": 1 - torch.exp(-n),
        "half": n**2 / (0.5 + n**2),
        "unit": torch.ones_like(n),
        "none": n,
    }
    return factors[kind] * direction
