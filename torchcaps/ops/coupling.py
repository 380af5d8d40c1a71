"""The three sums that every routing is made of, and the masks.

B images, I children, J parents, D numbers in a parent's pose.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.checks import require_finite, require_like, require_mask, require_shape
from torchcaps.ops.precision import cast, compute_type, exact


def linear_votes(poses: Tensor, weight: Tensor) -> Tensor:
    """û_ij = u_i W_ij, half precision in float32.

    Shapes:
        poses ``[B, I, d]``, weight ``[I, J, d, D]`` or ``[J, d, D]`` → ``[B, I, J, D]``.
    """
    dtype = compute_type(poses, weight)
    with exact(poses):
        equation = "bid,jdk->bijk" if weight.dim() == 3 else "bid,ijdk->bijk"
        return torch.einsum(equation, cast(poses, dtype), cast(weight, dtype))


def weighted_sum(coupling: Tensor, votes: Tensor) -> Tensor:
    """s_j = Σ_i c_ij û_ij: ``[B, I, J]`` and ``[B, I, J, D]`` → ``[B, J, D]``."""
    return torch.einsum("bij,bijd->bjd", coupling, votes)


def agreement(votes: Tensor, pose: Tensor) -> Tensor:
    """⟨û_ij, v_j⟩: ``[B, I, J, D]`` and ``[B, J, D]`` → ``[B, I, J]``."""
    return torch.einsum("bijd,bjd->bij", votes, pose)


def drop_masked(votes: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Silence the children that ``mask`` ``[B, I]`` marks False, whatever their votes hold, NaN included.

    Returns the votes with zeros in their place and the mask as weights ``[B, I, 1]`` (None without a mask).
    """
    if mask is None:
        require_finite("votes", votes)
        return votes, None
    require_mask("mask", mask, tuple(votes.shape[:2]), meaning="[batch, children]")
    votes = votes.masked_fill(~mask[:, :, None, None], 0)
    require_finite("votes", votes)
    return votes, mask[:, :, None].to(votes.dtype)


def hide_masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The logits ``[B, I, J]``, zeros for masked children: their shares are weighed by 0, which would not hide NaN."""
    return logits if mask is None else logits.masked_fill(~mask[:, :, None], 0)


def child_activation(votes: Tensor, activation: Tensor, mask: Tensor | None) -> Tensor:
    """The children's activation ``[B, I]``, checked against the votes, zero where masked."""
    require_shape("activation", activation, tuple(votes.shape[:2]), meaning="[batch, children]")
    if mask is not None:
        activation = activation.masked_fill(~mask, 0)
    require_like("activation", activation, votes)
    return activation


def weigh(coupling: Tensor, weight: Tensor | None) -> Tensor:
    """Scale each child's couplings ``[B, I, J]`` by its weight ``[B, I, 1]``, if there is one."""
    return coupling if weight is None else coupling * weight


def entropy_term(coupling: Tensor) -> Tensor:
    """Σ c log c with 0 log 0 = 0, over children and parents: ``[B, I, J]`` → ``[B]``."""
    return torch.xlogy(coupling, coupling).sum(dim=(1, 2))
