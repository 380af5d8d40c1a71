"""Capsule layer and routing in one, without ever storing the votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchcaps.checks import require_finite, require_float, require_mask, require_shape
from torchcaps.errors import InputError
from torchcaps.ops.backends import PLAIN, Backend, list_backends, wanted_backend
from torchcaps.ops.dynamic.backend import Inputs
from torchcaps.ops.dynamic.op import routed_linear_op, serving
from torchcaps.ops.dynamic.plain import route_plainly
from torchcaps.ops.dynamic.plan import DynamicPlan, RoutedOptions
from torchcaps.ops.plan import make_plan, takes_options
from torchcaps.ops.precision import cast, compute_type, exact, result_type
from torchcaps.ops.squash import length, norm
from torchcaps.ops.squash import squash as squash_vectors
from torchcaps.ops.transforms import plain_needed

if TYPE_CHECKING:
    from typing_extensions import Unpack


class RoutedOutput(NamedTuple):
    """Pose ``[B, J, D]``, activation ``[B, J]``, and the coupling ``[B, I, J]`` if it was asked for."""

    pose: Tensor
    activation: Tensor
    coupling: Tensor | None = None


@takes_options(DynamicPlan, "kind")
def routed_linear(
    poses: Tensor,
    weight: Tensor,
    routing: str = "dynamic",
    iterations: int = 3,
    *,
    activation: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    parents: Tensor | None = None,
    coupling: bool = False,
    **options: Unpack[RoutedOptions],
) -> RoutedOutput:
    r"""Votes û_ij = u_i W_ij and their routing, as :func:`dynamic_routing` or :func:`optimized_routing` would have it.

    The result is that of the two steps; the votes ``[B, I, J, D]``, the logits and the couplings are never stored (for
    fewer than eight images the votes are, being smaller than the weights; for many images of a small problem those of a
    few images at a time, in the cache). One pass over the children per iteration computes vote, logit, softmax and sum;
    ``ops/dynamic/README.md`` derives it. A kernel serves on the CPU for float32 and float64, the same passes in torch
    serve elsewhere; :func:`routed_path` says which and why. Half precision is computed in float32; the result has the
    type that poses and weight have together. Where one of torch's transforms, such as ``torch.func.jvp`` or a second
    derivative, asks for more than the kernel has, plain torch serves and stores votes
    (:mod:`torchcaps.ops.transforms`).

    Args:
        poses: the children's poses u.
        weight: W, one matrix per child and parent, or shared by all children.
        routing: ``dynamic`` or ``optimized``.
        iterations: r.
        activation: the children's activation; needed by ``amend`` only.
        mask: False marks children that are padding.
        bias: added to s_j (dynamic).
        parents: indices of those that take part, for partial sampling; the others' couplings are 0 (dynamic).
        coupling: also return the coupling, which costs another pass; it carries no gradient.
        options: ``squash``, ``update``, ``gradient``, ``leaky`` and ``amend`` of dynamic, ``alpha`` of optimised
            routing; see :class:`~torchcaps.ops.dynamic.plan.DynamicPlan`.

    Shapes:
        poses ``[B, I, d]``, weight ``[I, J, d, D]`` or ``[J, d, D]``, activation and mask ``[B, I]``, bias ``[J, D]``,
        parents int64 ``[K]`` →
        pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    plan = make_plan(DynamicPlan, kind=routing, iterations=iterations, **options)
    return route_linear(
        poses, weight, plan, activation=activation, mask=mask, bias=bias, parents=parents, coupling=coupling
    )


def route_linear(
    poses: Tensor,
    weight: Tensor,
    plan: DynamicPlan,
    *,
    activation: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    parents: Tensor | None = None,
    coupling: bool = False,
) -> RoutedOutput:
    """:func:`routed_linear` by a plan."""
    _require_inputs(poses, weight, bias)
    if plan.kind == "optimized" and (bias is not None or parents is not None):
        raise InputError("a bias, and parents that are sampled, are for dynamic routing, not for optimized.")
    if parents is not None:
        parents = parents.to(weight.device)
        among, rest = weight.index_select(-3, parents), None if bias is None else bias.index_select(0, parents)
        some = route_linear(poses, among, plan, activation=activation, mask=mask, bias=rest, coupling=coupling)
        return _among_all(some, parents, weight.shape[-3], bias, plan.squash)

    given = result_type(poses, weight)
    child_weight = None
    if mask is not None:
        require_mask("mask", mask, tuple(poses.shape[:2]), meaning="[batch, children]")
        poses = poses.masked_fill(~mask[..., None], 0)
        child_weight = mask.to(poses.dtype)
    if plan.amend:
        if activation is None:
            raise InputError("amend=True scales each coupling by the child's activation: pass activation [B, I].")
        require_shape("activation", activation, tuple(poses.shape[:2]), meaning="[batch, children]")
        child_weight = activation if mask is None else activation.masked_fill(~mask, 0)

    inputs = _ready(poses, weight, child_weight, bias)
    pose, table = _route(plan, inputs, coupling)
    if table is not None:
        table = table.detach() if mask is None else table.detach().masked_fill(~mask[..., None], 0)  # not 0·NaN
    pose = cast(pose, given)
    return RoutedOutput(pose, norm(pose), table)


