"""``torchcaps::em_moments``: one iteration of EM routing on a grid as a custom op, with its backward pass.

Between two iterations there are only the parents, which are few: those steps are plain torch, and autograd puts the
iterations together.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.backends import choose_backend
from torchcaps.ops.em.backend import Children, GridPlan, Moments, MomentsBackend, Parents
from torchcaps.ops.em.plain import moments_plainly
from torchcaps.ops.transforms import (
    call_each,
    fold,
    gradients_by_plain_torch,
    plain_needed,
    require_no_tangents,
    unfold,
)
from torchcaps.ops.windows import Windows

# Schemas are written out: which annotations torch can read instead depends on its version.
MOMENTS = (
    "(Tensor poses, Tensor weight, Tensor activation, Tensor? shift, Tensor? log_p, Tensor? mean, Tensor? precision,"
    " Tensor? present, SymInt[] size, SymInt[] kernel, SymInt[] stride, SymInt[] padding, bool shared, bool everywhere)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
GRADIENTS = (
    "(Tensor by_amount, Tensor by_mean, Tensor by_variance,"
    " Tensor amount, Tensor new_mean, Tensor variance, Tensor log_mass,"
    " Tensor poses, Tensor weight, Tensor activation, Tensor? shift, Tensor? log_p, Tensor? mean, Tensor? precision,"
    " Tensor? present, SymInt[] size, SymInt[] kernel, SymInt[] stride, SymInt[] padding, bool shared, bool everywhere)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _serving(plan: GridPlan, children: Children) -> MomentsBackend:
    """The backend that serves a call."""
    backend = choose_backend("em", plan, children)
    assert isinstance(backend, MomentsBackend)
    return backend


def _arguments(
    inputs: tuple[Tensor | None, ...], size: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], shared: bool, everywhere: bool,
) -> tuple[GridPlan, Children, Parents | None, Tensor | None]:  # fmt: skip
    poses, weight, activation, shift, log_p, mean, precision, present = inputs
    assert poses is not None
    assert weight is not None
    assert activation is not None
    parents = None
    if log_p is not None and mean is not None and precision is not None:
        parents = Parents(log_p, mean, precision)
    windows = Windows(tuple(size), tuple(kernel), tuple(stride), tuple(padding), shared)
    return GridPlan(windows, everywhere), Children(poses, weight, activation, shift), parents, present


@torch.library.custom_op("torchcaps::em_moments", mutates_args=(), schema=MOMENTS)
def em_moments_op(
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    shift: Tensor | None,
    log_p: Tensor | None,
    mean: Tensor | None,
    precision: Tensor | None,
    present: Tensor | None,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shared: bool,
    everywhere: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Amount [B, P, J], mean and variance [B, P, J, H], ln amount [B, P, J]; see ``torch.py``."""
    require_no_tangents("em_moments")
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


@torch.library.custom_op("torchcaps::em_moments_backward", mutates_args=(), schema=GRADIENTS)
def em_moments_backward_op(
    by_amount: Tensor,
    by_mean: Tensor,
    by_variance: Tensor,
    amount: Tensor,
    new_mean: Tensor,
    variance: Tensor,
    log_mass: Tensor,
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    shift: Tensor | None,
    log_p: Tensor | None,
    mean: Tensor | None,
    precision: Tensor | None,
    present: Tensor | None,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    shared: bool,
    everywhere: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of poses, weight, activation, log_p, mean and precision; the last three empty without parents."""
    require_no_tangents("em_moments_backward")
    tensors = (poses, weight, activation, shift, log_p, mean, precision, present)
    plan, children, parents, there = _arguments(tensors, size, kernel, stride, padding, shared, everywhere)
    found, grads = Moments(amount, new_mean, variance, log_mass), (by_amount, by_mean, by_variance)
    result = _serving(plan, children).moment_gradients(plan, children, parents, there, found, grads)
    return result.poses, result.weight, result.activation, result.log_p, result.mean, result.precision


@em_moments_backward_op.register_fake
def _(*arguments):  # type: ignore[no-untyped-def]
    poses, weight, activation, _, log_p, mean, precision = arguments[7:14]
    like = [poses, weight, activation, log_p, mean, precision]
    return tuple(poses.new_empty(0 if tensor is None else tensor.shape) for tensor in like)


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.options = inputs[8:]
    ctx.mark_non_differentiable(output[3])


def _plainly(*arguments: Any) -> Moments:
    """The op in plain torch: amount, mean, variance and ln amount."""
    plan, children, parents, present = _arguments(arguments[:8], *arguments[8:])
    return moments_plainly(children, parents, plan.windows, present, plan.everywhere)


def _backward(ctx, by_amount, by_mean, by_variance, _):  # type: ignore[no-untyped-def]
    saved = ctx.saved_tensors  # read once: while activations are checkpointed, a second time is an error
    inputs, found = saved[:8], list(saved[8:])
    grads = [
        torch.zeros_like(like) if grad is None else grad.contiguous()
        for grad, like in zip((by_amount, by_mean, by_variance), found[:3], strict=True)
    ]
    if torch.is_grad_enabled() or plain_needed():  # create_graph, or gradients of many outputs at once
        return *_plain_gradients(inputs, ctx.options, tuple(grads)), *([None] * len(ctx.options))
    poses, weight, activation, *parents = em_moments_backward_op(*grads, *found, *inputs, *ctx.options)
    parents = [None] * 3 if inputs[4] is None else parents
    return poses, weight, activation, None, *parents, None, *([None] * len(ctx.options))


def _plain_gradients(inputs: Sequence[Tensor | None], options: Sequence[Any], grads: Any) -> list[Tensor | None]:
    shift, present = inputs[3], inputs[7]  # which have none

    def moments(*some: Tensor | None) -> tuple[Tensor, ...]:
        return _plainly(*some[:3], shift, *some[3:], present, *options)[:3]

    found = gradients_by_plain_torch(moments, (*inputs[:3], *inputs[4:7]), grads)
    return [*found[:3], None, *found[3:], None]


em_moments_op.register_autograd(_backward, setup_context=_setup)


@em_moments_op.register_vmap
def _vmap(info, in_dims, *arguments):  # type: ignore[no-untyped-def]
    """More images where the weights are the same for all, else one call for each."""
    tensors, options, dims, size = arguments[:8], arguments[8:], in_dims[:8], info.batch_size
    if dims[1] is not None or dims[3] is not None:  # weight or shift
        return call_each(lambda *some: em_moments_op(*some, *options), dims, size, *tensors), (0, 0, 0, 0)
    folded = [tensor if i in (1, 3) else fold(tensor, dims[i], size) for i, tensor in enumerate(tensors)]
    return tuple(unfold(part, 0, size) for part in em_moments_op(*folded, *options)), (0, 0, 0, 0)


def em_moments(
    children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Moments:
    """Moments of the votes for every parent, differentiable; nothing of the votes is kept, but in plain torch."""
    if plain_needed(foldable=True):
        return moments_plainly(children, parents, windows, present, everywhere)
    tensors = (None, None, None) if parents is None else parents
    return Moments(*em_moments_op(*children, *tensors, present, *windows, everywhere))
