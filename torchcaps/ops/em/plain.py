"""One iteration of EM routing on a grid in plain torch: the E-step, then mass, mean and variance of the votes.

torch can differentiate this as often as one likes: no gradient of it is NaN where no child is there, or none is active.
It serves where a transform asks for that (:mod:`torchcaps.ops.transforms`) and is the forward pass of the backend
``torch``, which does a few images at a time.

B images, Q and P positions of children and parents, W places in a window, T and J types of children and parents; a pose
is R×d, a weight d×C, a vote R×C or H = R·C numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.em.backend import Children, Moments, Parents
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.windows import Windows, window_votes


class Seen(NamedTuple):
    """The votes ``[B, P, W, T, J, H]`` of a few images and the logarithm of all shares ``[B, P, W, T, J]``.

    Where no child is there, votes, activation and logarithm hold zeros, and nothing may be made of the last.
    """

    votes: Tensor
    log_share: Tensor
    activation: Tensor  # [B, P, W, T]
    there: Tensor | None  # [B or 1, P, W], None if all are


def moments_plainly(
    children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Moments:
    """Mass, mean and variance of the votes for every parent, each child's vote weighed by its share and activation.

    Without ``parents``, as in the first iteration, the shares are even.
    """
    seen = see(children, parents, windows, present, everywhere)
    a = seen.activation[..., None]
    absent = a == 0
    log_share = seen.log_share.masked_fill(absent & ~seen.log_share.isfinite(), -math.inf)  # its score overflowed
    top = (log_share + a.log()).detach().amax(dim=(2, 3))  # a factor per parent cancels in mean and variance
    anyone = top != -math.inf
    top = top.masked_fill(~anyone, 0)
    unit = extreme_unit(a)
    most = 0.9 * math.log(torch.finfo(top.dtype).max)  # an absent child may have any share: keep 0·∞ out
    relative = (log_share - top[:, :, None, None] + unit.log()).clamp_max(most).exp()
    weight = only_there(relative, seen.there) * (a / unit)
    total = weight.sum(dim=(2, 3))
    share = (weight / total.masked_fill(~anyone, 1)[:, :, None, None]).masked_fill(~anyone[:, :, None, None], 0)
    mean = finite_or_nan(torch.einsum("bpwtj,bpwtjh->bpjh", share, seen.votes))
    away = seen.votes - mean[:, :, None, None]
    variance = (share[..., None] * away * away).sum(dim=(2, 3))  # the square alone may overflow
    log_mass = torch.where(anyone, top + total.detach().log(), 1e30)  # no child: no shares of anything
    return Moments(total * top.exp(), mean, variance, log_mass)


def extreme_unit(a: Tensor) -> Tensor:
    """What to count an activation in: 1, or so near to one that is extreme that R/m per unit is within range."""
    most = torch.finfo(a.dtype).max ** 0.47
    unit = torch.ones_like(a).masked_fill(a > most, most)
    return unit.masked_fill((a < 1 / most) & (a != 0), 1 / most)


def shares(
    votes: Tensor, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Tensor:
    """R ``[B, P, W, T, J]``: 0 in the padding and for parents that are not ``present`` ``[B, P]``.

    A child's shares sum to one over the types at one position, or over all parents that see it. They are NaN if one of
    its scores is NaN or ∞, or if all of them overflow.
    """
    there = _there(windows, present, votes.device)
    return only_there(_log_shares(votes, parents, windows, there, everywhere).exp(), there)


def _log_shares(
    votes: Tensor, parents: Parents | None, windows: Windows, there: Tensor | None, everywhere: bool
) -> Tensor:
    """ln R ``[B, P, W, T, J]``; zero where no child is there."""
    if parents is None:
        score = votes.new_zeros(votes.shape[:-1])
    else:
        away = votes - parents.mean[:, :, None, None]
        distance = (away * parents.precision[:, :, None, None] * away).sum(dim=-1)  # the square alone may overflow
        score = only_there(parents.log_p[:, :, None, None] - 0.5 * distance, there)
    total = score.logsumexp(dim=-1)  # [B, P, W, T]
    if everywhere:
        total = _over_positions(total, windows, there)
    return only_there(score - total[..., None], there)


def _there(windows: Windows, present: Tensor | None, device: torch.device) -> Tensor | None:
    """Which places hold a child that votes for a parent: bool ``[B or 1, P, W]``, None if all do."""
    if present is None and not any(windows.padding):
        return None
    there = (windows.table(device) >= 0)[None]
    return there if present is None else there & present[:, :, None]


def only_there(values: Tensor, there: Tensor | None) -> Tensor:
    """Values ``[B, P, W, ...]``, zero at places that are not there: weighed by zero, NaN would still show."""
    return values if there is None else values.masked_fill(~there.view(*there.shape, *[1] * (values.dim() - 3)), 0)


def _over_positions(total: Tensor, windows: Windows, there: Tensor | None) -> Tensor:
    """ln Σ e^x over all windows in which a child is, for each of them: ``[B, P, W, T]`` → the same.

    By gathering alone, and without an infinity where no child is there: so it has derivatives of every order.
    """
    links = windows.seen_from(total.device)  # [Q, L]
    at = links.clamp_min(0)
    valid = (links >= 0)[None] if there is None else (links >= 0)[None] & there.flatten(1)[:, at]
    valid = valid[..., None]  # [B or 1, Q, L, 1]
    seen = total.flatten(1, 2)[:, at].masked_fill(~valid, 0)  # [B, Q, L, T]
    top = seen.detach().masked_fill(~valid, -math.inf).amax(dim=2, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0)
    sums = (seen - top).masked_fill(~valid, 0).exp().masked_fill(~valid, 0).sum(dim=2)  # [B, Q, T]
    sums = sums.masked_fill(~valid.any(dim=2), 1)  # a child that no parent sees
    child = windows.table(total.device).clamp_min(0)
    return (sums.log() + top[:, :, 0])[:, child]


def see(
    children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Seen:
    """The votes of all windows and the shares that they have."""
    there = _there(windows, present, children.poses.device)
    votes = window_votes(children.poses, children.weight, windows, children.shift).flatten(-2)
    votes = only_there(votes, there)
    log_share = _log_shares(votes, parents, windows, there, everywhere)
    table = windows.table(votes.device).clamp_min(0)
    return Seen(votes, log_share, only_there(children.activation[:, table], there), there)
