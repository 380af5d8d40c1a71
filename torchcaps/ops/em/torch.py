"""One iteration of EM routing on a grid, in torch: a few images at a time, and the gradients written out.

This is the readable text of what the kernel in ``csrc/`` does, and the path that serves where the kernel does not.
Votes exist for a few images at a time only, in the forward and in the backward pass, and nothing of them is kept.

B images, Q and P positions of children and parents, W places in a window, T and J types of children and parents; a pose
is R×d, a weight d×C, a vote R×C or H = R·C numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.ops.backends import register_backend
from torchcaps.ops.em.backend import Children, GridPlan, MomentGradients, Moments, MomentsBackend, Parents
from torchcaps.ops.em.plain import Seen, extreme_unit, moments_plainly, only_there, see
from torchcaps.ops.windows import Windows

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


def _chunks(children: Children, windows: Windows) -> Iterator[slice]:
    poses, weight = children.poses, children.weight
    parents, places = math.prod(windows.out()), math.prod(windows.kernel)
    each = (
        parents * places * weight.shape[1] * weight.shape[2] * poses.shape[3] * weight.shape[4] * poses.element_size()
    )
    step = max(1, CHUNK_BYTES // max(1, each))
    for start in range(0, max(1, len(poses)), step):  # also of an empty batch, one that is empty
        yield slice(start, min(start + step, len(poses)))


def moments(
    children: Children,
    parents: Parents | None,
    windows: Windows,
    present: Tensor | None,
    everywhere: bool,
) -> Moments:
    """:func:`moments_plainly`, a few images at a time."""
    parts = []
    for chunk in _chunks(children, windows):
        of = None if parents is None else parents.images(chunk)
        here = None if present is None else present[chunk]
        parts.append(moments_plainly(children.images(chunk), of, windows, here, everywhere))
    return Moments(*(torch.cat(part) for part in zip(*parts, strict=True)))


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
        seen = see(some, of, windows, here, everywhere)
        result = Moments(*(part[chunk] for part in found))
        dvotes, dactivation, score = _vote_gradients(seen, of, windows, everywhere, result, [g[chunk] for g in grads])
        dposes, dweight = _through_votes(only_there(dvotes, seen.there), some, windows, seen.there)
        weight += dweight
        parts.append((dposes, _to_children(dactivation, windows), *score))
    poses, activation, *rest = (torch.cat(part) for part in zip(*parts, strict=True))
    log_p, mean, precision = rest or (poses.new_empty(0) for _ in range(3))
    return MomentGradients(poses, weight, activation, log_p, mean, precision)


def _vote_gradients(
    seen: Seen,
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
    unit = extreme_unit(a)  # gradients are per unit of activation
    a = a / unit
    share = only_there(seen.log_share.exp(), seen.there)
    most = 0.9 * math.log(torch.finfo(share.dtype).max)  # an absent child may have any share: keep ∞ out
    relative = (seen.log_share - found.log_mass[:, :, None, None] + unit.log()).clamp_max(most).exp()
    away = seen.votes - found.mean[:, :, None, None]
    inner = (away * (by_mean + by_variance * away)).sum(dim=-1)
    inner = inner - (by_variance * found.variance[:, :, None, None]).sum(dim=-1)
    gain = only_there(share * by_amount * unit + relative * inner, seen.there)  # [B, P, W, T, J]
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


def _to_children(values: Tensor, windows: Windows) -> Tensor:
    """Sums over all windows in which a child is: ``[B, P, W, ...]`` → ``[B, Q, ...]``; the padding must hold zeros."""
    children = math.prod(windows.size)
    out = values.new_zeros(values.shape[0], children, *values.shape[3:])
    return out.index_add(1, windows.table(values.device).clamp_min(0).flatten(), values.flatten(1, 2))


def _through_votes(dvotes: Tensor, children: Children, windows: Windows, there: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradients of poses and weight from those of the votes."""
    poses, weight = children.poses, children.weight
    table = windows.table(poses.device).clamp_min(0)
    dvotes = torch.unflatten(dvotes, -1, (poses.shape[3], weight.shape[4]))
    full = weight.expand(table.shape[1], *weight.shape[1:])
    dposes = torch.einsum("bpwtjrc,wtjdc->bpwtrd", dvotes, full)
    dweight = torch.einsum("bpwtrd,bpwtjrc->wtjdc", only_there(poses[:, table], there), dvotes)
    return _to_children(only_there(dposes, there), windows), dweight.sum_to_size(weight.shape)
