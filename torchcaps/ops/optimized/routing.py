"""Optimised routing: coordinate descent on one objective, on votes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.checks import require_votes
from torchcaps.ops.coupling import agreement, drop_masked, entropy_term, hide_masked, weigh, weighted_sum
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.result import Iterations, RoutingOutput, vector_output
from torchcaps.ops.schedules import Schedule, resolve_schedule
from torchcaps.ops.squash import length, squash


def optimized_routing(
    votes: Tensor,
    iterations: int = 3,
    *,
    alpha: Schedule = 1.0,
    mask: Tensor | None = None,
    trace: bool = False,
) -> RoutingOutput:
    r"""Routing as clustering with an entropy term: its objective never rises while α is constant.

    ::

        minimise  −Σ_ij c_ij ⟨û_ij, s_j⟩ + α Σ_ij c_ij log c_ij    with Σ_j c_ij = 1, ‖s_j‖ ≤ 1

        b = 0
        repeat r times:  c_ij = softmax_j(b_ij)
                         ŝ_j  = Σ_i c_ij û_ij
                         s_j  = ŝ_j / ‖ŝ_j‖
                         b_ij = ⟨û_ij, s_j⟩ / α
        v_j = s_j · ‖ŝ_j‖ / (1 + max_k ‖ŝ_k‖)

    Wang & Liu 2018, "An Optimization View on Dynamic Routing Between Capsules" (ICLR workshop). The paper also
    divides each W_ij by its Frobenius norm: ``CapsuleLinear(normalize=True)``.

    Args:
        votes: û, what each child predicts for each parent.
        iterations: r.
        alpha: weight of the entropy: large spreads a child over the parents, small makes it choose. A constant, one
            value per iteration, or a function of the iteration; letting it fall trusts late centres more.
        mask: False marks children that are padding.
        trace: record every iteration; the objective is the one above.

    Shapes:
        votes ``[B, I, J, D]``, mask ``[B, I]`` → pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    require_votes(votes)
    alphas = resolve_schedule("alpha", alpha, iterations)
    votes, weight = drop_masked(votes, mask)
    b = votes.new_zeros(votes.shape[:3])  # [B, I, J]

    steps = Iterations(trace)
    for t, alpha_t in enumerate(alphas):
        coupling = weigh(b.softmax(dim=-1), weight)
        total = weighted_sum(coupling, votes)  # ŝ, [B, J, D]
        if t + 1 < iterations or trace:
            agree = agreement(votes, squash(total, "unit"))  # [B, I, J]
            b = hide_masked(agree / alpha_t, mask)
            if trace:
                objective = -(coupling * agree).sum(dim=(1, 2)) + alpha_t * entropy_term(coupling)
                pose = _scaled(total)
                steps.add(coupling, pose, length(pose), objective)
    return vector_output(_scaled(total), coupling, steps.stack())


def _scaled(total: Tensor) -> Tensor:
    """v_j = ŝ_j / (1 + max_k ‖ŝ_k‖), the same as s_j ‖ŝ_j‖ / (1 + max_k ‖ŝ_k‖)."""
    longest = finite_or_nan(torch.amax(length(total), dim=-1))  # [B]
    return total / (1 + longest[:, None, None])
