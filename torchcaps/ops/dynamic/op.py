"""``torchcaps::routed_linear``: routing without votes as a custom op, forward and backward, by the backend in use."""

import functools

import torch
from torch import Tensor

from torchcaps.ops.backends import choose_backend
from torchcaps.ops.dynamic.backend import Inputs, RoutedBackend
from torchcaps.ops.dynamic.plain import route_plainly
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.plan import read_plan
from torchcaps.ops.precision import exact
from torchcaps.ops.transforms import (
    call_each,
    fold,
    gradients_by_plain_torch,
    plain_needed,
    require_no_tangents,
    unfold,
)

# Schemas are written out: which annotations torch can read instead depends on its version.
FORWARD = "(Tensor poses, Tensor weight, Tensor? child_weight, Tensor? bias, str plan) -> (Tensor, Tensor)"
BACKWARD = (
    "(Tensor grad, Tensor sums, Tensor poses, Tensor weight, Tensor? child_weight, Tensor? bias, str plan)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)


def serving(plan: DynamicPlan, inputs: Inputs) -> RoutedBackend:
    """The backend that serves a call."""
    backend = choose_backend("dynamic", plan, inputs)
    assert isinstance(backend, RoutedBackend)
    return backend


def _forward(
    poses: Tensor, weight: Tensor, child_weight: Tensor | None, bias: Tensor | None, plan: str
) -> tuple[Tensor, Tensor]:
    """Pose [B, J, D] and the sums of all passes [r, B, J, D]."""
    require_no_tangents("routed_linear")
    options, inputs = read_plan(DynamicPlan, plan), Inputs(poses, weight, child_weight, bias)
    return serving(options, inputs).forward(options, inputs)


def _fake_forward(
    poses: Tensor, weight: Tensor, child_weight: Tensor | None, bias: Tensor | None, plan: str
) -> tuple[Tensor, Tensor]:
    shape = (poses.shape[0], weight.shape[-3], weight.shape[-1])
    return poses.new_empty(shape), poses.new_empty((read_plan(DynamicPlan, plan).iterations, *shape))


routed_linear_op = torch.library.custom_op("torchcaps::routed_linear", _forward, mutates_args=(), schema=FORWARD)
routed_linear_op.register_fake(_fake_forward)

# The same without autograd, for where no gradient is wanted: for a single image the way through Python that
# differentiable ops take would cost as much as the routing itself.
torch.library.define("torchcaps::routed_forward", FORWARD)
torch.library.impl("torchcaps::routed_forward", "default")(_forward)
torch.library.register_fake("torchcaps::routed_forward")(_fake_forward)


@torch.library.custom_op("torchcaps::routed_linear_backward", mutates_args=(), schema=BACKWARD)
def routed_linear_backward_op(
    grad: Tensor,
    sums: Tensor,
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    bias: Tensor | None,
    plan: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of poses, weight, child_weight [B, I] and bias [J, D]."""
    require_no_tangents("routed_linear_backward")
    options, inputs = read_plan(DynamicPlan, plan), Inputs(poses, weight, child_weight, bias)
    found = serving(options, inputs).backward(options, inputs, sums, grad)
    return found.poses, found.weight, found.child_weight, found.bias


@routed_linear_backward_op.register_fake
def _(
    grad: Tensor,
    sums: Tensor,
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    bias: Tensor | None,
    plan: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(poses, memory_format=torch.contiguous_format),
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        poses.new_empty(poses.shape[:2]),
        poses.new_empty(sums.shape[2:]),
    )


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(output[1], *inputs[:4])
    ctx.plan = inputs[4]
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad, _):  # type: ignore[no-untyped-def]
    sums, *inputs = ctx.saved_tensors
    if torch.is_grad_enabled() or plain_needed():  # create_graph, or gradients of many outputs at once
        plan = read_plan(DynamicPlan, ctx.plan)
        with exact(grad):
            return *gradients_by_plain_torch(lambda *some: route_plainly(plan, *some)[0], inputs, grad), None
    found = routed_linear_backward_op(grad.contiguous(), sums, *inputs, ctx.plan)
    return *(None if given is None else gradient for given, gradient in zip(inputs, found, strict=True)), None


routed_linear_op.register_autograd(_backward, setup_context=_setup)


def _vmap(info, in_dims, poses, weight, child_weight, bias, plan, *, op):  # type: ignore[no-untyped-def]
    """More images where the weights are the same for all, else one call for each."""
    size, (by_poses, by_weight, by_child, by_bias, _) = info.batch_size, in_dims
    if by_weight is not None or by_bias is not None:
        tensors = (poses, weight, child_weight, bias)
        return call_each(lambda *some: op(*some, plan), in_dims[:4], size, *tensors), (0, 0)
    pose, sums = op(fold(poses, by_poses, size), weight, fold(child_weight, by_child, size), bias, plan)
    return (unfold(pose, 0, size), unfold(sums, 1, size)), (0, 1)


torch.library.register_vmap("torchcaps::routed_linear", functools.partial(_vmap, op=routed_linear_op))
torch.library.register_vmap(
    "torchcaps::routed_forward", functools.partial(_vmap, op=torch.ops.torchcaps.routed_forward.default)
)
