"""Soft k-means as a routing, on votes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.checks import require_choice, require_votes
from torchcaps.ops.coupling import agreement, drop_masked, hide_masked, weigh, weighted_sum
from torchcaps.ops.result import Iterations, RoutingOutput, vector_output
from torchcaps.ops.schedules import Schedule, resolve_schedule
from torchcaps.ops.squash import length
from torchcaps.ops.squash import squash as squash_vectors

DISTANCES = ("euclid", "inner")


def kmeans_routing(
    votes: Tensor,
    iterations: int = 3,
    *,
    distance: str = "euclid",
    sharpness: Schedule = 1.0,
    squash: str = "sabour",
    mask: Tensor | None = None,
    trace: bool = False,
) -> RoutingOutput:
    r"""Each parent is the centre of a soft cluster of the votes it receives.

    ::

        L = −(1/K) Σ_i ln Σ_j e^(−K d_ij)

        c = 1/J
        repeat r times:  euclid  v_j = Σ_i c_ij û_ij / Σ_i c_ij      d_ij = ‖û_ij − v_j‖²
                         inner   v_j = ŝ_j/‖ŝ_j‖, ŝ_j = Σ_i c_ij û_ij  d_ij = −⟨û_ij, v_j⟩
                         c_ij = softmax_j(−K d_ij)

    L never rises for constant K. With the inner product L has no lower bound unless ‖v_j‖ is fixed, hence the unit
    length. Su Jianlin 2018, "From k-means to capsules", kexue.fm/archives/5112.

    The pose is the squashed centre (euclid) or squash(ŝ_j) (inner), so that its length is an activation.

    Args:
        votes: û, what each child predicts for each parent.
        iterations: r.
        distance: ``euclid`` (squared) or ``inner``.
        sharpness: K; large makes a child choose one parent. A constant, one value per iteration, or a function
            of the iteration.
        squash: a kind of :func:`~torchcaps.ops.squash`, for the returned pose.
        mask: False marks children that are padding.
        trace: record every iteration; the objective is L at that iteration's centres.

    Shapes:
        votes ``[B, I, J, D]``, mask ``[B, I]`` → pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    require_votes(votes)
    require_choice("distance", distance, DISTANCES)
    sharpnesses = resolve_schedule("sharpness", sharpness, iterations)
    votes, weight = drop_masked(votes, mask)
    b = votes.new_zeros(votes.shape[:3])  # −K d, [B, I, J]

    steps = Iterations(trace)
    for t, k in enumerate(sharpnesses):
        coupling = weigh(b.softmax(dim=-1), weight)
        shares = coupling if distance == "inner" else _normalised(b.log_softmax(dim=-1), mask)
        total = weighted_sum(shares, votes)  # [B, J, D]
        if t + 1 < iterations or trace:
            b = hide_masked(-k * _distance(votes, total, distance), mask)
            if trace:
                each = -b.logsumexp(dim=-1) / k  # [B, I]
                pose = squash_vectors(total, squash)
                steps.add(coupling, pose, length(pose), (each if mask is None else each * mask).sum(dim=1))
    return vector_output(squash_vectors(total, squash), coupling, steps.stack())


def _normalised(log_share: Tensor, mask: Tensor | None) -> Tensor:
    """c_ij / Σ_i c_ij from log c, exact also where every c_ij of a far parent underflows: [B, I, J]."""
    if mask is not None:
        log_share = log_share.masked_fill(~mask[:, :, None], torch.finfo(log_share.dtype).min)
    return log_share.softmax(dim=1)


def _distance(votes: Tensor, total: Tensor, distance: str) -> Tensor:
    """d_ij [B, I, J] from the votes to the centres made of ``total`` [B, J, D]."""
    if distance == "inner":
        return -agreement(votes, squash_vectors(total, "unit"))
    return (votes - total[:, None]).square().sum(dim=-1)
