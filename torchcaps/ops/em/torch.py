"""One iteration of EM routing on a grid, in torch: the E-step, then mass, mean and variance of the votes.

This is the readable text of what the kernel in ``csrc/`` does, and the path that serves where the kernel does not.
Votes exist for a few images at a time only, in the forward and in the backward pass, and nothing of them is kept.

B images, Q and P positions of children and parents, W places in a window, T and J types of children and parents; a pose
is R×d, a weight d×C, a vote R×C or H = R·C numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.backends import register_backend
from torchcaps.ops.em.backend import Children, GridPlan, MomentGradients, Moments, MomentsBackend, Parents
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.windows import Windows, window_votes

CHUNK_BYTES = 64 << 20
"""How much memory the votes of one chunk of images may take."""


@register_backend("em")
class TorchMoments(MomentsBackend):
    """Serves every device and type of number."""

    name = "torch"

    def describe(self) -> str:
        """How."""
        return "torch, a few images at a time"

    def moments(self, plan: GridPlan, children: Children, parents: Parents | None, present: Tensor | None) -> Moments:
        """See :class:`MomentsBackend`."""
        return moments(children, parents, plan.windows, present, plan.everywhere)

    def moment_gradients(
        self,
        plan: GridPlan,
        children: Children,
        parents: Parents | None,
        present: Tensor | None,
        found: Moments,
        grads: tuple[Tensor, Tensor, Tensor],
    ) -> MomentGradients:
        """See :class:`MomentsBackend`."""
        return moment_gradients(children, parents, plan.windows, present, plan.everywhere, found, grads)


class _Seen(NamedTuple):
    """The votes ``[B, P, W, T, J, H]`` of a few images and the logarithm of all shares ``[B, P, W, T, J]``."""

    votes: Tensor
    log_share: Tensor
    activation: Tensor  # [B, P, W, T]
    there: Tensor | None  # [B or 1, P, W], None if all are


def _chunks(children: Children, windows: Windows) -> Iterator[slice]:
    poses, weight = children.poses, children.weight
    parents, places = windows.table().shape
    each = (
        parents * places * weight.shape[1] * weight.shape[2] * poses.shape[3] * weight.shape[4] * poses.element_size()
    )
    step = max(1, CHUNK_BYTES // max(1, each))
    for start in range(0, max(1, len(poses)), step):  # also of an empty batch, one that is empty
        yield slice(start, min(start + step, len(poses)))


def log_shares(
    votes: Tensor, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Tensor:
    """ln R ``[B, P, W, T, J]``: −∞ in the padding and for parents that are not ``present`` ``[B, P]``.

    A child's shares sum to one over the types at one position, or over all parents that see it. They are NaN if one of
    its scores is NaN or ∞, or if all of them overflow.
    """
    there = _there(windows, present, votes.device)
    if parents is None:
        score = votes.new_zeros(votes.shape[:-1])
    else:
        away = votes - parents.mean[:, :, None, None]
        distance = (away * parents.precision[:, :, None, None] * away).sum(dim=-1)  # the square alone may overflow
        score = parents.log_p[:, :, None, None] - 0.5 * distance
    score = _only_there(score, there, -math.inf)
    total = score.logsumexp(dim=-1)  # [B, P, W, T]
    if everywhere:
        total = _over_positions(total, windows.table(votes.device), math.prod(windows.size))
    return _only_there(score - total[..., None], there, -math.inf)


def _there(windows: Windows, present: Tensor | None, device: torch.device) -> Tensor | None:
    """Which places hold a child that votes for a parent: bool ``[B or 1, P, W]``, None if all do."""
    if present is None and not any(windows.padding):
        return None
    there = (windows.table(device) >= 0)[None]
    return there if present is None else there & present[:, :, None]


def _only_there(values: Tensor, there: Tensor | None, other: float = 0.0) -> Tensor:
    """Values ``[B, P, W, ...]``, with ``other`` at places that are not there: weighed by zero, NaN would still show."""
    return values if there is None else values.masked_fill(~there.view(*there.shape, *[1] * (values.dim() - 3)), other)


def _over_positions(total: Tensor, table: Tensor, children: int) -> Tensor:
    """ln Σ e^x over all windows in which a child is, for each of them: ``[B, P, W, T]`` → the same."""
    batch, positions, places, types = total.shape
    child = table.clamp_min(0).flatten()
    flat = total.reshape(batch, positions * places, types)
    where = child[None, :, None].expand_as(flat)
    top = flat.new_full((batch, children, types), -math.inf).scatter_reduce(1, where, flat, "amax")
    top = top.masked_fill(top == -math.inf, 0)
    sums = torch.zeros_like(top).index_add(1, child, (flat - top[:, child]).exp())
    return (sums.log() + top)[:, child].view_as(total)


def _seen(
    children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> _Seen:
    votes = window_votes(children.poses, children.weight, windows, children.shift).flatten(-2)
    log_share = log_shares(votes, parents, windows, present, everywhere)
    table = windows.table(votes.device).clamp_min(0)
    there = _there(windows, present, votes.device)
    return _Seen(_only_there(votes, there), log_share, _only_there(children.activation[:, table], there), there)


def moments(
    children: Children,
    parents: Parents | None,
    windows: Windows,
    present: Tensor | None,
    everywhere: bool,
) -> Moments:
    """Mass, mean and variance of the votes for every parent, each child's vote weighed by its share and activation.

    Without ``parents``, as in the first iteration, the shares are even.
    """
    parts = []
    for chunk in _chunks(children, windows):
        of = None if parents is None else parents.images(chunk)
        here = None if present is None else present[chunk]
        parts.append(_moments(_seen(children.images(chunk), of, windows, here, everywhere)))
    return Moments(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _moments(seen: _Seen) -> Moments:
    a = seen.activation[..., None]
    # The share of an absent child counts as nothing, also where its score overflowed.
    log_weight = (seen.log_share + a.log()).masked_fill(a == 0, -math.inf)  # [B, P, W, T, J]
    top = log_weight.amax(dim=(2, 3))  # a factor per parent cancels in mean and variance
    anyone = top != -math.inf
    top = top.masked_fill(~anyone, 0)
    weight = (log_weight - top[:, :, None, None]).exp()
    total = weight.sum(dim=(2, 3))
    share = weight / total.masked_fill(~anyone, 1)[:, :, None, None]
    mean = finite_or_nan(torch.einsum("bpwtj,bpwtjh->bpjh", share, seen.votes))
    away = seen.votes - mean[:, :, None, None]
    variance = (share[..., None] * away * away).sum(dim=(2, 3))  # the square alone may overflow
    log_mass = torch.where(anyone, top + total.log(), 1e30)  # no child: no shares of anything
    return Moments(torch.where(anyone, log_mass.exp(), 0), mean, variance, log_mass)


def moment_gradients(
    children: Children,
    parents: Parents | None,
    windows: Windows,
    present: Tensor | None,
    everywhere: bool,
    found: Moments,
    grads: tuple[Tensor, Tensor, Tensor],
) -> MomentGradients:
    """Gradients from those of amount, mean and variance; ``csrc/em/gradients.h`` has the equations."""
    weight = torch.zeros_like(children.weight)
    parts = []
    for chunk in _chunks(children, windows):
        of = None if parents is None else parents.images(chunk)
        here = None if present is None else present[chunk]
        some = children.images(chunk)
        seen = _seen(some, of, windows, here, everywhere)
        result = Moments(*(part[chunk] for part in found))
        dvotes, dactivation, score = _vote_gradients(seen, of, windows, everywhere, result, [g[chunk] for g in grads])
        dposes, dweight = _through_votes(_only_there(dvotes, seen.there), some, windows, seen.there)
        weight += dweight
        parts.append((dposes, _to_children(dactivation, windows), *score))
    poses, activation, *rest = (torch.cat(part) for part in zip(*parts, strict=True))
    log_p, mean, precision = rest or (poses.new_empty(0) for _ in range(3))
    return MomentGradients(poses, weight, activation, log_p, mean, precision)


def _vote_gradients(
    seen: _Seen,
    parents: Parents | None,
    windows: Windows,
    everywhere: bool,
    found: Moments,
    grads: list[Tensor],
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Of votes ``[B, P, W, T, J, H]``, activations ``[B, P, W, T]``, and log_p, mean, precision of the old parents."""
    by_amount, by_mean, by_variance = (grad[:, :, None, None] for grad in grads)
    a = seen.activation[..., None]
    absent = a == 0  # has no weight, also where its score overflowed
    unit = _unit(a)  # gradients are per unit of activation
    a = a / unit
    share = seen.log_share.exp()
    most = 0.9 * math.log(torch.finfo(share.dtype).max)  # an absent child may have any share: keep ∞ out
    relative = (seen.log_share - found.log_mass[:, :, None, None] + unit.log()).clamp_max(most).exp()
    away = seen.votes - found.mean[:, :, None, None]
    inner = (away * (by_mean + by_variance * away)).sum(dim=-1)
    inner = inner - (by_variance * found.variance[:, :, None, None]).sum(dim=-1)
    gain = _only_there(share * by_amount * unit + relative * inner, seen.there)  # [B, P, W, T, J]
    dvotes = (a * relative).masked_fill(absent, 0)[..., None] * (by_mean + 2 * by_variance * away)
    total = gain.sum(dim=-1)
    dactivation = total / unit[..., 0]
    if parents is None:
        return dvotes, dactivation, ()
    if everywhere:
        total = _to_children(total, windows)[:, windows.table(total.device).clamp_min(0)]
    ds = (a * (gain - share * total[..., None])).masked_fill(absent, 0)
    away = seen.votes - parents.mean[:, :, None, None]
    dscore = ds[..., None] * away
    dvotes -= dscore * parents.precision[:, :, None, None]
    dmean = dscore.sum(dim=(2, 3)) * parents.precision
    dprecision = -0.5 * (dscore * away).sum(dim=(2, 3))
    return dvotes, dactivation, (ds.sum(dim=(2, 3)), dmean, dprecision)


