"""EM routing for capsules that carry their own activation, on votes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.checks import require_like, require_shape, require_votes
from torchcaps.errors import InputError
from torchcaps.ops.coupling import child_activation, drop_masked, hide_masked, weigh, weighted_sum
from torchcaps.ops.em.plan import EMOptions, EMPlan
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.plan import make_plan, takes_options
from torchcaps.ops.precision import cast, exact, widen
from torchcaps.ops.result import Iterations, RoutingOutput

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes_options(EMPlan)
def em_routing(
    votes: Tensor,
    activation: Tensor | None,
    beta_u: Tensor | float,
    beta_a: Tensor | float,
    iterations: int = 3,
    *,
    mask: Tensor | None = None,
    trace: bool = False,
    **options: Unpack[EMOptions],
) -> RoutingOutput:
    r"""Each parent is a Gaussian fitted to the votes that the children assign to it.

    ::

        R_ij = 1/J
        repeat r times:
          M-step  R_ij ← R_ij a_i,  m_j = Σ_i R_ij
                  μ_jh  = Σ_i R_ij V_ijh / m_j
                  σ²_jh = Σ_i R_ij (V_ijh − μ_jh)² / m_j
                  cost_j = Σ_h (β_u + ln σ_jh) m_j
                  a_j = sigmoid(λ (β_a − cost_j))
          E-step  R_ij = a_j N(V_ij; μ_j, σ_j) / Σ_k a_k N(V_ik; μ_k, σ_k)      not after the last M-step

    Hinton, Sabour, Frosst 2018, "Matrix Capsules with EM Routing" (ICLR), procedure 1. Everything is computed in log
    space, half precision in float32. The three pitfalls of Gritzman 2019 (arXiv 1907.00652) are handled, and each can
    be switched back on to see what it does:

    - a parent with one child has no variance: ``variance_floor`` bounds σ² from below (0: no bound);
    - the data mass m_j differs from layer to layer, and so does the meaning of λ: ``mass`` scales it so that an even
      share of the children counts as that much in every layer (None: raw sums);
    - children compete over all their parents: ``compete_within=T`` would let them compete only among T neighbours
      in the list of parents, such as the types at one position (None: all).

    Args:
        votes: V, a matrix pose flattened to D numbers.
        activation: the children's activations; required.
        beta_u: cost of describing a vote by a parent at all (absorbs ln √(2π) + ½).
        beta_a: benefit of an active parent.
        iterations: r; r M-steps and r−1 E-steps.
        mask: False marks children that are padding.
        trace: record every iteration; the objective is Σ_j cost_j.
        options: ``inverse_temperature``, ``variance_floor``, ``mass`` and ``compete_within``; see
            :class:`~torchcaps.ops.em.plan.EMPlan`.

    Shapes:
        votes ``[B, I, J, D]``, activation and mask ``[B, I]``, betas scalar or ``[J]`` →
        pose μ ``[B, J, D]``, activation ``[B, J]``, coupling R ``[B, I, J]`` (before it is scaled by a_i).
    """
    plan = make_plan(EMPlan, iterations=iterations, **options)
    return route_votes(votes, activation, beta_u, beta_a, plan, mask=mask, trace=trace)


def route_votes(
    votes: Tensor,
    activation: Tensor | None,
    beta_u: Tensor | float,
    beta_a: Tensor | float,
    plan: EMPlan,
    *,
    mask: Tensor | None = None,
    trace: bool = False,
) -> RoutingOutput:
    """:func:`em_routing` by a plan."""
    require_votes(votes)
    parents = votes.shape[2]
    if activation is None:
        raise InputError("EM routing weighs every vote by the child's activation: pass activation [B, I].")
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        if isinstance(beta, Tensor):
            require_shape(name, beta, (), (1,), (parents,), meaning="a scalar or [parents]")
            require_like(name, widen(beta), widen(votes))
    if plan.compete_within is not None and parents % plan.compete_within:
        raise InputError(f"compete_within must divide the {parents} parents, got {plan.compete_within}.")
    given = votes.dtype
    votes, weight = drop_masked(widen(votes), mask)
    activation = child_activation(votes, widen(activation), mask)
    betas = tuple(widen(beta) if isinstance(beta, Tensor) else beta for beta in (beta_u, beta_a))
    with exact(votes):
        output = _iterate(votes, activation, betas, plan, mask, weight, trace)
    return RoutingOutput(cast(output.pose, given), cast(output.activation, given), output.coupling, output.trace)


def _iterate(
    votes: Tensor,
    activation: Tensor,
    betas: tuple[Tensor | float, ...],
    plan: EMPlan,
    mask: Tensor | None,
    weight: Tensor | None,
    trace: bool,
) -> RoutingOutput:
    batch, children, parents, _ = votes.shape
    beta_u, beta_a = betas
    scale = _mass_scale(votes, mask, plan.mass)
    log_r = votes.new_full((batch, children, parents), -math.log(plan.compete_within or parents))

    steps = Iterations(trace)
    for t, lam in enumerate(plan.lambdas):
        mean, variance, amount = _m_step(log_r, activation, votes)  # [B, J, D], [B, J, D], [B, J]
        variance = variance.clamp_min(plan.variance_floor)
        cost = (beta_u * votes.shape[3] + 0.5 * variance.log().sum(dim=-1)) * amount * scale  # [B, J]
        log_a = F.logsigmoid(finite_or_nan(lam * (beta_a - cost)))
        if trace:
            steps.add(weigh(log_r.exp(), weight), mean, log_a.exp(), cost.sum(dim=1))
        if t + 1 < plan.iterations:
            log_r = hide_masked(_e_step(votes, mean, variance, log_a, plan.compete_within), mask)
    return RoutingOutput(mean, log_a.exp(), weigh(log_r.exp(), weight), steps.stack())


def _m_step(log_r: Tensor, activation: Tensor, votes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and data mass of every parent."""
    a = activation[:, :, None]  # [B, I, 1]
    amount = (log_r.exp() * a).sum(dim=1)  # [B, J]
    share = _shares_of_children(log_r, a)
    mean = finite_or_nan(weighted_sum(share, votes))  # [B, J, D]
    variance = weighted_sum(share, (votes - mean[:, None]).square())  # [B, J, D]
    return mean, variance, amount


