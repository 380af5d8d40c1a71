"""Couplings that do not look at the votes: the controls that critics of routing use.

Paik et al. 2019 (arXiv 1907.13327) found that they often do as well as routing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.checks import require_finite, require_float, require_shape, require_votes
from torchcaps.ops.coupling import agreement, drop_masked, hide_masked, weigh, weighted_sum
from torchcaps.ops.result import Iterations, RoutingOutput, vector_output
from torchcaps.ops.squash import length
from torchcaps.ops.squash import squash as squash_vectors


def frozen_routing(
    votes: Tensor,
    coupling: Tensor,
    *,
    squash: str = "sabour",
    mask: Tensor | None = None,
    trace: bool = False,
) -> RoutingOutput:
    """A given coupling for every image: v_j = squash(Σ_i c_ij û_ij).

    Args:
        votes: û, what each child predicts for each parent.
        coupling: c, for instance a trained model's average.
        squash: a kind of :func:`~torchcaps.ops.squash`.
        mask: False marks children that are padding.
        trace: record the single iteration; the objective is −Σ c_ij⟨û_ij, v_j⟩, which nothing here descends.

    Shapes:
        votes ``[B, I, J, D]``, coupling ``[I, J]`` or ``[B, I, J]``, mask ``[B, I]`` →
        pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    require_votes(votes)
    require_float("coupling", coupling)
    batch, children, parents, _ = votes.shape
    require_shape(
        "coupling",
        coupling,
        (children, parents),
        (batch, children, parents),
        meaning="[children, parents] or [batch, children, parents]",
    )
    require_finite("coupling", coupling)
    votes, weight = drop_masked(votes, mask)
    coupling = weigh(hide_masked(coupling.to(votes).expand(batch, children, parents), mask), weight)
    pose = squash_vectors(weighted_sum(coupling, votes), squash)
    steps = Iterations(trace)
    if trace:
        steps.add(coupling, pose, length(pose), -(coupling * agreement(votes, pose)).sum(dim=(1, 2)))
    return vector_output(pose, coupling, steps.stack())


def uniform_routing(
    votes: Tensor, *, squash: str = "sabour", mask: Tensor | None = None, trace: bool = False
) -> RoutingOutput:
    """Every child sends the same share 1/J to every parent. Arguments and shapes: :func:`frozen_routing`."""
    require_votes(votes)
    _, children, parents, _ = votes.shape
    return frozen_routing(
        votes, votes.new_full((children, parents), 1 / parents), squash=squash, mask=mask, trace=trace
    )


def random_routing(
    votes: Tensor, *, seed: int = 0, squash: str = "sabour", mask: Tensor | None = None, trace: bool = False
) -> RoutingOutput:
    """Child i's shares are a random point of the simplex that depends on ``seed`` and i only, never on the image.

    Arguments and shapes: :func:`frozen_routing`.
    """
    require_votes(votes)
    _, children, parents, _ = votes.shape
    coupling = random_coupling(children, parents, seed, votes.device).to(votes.dtype)
    return frozen_routing(votes, coupling, squash=squash, mask=mask, trace=trace)


def random_coupling(children: int, parents: int, seed: int, device: torch.device | None = None) -> Tensor:
    """For each child a point drawn uniformly from the simplex, float32 ``[I, J]``.

    Exponential variables divided by their sum are uniform on the simplex. They come from an integer hash of seed and
    index (the finaliser of MurmurHash3) rather than a generator, so that the table is the same on every device,
    inside a compiled graph, and for every number of children.
    """
    low = 0xFFFFFFFF
    key = torch.arange(children * parents, device=device, dtype=torch.int64) + (seed & low) * 0x9E3779B1
    key = key & low
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        key = ((key ^ (key >> shift)) * factor) & low
    uniform = (((key ^ (key >> 16)) >> 9).float() + 0.5) / 2**23  # in (0, 1): 23 bits and a half fit a float32
    exponential = -uniform.log().view(children, parents)
    return exponential / exponential.sum(dim=1, keepdim=True)
