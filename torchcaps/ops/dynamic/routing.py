"""Dynamic routing by agreement, on votes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.checks import require_like, require_mask, require_shape, require_votes
from torchcaps.errors import InputError
from torchcaps.ops.coupling import (
    agreement,
    child_activation,
    drop_masked,
    entropy_term,
    hide_masked,
    weigh,
    weighted_sum,
)
from torchcaps.ops.dynamic.plan import DynamicOptions, DynamicPlan
from torchcaps.ops.dynamic.steps import Steps
from torchcaps.ops.plan import make_plan, takes_options
from torchcaps.ops.result import Iterations, RoutingOutput, vector_output
from torchcaps.ops.squash import length

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes_options(DynamicPlan, "kind", "alpha")
def dynamic_routing(
    votes: Tensor,
    iterations: int = 3,
    *,
    activation: Tensor | None = None,
    mask: Tensor | None = None,
    parent_mask: Tensor | None = None,
    logits: Tensor | None = None,
    bias: Tensor | None = None,
    trace: bool = False,
    **options: Unpack[DynamicOptions],
) -> RoutingOutput:
    r"""Children send more of themselves to the parents that agree with their votes.

    ::

        b = logits
        repeat r times:  c_ij = softmax_j(b_ij)        over the parents
                         s_j  = Σ_i c_ij û_ij + bias_j
                         v_j  = squash(s_j)
                         b_ij = b_ij + ⟨û_ij, v_j⟩     not after the last iteration

    Sabour, Frosst, Hinton 2017, "Dynamic Routing Between Capsules", arXiv 1710.09829, procedure 1.

    The trace's objective is −Σ c_ij⟨û_ij, v_j⟩ + Σ_i KL(c_i ‖ c_i^old) (Wang & Liu 2018), and with
    ``update="replace"`` −Σ c_ij⟨û_ij, v_j⟩ + Σ c_ij log c_ij. The algorithm descends it only while the factor
    ‖s‖²/(1+‖s‖²) inside v_j is held constant, so it need not fall.

    Args:
        votes: û, what each child predicts for each parent.
        iterations: r; the result is that of exactly r passes.
        activation: the children's activation; needed by ``amend`` only.
        mask: False marks children that are padding; they have no influence, their coupling is 0.
        parent_mask: False takes a parent out of the softmax; its coupling is 0. A random one in training
            (:func:`sample_parents`) is partial sampling normalisation.
        logits: the initial b, a log prior of the coupling; zeros if None. −∞ keeps a child from a parent, but not from
            all (:mod:`torchcaps.ops.finite`).
        bias: added to s_j. The authors' code learns one (initially 0.1); without it the result for −û is the
            negative of that for û, so routing cannot tell x from −x (Peer et al. 2021).
        trace: record every iteration.
        options: ``squash``, ``update``, ``gradient``, ``leaky`` and ``amend``; see
            :class:`~torchcaps.ops.dynamic.plan.DynamicPlan`.

    Shapes:
        votes ``[B, I, J, D]``, activation and mask ``[B, I]``, parent_mask ``[J]`` or ``[B, J]``,
        logits ``[J]``, ``[I, J]`` or ``[B, I, J]``, bias ``[J, D]`` →
        pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    plan = make_plan(DynamicPlan, iterations=iterations, **options)
    return route_votes(
        votes, plan, activation=activation, mask=mask, parent_mask=parent_mask, logits=logits, bias=bias, trace=trace
    )