def _route(plan: DynamicPlan, inputs: Inputs, coupling: bool) -> tuple[Tensor, Tensor | None]:
    """Pose and, if asked for, coupling: by the op, or by plain torch where that has no rule."""
    if plain_needed(foldable=not coupling) or (coupling and torch.compiler.is_compiling()):
        with exact(inputs.poses):
            pose, _, table = route_plainly(plan, *inputs)
        return pose, table
    wanted = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs)
    # The op without autograd never stands in a graph, where somebody may want a gradient later.
    op = routed_linear_op if wanted or torch.compiler.is_compiling() else torch.ops.torchcaps.routed_forward.default
    pose, sums = op(*inputs, plan.text)
    if not coupling:
        return pose, None
    with torch.no_grad():
        detached = Inputs(*(None if tensor is None else tensor.detach() for tensor in inputs))  # type: ignore[arg-type]
        return pose, serving(plan, detached).coupling(plan, detached, sums)


def _ready(poses: Tensor, weight: Tensor, child_weight: Tensor | None, bias: Tensor | None) -> Inputs:
    """The tensors as backends read them: of one type, half precision in float32, and contiguous."""
    dtype = compute_type(poses, weight)
    child_weight = None if child_weight is None else _contiguous(child_weight, dtype)
    return Inputs(_contiguous(poses, dtype), _contiguous(weight, dtype), child_weight, cast(bias, dtype))


def _contiguous(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Without a call where nothing is to be done, which counts for single images."""
    tensor = cast(tensor, dtype)
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _among_all(some: RoutedOutput, parents: Tensor, count: int, bias: Tensor | None, squash: str) -> RoutedOutput:
    """The parents that took part at their places; the others receive nothing but their bias."""
    pose, _, coupling = some
    batch, _, size = pose.shape
    alone = pose.new_zeros(batch, count, size)
    if bias is not None:
        alone = alone + squash_vectors(bias, squash).to(pose.dtype)
    pose = alone.index_copy(1, parents, pose)
    if coupling is not None:
        coupling = coupling.new_zeros(*coupling.shape[:2], count).index_copy(2, parents, coupling)
    return RoutedOutput(pose, length(pose), coupling)


def routed_path() -> str:
    """Which backend serves :func:`routed_linear` on the CPU, and why."""
    if wanted_backend() == PLAIN:
        return "plain torch, votes stored (it was asked for)"
    like = torch.empty(1, 1, 1)
    inputs = Inputs(like, like[None], None, None)
    chosen = serving(DynamicPlan(), inputs)
    kernel: Backend = next(one.backend for one in list_backends() if one.backend.name == "cpu")
    why = f" ({kernel.unavailable() or 'it was asked for'})" if chosen.name == "torch" else ""
    return f"{chosen.describe()}{why}"


def _require_inputs(poses: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    require_float("poses", poses)
    require_float("weight", weight)
    if poses.dim() != 3 or weight.dim() not in (3, 4):
        raise InputError(
            "routed_linear expects poses [batch, children, d] and weight [children, parents, d, D] or [parents, d, D]; "
            f"got {tuple(poses.shape)} and {tuple(weight.shape)}."
        )
    children, inner = poses.shape[1:]
    if weight.shape[-2] != inner or (weight.dim() == 4 and weight.shape[0] != children):
        raise InputError(
            f"poses of shape {tuple(poses.shape)} do not fit weight of shape {tuple(weight.shape)}: the children's "
            f"number and size must be those of weight [children, parents, d, D] or [parents, d, D]."
        )
    if poses.device != weight.device:
        raise InputError(f"poses are on {poses.device}, weight is on {weight.device}; move one of them.")
    if 0 in weight.shape[-3:]:
        raise InputError(f"weight needs at least one parent and one pose dimension, got {tuple(weight.shape)}.")
    if bias is not None:
        require_shape("bias", bias, (weight.shape[-3], weight.shape[-1]), meaning="[parents, pose size]")
    require_finite("poses", poses)
    require_finite("weight", weight)