def _unit(a: Tensor) -> Tensor:
    """What to count an activation in: 1, or so near to one that is extreme that R/m per unit is within range."""
    most = torch.finfo(a.dtype).max ** 0.47
    unit = torch.ones_like(a).masked_fill(a > most, most)
    return unit.masked_fill((a < 1 / most) & (a != 0), 1 / most)


def _to_children(values: Tensor, windows: Windows) -> Tensor:
    """Sums over all windows in which a child is: ``[B, P, W, ...]`` → ``[B, Q, ...]``; the padding must hold zeros."""
    children = math.prod(windows.size)
    out = values.new_zeros(len(values), children, *values.shape[3:])
    return out.index_add(1, windows.table(values.device).clamp_min(0).flatten(), values.flatten(1, 2))


def _through_votes(dvotes: Tensor, children: Children, windows: Windows, there: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradients of poses and weight from those of the votes."""
    poses, weight = children.poses, children.weight
    table = windows.table(poses.device).clamp_min(0)
    dvotes = torch.unflatten(dvotes, -1, (poses.shape[3], weight.shape[4]))
    full = weight.expand(table.shape[1], *weight.shape[1:])
    dposes = torch.einsum("bpwtjrc,wtjdc->bpwtrd", dvotes, full)
    dweight = torch.einsum("bpwtrd,bpwtjrc->wtjdc", _only_there(poses[:, table], there), dvotes)
    return _to_children(_only_there(dposes, there), windows), dweight.sum_to_size(weight.shape)