def _shares_of_children(log_r: Tensor, a: Tensor) -> Tensor:
    """R_ij a_i / Σ_i R_ij a_i [B, I, J], exact also where R or a underflow; 0 if all children are absent.

    A factor per parent cancels, so the largest R_ij a_i is taken out first, held constant: no gradient changes.
    """
    if log_r.shape[1] == 0:
        return log_r
    largest = (log_r + a.log()).detach().amax(dim=1, keepdim=True)  # −∞ if all are absent
    largest = torch.where(largest == -math.inf, 0, largest)
    limit = 0.9 * math.log(torch.finfo(log_r.dtype).max)  # an absent child may have any R: keep 0·∞ out
    product = (log_r - largest).clamp_max(limit).exp() * a
    total = product.sum(dim=1, keepdim=True)
    nobody = total == 0
    return torch.where(nobody, 0, product / torch.where(nobody, 1, total))


def _e_step(votes: Tensor, mean: Tensor, variance: Tensor, log_a: Tensor, compete_within: int | None) -> Tensor:
    """Log of the children's responsibilities [B, I, J]; constants of the Gaussian cancel."""
    distance = ((votes - mean[:, None]).square() / variance[:, None]).sum(dim=-1)  # [B, I, J]
    log_p = log_a - 0.5 * variance.log().sum(dim=-1)  # [B, J]
    score = log_p[:, None] - 0.5 * distance
    if compete_within is None:
        return score.log_softmax(dim=-1)
    groups = score.view(*score.shape[:-1], score.shape[-1] // compete_within, compete_within)
    return groups.log_softmax(dim=-1).flatten(-2)


def _mass_scale(votes: Tensor, mask: Tensor | None, mass: float | None) -> Tensor | float:
    """The factor that makes an even share of the children, I/J, count as ``mass``: a number or [B, 1]."""
    if mass is None:
        return 1.0
    _, children, parents, _ = votes.shape
    if mask is None:
        return mass * parents / max(children, 1)
    return mass * parents / mask.sum(dim=1, keepdim=True).clamp_min(1).to(votes.dtype)
