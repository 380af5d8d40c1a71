"""Plain torch in place of the custom ops, until ``use_backend("plain")`` does it: delete this file then."""

import math
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch

from torchcaps.ops.em import grid
from torchcaps.ops.em.backend import Moments
from torchcaps.ops.windows import window_votes
from torchcaps.routing import DynamicRouting, EMRouting, OptimizedRouting

FAR = -1e30


@contextmanager
def emulated_plain():
    """Votes are stored, and EM on a grid is the few lines below."""
    with ExitStack() as stack:
        for routing in (DynamicRouting, OptimizedRouting, EMRouting):
            stack.enter_context(mock.patch.object(routing, "fused", False))
        stack.enter_context(mock.patch.object(grid, "em_moments", _moments))
        yield


def _moments(children, parents, windows, present, everywhere):
    table = windows.table(children.poses.device)
    there = (table >= 0)[None] if present is None else (table >= 0)[None] & present[:, :, None]
    there, child = there[..., None], table.clamp_min(0)
    votes = window_votes(children.poses, children.weight, windows, children.shift).flatten(-2)  # [B, P, W, T, J, H]
    activation = children.activation[:, child].masked_fill(~there, 0)
    if parents is None:
        score = votes.new_zeros(votes.shape[:-1])
    else:
        away = votes - parents.mean[:, :, None, None]
        score = parents.log_p[:, :, None, None] - 0.5 * (away.square() * parents.precision[:, :, None, None]).sum(-1)
    score = score.masked_fill(~there[..., None], FAR)
    weight = _shares(score, child, math.prod(windows.size), everywhere) * activation[..., None]
    amount = weight.sum(dim=(2, 3))
    share = weight / amount[:, :, None, None]
    mean = torch.einsum("bpwtj,bpwtjh->bpjh", share, votes)
    variance = (share[..., None] * (votes - mean[:, :, None, None]).square()).sum(dim=(2, 3))
    return Moments(amount, mean, variance, amount.log())


def _shares(score, child, children, everywhere):
    if not everywhere:
        return score.softmax(dim=-1)
    flat, where = score.flatten(1, 2), child.flatten()  # [B, P·W, T, J], [P·W]
    index = where[None, :, None].expand(flat.shape[:3])
    top = flat.new_full((len(flat), children, flat.shape[2]), FAR)
    top = top.scatter_reduce(1, index, flat.detach().amax(dim=-1), "amax")[:, where]
    weight = (flat - top[..., None]).exp()
    total = weight.new_zeros(len(flat), children, flat.shape[2]).index_add(1, where, weight.sum(dim=-1))
    return (weight / total[:, where, :, None]).view_as(score)
