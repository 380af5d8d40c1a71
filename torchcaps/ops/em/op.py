"""``torchcaps::em_moments``: one iteration of EM routing on a grid as a custom op, with its backward pass.

Between two iterations there are only the parents, which are few: those steps are plain torch, and autograd puts the
iterations together.
"""

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor

from torchcaps.ops.backends import choose_backend
from torchcaps.ops.em.backend import Children, GridPlan, Moments, MomentsBackend, Parents
from torchcaps.ops.windows import Windows

# The annotations below become the op's schema; torch reads Optional, not `| None`, in every version it supports.
# ruff: noqa: UP045


def _serving(plan: GridPlan, children: Children) -> MomentsBackend:
    """The backend that serves a call."""
    backend = choose_backend("em", plan, children)
    assert isinstance(backend, MomentsBackend)
    return backend


def _arguments(
    inputs: tuple[Optional[Tensor], ...], size: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], shared: bool, everywhere: bool,
) -> tuple[GridPlan, Children, Optional[Parents], Optional[Tensor]]:  # fmt: skip
    poses, weight, activation, shift, log_p, mean, precision, present = inputs
    assert poses is not None
    assert weight is not None
    assert activation is not None
    parents = None
    if log_p is not None and mean is not None and precision is not None:
        parents = Parents(log_p, mean, precision)
    windows = Windows(tuple(size), tuple(kernel), tuple(stride), tuple(padding), shared)
    return GridPlan(windows, everywhere), Children(poses, weight, activation, shift), parents, present


@torch.library.custom_op("torchcaps::em_moments", mutates_args=())
def em_moments_op(
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    shift: Optional[Tensor],
    log_p: Optional[Tensor],
    mean: Optional[Tensor],
    precision: Optional[Tensor],
    present: Optional[Tensor],
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shared: bool,
    everywhere: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Amount [B, P, J], mean and variance [B, P, J, H], ln amount [B, P, J]; see ``torch.py``."""
    tensors = (poses, weight, activation, shift, log_p, mean, precision, present)
    plan, children, parents, there = _arguments(tensors, size, kernel, stride, padding, shared, everywhere)
    found = _serving(plan, children).moments(plan, children, parents, there)
    return found.amount, found.mean, found.variance, found.log_mass


@em_moments_op.register_fake
def _(poses, weight, activation, shift, log_p, mean, precision, present, size, kernel, stride, padding, *_):  # type: ignore[no-untyped-def]
    positions = 1
    for n, k, s, p in zip(size, kernel, stride, padding, strict=True):
        positions = positions * ((n + 2 * p - k) // s + 1)
    sums = (poses.shape[0], positions, weight.shape[2])
    votes = (*sums, poses.shape[3] * weight.shape[4])
    return poses.new_empty(sums), poses.new_empty(votes), poses.new_empty(votes), poses.new_empty(sums)


@torch.library.custom_op("torchcaps::em_moments_backward", mutates_args=())
def em_moments_backward_op(
    found: Sequence[Tensor],
    grads: Sequence[Tensor],
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    shift: Optional[Tensor],
    log_p: Optional[Tensor],
    mean: Optional[Tensor],
    precision: Optional[Tensor],
    present: Optional[Tensor],
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shared: bool,
    everywhere: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of poses, weight, activation, log_p, mean and precision; the last three empty without parents."""
    tensors = (poses, weight, activation, shift, log_p, mean, precision, present)
    plan, children, parents, there = _arguments(tensors, size, kernel, stride, padding, shared, everywhere)
    by_amount, by_mean, by_variance = grads
    result = _serving(plan, children).moment_gradients(
        plan, children, parents, there, Moments(*found), (by_amount, by_mean, by_variance)
    )
    return result.poses, result.weight, result.activation, result.log_p, result.mean, result.precision


@em_moments_backward_op.register_fake
def _(found, grads, poses, weight, activation, shift, log_p, mean, precision, present, *_):  # type: ignore[no-untyped-def]
    like = [poses, weight, activation, log_p, mean, precision]
    return tuple(poses.new_empty(0 if tensor is None else tensor.shape) for tensor in like)


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.options = inputs[8:]
    ctx.mark_non_differentiable(output[3])


def _backward(ctx, by_amount, by_mean, by_variance, _):  # type: ignore[no-untyped-def]
    inputs, found = ctx.saved_tensors[:8], list(ctx.saved_tensors[8:])
    grads = [
        torch.zeros_like(like) if grad is None else grad.contiguous()
        for grad, like in zip((by_amount, by_mean, by_variance), found[:3], strict=True)
    ]
    poses, weight, activation, *parents = em_moments_backward_op(found, grads, *inputs, *ctx.options)
    parents = [None] * 3 if inputs[4] is None else parents
    return poses, weight, activation, None, *parents, None, *([None] * len(ctx.options))


em_moments_op.register_autograd(_backward, setup_context=_setup)


def em_moments(
    children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Moments:
    """Moments of the votes for every parent, differentiable; nothing of the votes is kept."""
    tensors = (None, None, None) if parents is None else parents
    return Moments(*em_moments_op(*children, *tensors, present, *windows, everywhere))