def route_votes(
    votes: Tensor,
    plan: DynamicPlan,
    *,
    activation: Tensor | None = None,
    mask: Tensor | None = None,
    parent_mask: Tensor | None = None,
    logits: Tensor | None = None,
    bias: Tensor | None = None,
    trace: bool = False,
) -> RoutingOutput:
    """:func:`dynamic_routing` by a plan: b_ij = b⁰_ij + û_ij·V_j, V_j the sum of all v_j so far (``steps.py``)."""
    require_votes(votes)
    parents = _parents(votes, parent_mask)
    prior = _initial_logits(votes, logits)  # [B, I, J]
    if bias is not None:
        require_shape("bias", bias, tuple(votes.shape[2:]), meaning="[parents, pose size]")
        require_like("bias", bias, votes)
    votes, weight = drop_masked(votes, mask)
    prior = hide_masked(prior, mask)
    if parents is not None:
        votes = votes.masked_fill(~parents[..., None], 0)  # whatever they hold
    if plan.amend:
        if activation is None:
            raise InputError("amend=True scales each coupling by the child's activation: pass activation [B, I].")
        weight = child_activation(votes, activation, mask)[:, :, None]

    steps, between, b = Iterations(trace), Steps(plan, bias), prior
    agree: Tensor | None = None  # V, [B, J, D]
    old: Tensor | None = None
    for t in range(plan.iterations):
        share = _share(b, parents, plan.leaky)  # [B, I, J]
        coupling = weigh(share, weight)
        s = weighted_sum(coupling, votes)  # [B, J, D]
        if trace:
            pose = between.result(s)
            penalty = _divergence(share, old, mask) if plan.accumulates else entropy_term(coupling)
            gain = coupling * hide_masked(agreement(votes, pose), mask)
            steps.add(coupling, pose, length(pose), penalty - gain.sum(dim=(1, 2)))
            old = share
        if t + 1 < plan.iterations:
            agree = between.next(agree, s, t)
            led = agree.detach() if plan.gradient == "last" else agree
            logits_of_votes = hide_masked(agreement(votes.detach() if plan.gradient == "last" else votes, led), mask)
            b = prior + logits_of_votes if plan.accumulates else logits_of_votes
    return vector_output(between.result(s), coupling, steps.stack())


def sample_parents(
    batch: int,
    parents: int,
    fraction: float,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """A random subset K of the parents for each image, for partial sampling normalisation (Joewell He 2018, eq. 41).

    Args:
        batch: number of images B.
        parents: number of parents J.
        fraction: how much of the parents to keep, in (0, 1]; at least one is kept.
        generator: source of randomness; torch's default (``torch.manual_seed``) if None.
        device: of the result.

    Shapes:
        → bool ``[B, J]``, the same number of True in every row.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"the fraction of parents to keep must be in (0, 1], got {fraction}.")
    keep = max(1, round(fraction * parents))
    rank = torch.rand(batch, parents, generator=generator, device=device).argsort(dim=1).argsort(dim=1)
    return rank < keep


def _initial_logits(votes: Tensor, logits: Tensor | None) -> Tensor:
    batch, children, parents, _ = votes.shape
    if logits is None:
        return votes.new_zeros(batch, children, parents)
    require_shape(
        "logits",
        logits,
        (parents,),
        (children, parents),
        (batch, children, parents),
        meaning="[parents], [children, parents] or [batch, children, parents]",
    )
    require_like("logits", logits, votes)
    return logits.expand(batch, children, parents)


def _parents(votes: Tensor, parent_mask: Tensor | None) -> Tensor | None:
    """The parents that take part, as bool [B or 1, 1, J]."""
    if parent_mask is None:
        return None
    batch, _, parents, _ = votes.shape
    require_mask("parent_mask", parent_mask, (parents,), (batch, parents), meaning="[parents] or [batch, parents]")
    return parent_mask.view(-1, 1, parents)


def _share(b: Tensor, parents: Tensor | None, leaky: bool) -> Tensor:
    """Each child's distribution over the parents, softmax of b [B, I, J] over the last dimension."""
    if parents is not None:
        # Zero instead of −∞ where there is no parent at all: then a softmax of −∞ alone would bring NaN.
        b = torch.where(parents, b, torch.where(parents.any(dim=-1, keepdim=True), -math.inf, 0.0).to(b.dtype))
    share = F.pad(b, (1, 0)).softmax(dim=-1)[..., 1:] if leaky else b.softmax(dim=-1)
    return share if parents is None else torch.where(parents, share, 0)


def _divergence(share: Tensor, old: Tensor | None, mask: Tensor | None) -> Tensor | float:
    """Σ_i KL(c_i ‖ c_i^old) over the children in use, what leaks counted as one more parent: [B]."""
    if old is None:
        return 0.0

    def kl(new: Tensor, past: Tensor) -> Tensor:
        return torch.xlogy(new, new) - torch.xlogy(new, past)

    leak, old_leak = ((1 - part.sum(dim=-1)).clamp_min(0) for part in (share, old))
    both = (leak > 0) & (old_leak > 0)  # without leaky, what is left of 1 is rounding
    rest = torch.where(both, kl(leak, torch.where(both, old_leak, 1)), 0)
    each = kl(share, torch.where(share > 0, old, 1)).sum(dim=-1) + rest  # [B, I]
    return (each if mask is None else each * mask).sum(dim=-1)
