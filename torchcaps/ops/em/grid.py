"""EM routing between capsules on a grid, votes and all, without ever storing the votes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.checks import require_choice, require_finite, require_like, require_mask, require_shape
from torchcaps.errors import InputError
from torchcaps.ops.constants import constant
from torchcaps.ops.em.backend import Children, Parents
from torchcaps.ops.em.op import em_moments
from torchcaps.ops.em.plain import shares
from torchcaps.ops.em.plan import EMOptions, EMPlan
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.plan import make_plan, takes_options
from torchcaps.ops.precision import cast, exact, result_type, widen
from torchcaps.ops.result import Iterations, RoutingOutput
from torchcaps.ops.windows import Windows, window_votes, windows_present

COMPETITIONS = ("positions", "types")

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Setting(NamedTuple):
    """What stays the same in all iterations."""

    children: Children
    windows: Windows
    present: Tensor | None  # [B, P]
    everywhere: bool


@takes_options(EMPlan, "compete_within")
def routed_em(
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    beta_u: Tensor | float,
    beta_a: Tensor | float,
    windows: Windows,
    iterations: int = 3,
    *,
    shift: Tensor | None = None,
    mask: Tensor | None = None,
    present: Tensor | None = None,
    compete: str = "positions",
    coupling: bool = False,
    trace: bool = False,
    **options: Unpack[EMOptions],
) -> RoutingOutput:
    r"""Votes V_ij = M_i W_ij of the children in every window, and their routing as :func:`em_routing` would have it.

    A child is in several windows. It shares itself out among all parents that see it, those of other windows included,
    as Hinton et al. 2018 have it (``compete="positions"``); ``"types"`` makes every window a problem of its own.

    Votes and responsibilities are never stored: every iteration is one pass over the children that computes vote,
    E-step and the weighted moments of the M-step, and the backward pass computes them again. A kernel serves on the CPU
    for float32 and float64, the same passes in torch, a few images at a time, elsewhere.

    The data mass of a parent is scaled so that an even share of the children in its window counts as ``mass``, in every
    layer and also at the border, where children have fewer parents.

    Args:
        poses: the children's poses M, matrices of R×d, or vectors with R = 1.
        weight: W, one d×C matrix per place in the window, type of child and type of parent; one place if shared.
        activation: the children's activation.
        beta_u: cost of describing a vote by a parent, per type.
        beta_a: benefit of an active parent, per type.
        windows: which children a parent sees.
        iterations: r.
        shift: added to the votes of every child position, such as its coordinates.
        mask: False marks children that are padding.
        present: False marks positions of parents that are padding: nothing is sent there. Not given: those whose window
            holds a position where all children are masked.
        compete: over ``positions`` and types, or over ``types`` only.
        coupling: also return the coupling, which costs another pass and much memory; it carries no gradient.
        trace: record every iteration, couplings included; the objective is Σ cost_j over all parents.
        options: ``inverse_temperature``, ``variance_floor`` and ``mass``; see
            :class:`~torchcaps.ops.em.plan.EMPlan`.

    Shapes:
        poses ``[B, Q, T, R, d]``, weight ``[W, T, J, d, C]``, activation and mask ``[B, Q, T]``, betas scalar or
        ``[J]``, shift ``[Q, R, C]``, present ``[B, P]`` → pose ``[B, P, J, R·C]``, activation ``[B, P, J]``, coupling
        ``[B, P, W, T, J]`` (None if not asked for), with Q positions of children, P of parents, W places in a window.
    """
    plan = make_plan(EMPlan, iterations=iterations, **options)
    return route_grid(
        poses, weight, activation, beta_u, beta_a, windows, plan, shift=shift, mask=mask, present=present,
        compete=compete, coupling=coupling, trace=trace,
    )  # fmt: skip


def route_grid(
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    beta_u: Tensor | float,
    beta_a: Tensor | float,
    windows: Windows,
    plan: EMPlan,
    *,
    shift: Tensor | None = None,
    mask: Tensor | None = None,
    present: Tensor | None = None,
    compete: str = "positions",
    coupling: bool = False,
    trace: bool = False,
) -> RoutingOutput:
    """:func:`routed_em` by a plan."""
    require_choice("competition", compete, COMPETITIONS)
    if plan.compete_within is not None:
        raise InputError("compete_within is for a plain set of parents; on a grid, give compete='types'.")
    if mask is not None:
        require_mask("mask", mask, tuple(poses.shape[:3]), meaning="[batch, positions, types]")
        require_mask("mask", mask, tuple(activation.shape), meaning="the activation's shape")
        poses, activation = poses.masked_fill(~mask[..., None, None], 0), activation.masked_fill(~mask, 0)
        present = windows_present(mask, windows) if present is None else present
    _require_inputs(poses, weight, activation, (beta_u, beta_a), windows, shift)
    given = result_type(poses, weight)
    children = Children(widen(poses), widen(weight), widen(activation), widen(shift))
    setting = _Setting(children, windows, present, compete == "positions")
    with exact(poses):
        output = _iterate(setting, mask, (beta_u, beta_a), plan, coupling, trace)
    return RoutingOutput(cast(output.pose, given), cast(output.activation, given), output.coupling, output.trace)


def _iterate(
    setting: _Setting,
    mask: Tensor | None,
    betas: tuple[Tensor | float, Tensor | float],
    plan: EMPlan,
    coupling: bool,
    trace: bool,
) -> RoutingOutput:
    children, windows, present, everywhere = setting
    beta_u, beta_a = (widen(beta) if isinstance(beta, Tensor) else beta for beta in betas)
    scale = 1.0 if plan.mass is None else _mass_scale(setting, mask, plan.mass)
    numbers = children.poses.shape[3] * children.weight.shape[4]
    given: Parents | None = None
    steps = Iterations(trace)
    for t, lam in enumerate(plan.lambdas):
        amount, mean, variance, _ = em_moments(children, given, windows, present, everywhere)
        variance = variance.clamp_min(plan.variance_floor)
        log_sigma = 0.5 * variance.log().sum(dim=-1)  # [B, P, J]
        cost = (beta_u * numbers + log_sigma) * amount * scale
        log_a = F.logsigmoid(finite_or_nan(lam * (beta_a - cost)))
        if trace:
            steps.add(_coupling(setting, given), mean, log_a.exp(), cost.flatten(1).sum(dim=1))
        if t + 1 < plan.iterations:
            given = Parents(log_a - log_sigma, mean, 1 / variance)
    table = _coupling(setting, given) if coupling else None
    return RoutingOutput(mean, log_a.exp(), table, steps.stack())


def _coupling(setting: _Setting, given: Parents | None) -> Tensor:
    """R ``[B, P, W, T, J]``, before it is scaled by the activation."""
    with torch.no_grad():
        poses, weight, _, shift = setting.children
        votes = window_votes(poses, weight, setting.windows, shift).flatten(-2)
        return shares(votes, given, setting.windows, setting.present, setting.everywhere)


class _Sizes(NamedTuple):
    """What the mass scale depends on where all children are there."""

    windows: Windows
    types: int
    parents: int
    everywhere: bool
    mass: float
    dtype: torch.dtype


def _mass_scale(setting: _Setting, mask: Tensor | None, mass: float) -> Tensor:
    """The factor that makes an even share of the children in a window count as ``mass``: ``[B or 1, P, 1]``."""
    poses, weight = setting.children.poses, setting.children.weight
    sizes = _Sizes(setting.windows, poses.shape[2], weight.shape[2], setting.everywhere, mass, poses.dtype)
    if mask is None and setting.present is None:
        return constant(_scale_of, sizes, poses.device)
    return _scale_of(sizes, poses.device, setting.present, mask)


def _scale_of(sizes: _Sizes, device: torch.device, present: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    table = sizes.windows.table(device)
    here = (table >= 0)[None] if present is None else (table >= 0)[None] & present[:, :, None]
    here = here.to(sizes.dtype)  # [B or 1, P, W]
    seen = here
    if sizes.everywhere:  # by how many windows a child is seen
        links = sizes.windows.seen_from(device)  # [Q, L]
        counts = (here.flatten(1)[:, links.clamp_min(0)] * (links >= 0)).sum(dim=-1)
        seen = counts.clamp_min(1)[:, table.clamp_min(0)]
    children = sizes.types if mask is None else mask.sum(dim=-1).to(sizes.dtype)[:, table.clamp_min(0)]
    share = (here * children / (seen.clamp_min(1) * sizes.parents)).sum(dim=-1, keepdim=True)
    return sizes.mass / torch.where(share > 0, share, math.inf)


def _require_inputs(
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    betas: tuple[Tensor | float, Tensor | float],
    windows: Windows,
    shift: Tensor | None,
) -> None:
    positions, places = math.prod(windows.size), 1 if windows.shared else math.prod(windows.kernel)
    if poses.dim() != 5 or weight.dim() != 5 or poses.shape[1] != positions or weight.shape[0] != places:
        raise InputError(
            f"expected poses [batch, {positions} positions, types, rows, inner] and weight [{places} places, types, "
            f"parents, inner, columns]; got {tuple(poses.shape)} and {tuple(weight.shape)}."
        )
    if weight.shape[1] != poses.shape[2] or weight.shape[3] != poses.shape[4]:
        raise InputError(f"poses {tuple(poses.shape)} do not fit weight {tuple(weight.shape)}: types or sizes differ.")
    require_shape("activation", activation, tuple(poses.shape[:3]), meaning="[batch, positions, types]")
    if shift is not None:
        shape = (positions, poses.shape[3], weight.shape[4])
        require_shape("shift", shift, shape, meaning="[positions, rows, columns]")
    for name, beta in zip(("beta_u", "beta_a"), betas, strict=True):
        if isinstance(beta, Tensor):
            require_shape(name, beta, (), (1,), (weight.shape[2],), meaning="a scalar or [parents]")
    for name, tensor in (("weight", weight), ("activation", activation)):
        require_like(name, widen(tensor), widen(poses))
    require_finite("poses", poses)
