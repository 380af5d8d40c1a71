"""Capsule layer and routing in one, without ever storing the votes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.checks import require_choice, require_count, require_finite, require_float, require_mask, require_shape
from torchcaps.ops.dynamic.routing import GRADIENTS, UPDATES
from torchcaps.ops.routed import native
from torchcaps.ops.routed.op import Steps, passes_for, routed_linear_op
from torchcaps.ops.schedules import Schedule, resolve_schedule
from torchcaps.ops.squash import SQUASH_KINDS, length
from torchcaps.ops.squash import squash as squash_vectors

ROUTINGS = ("dynamic", "optimized")


class RoutedOutput(NamedTuple):
    """Pose ``[B, J, D]``, activation ``[B, J]``, and the coupling ``[B, I, J]`` if it was asked for."""

    pose: Tensor
    activation: Tensor
    coupling: Tensor | None = None


def routed_linear(
    poses: Tensor,
    weight: Tensor,
    routing: str = "dynamic",
    iterations: int = 3,
    *,
    activation: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    squash: str = "sabour",
    update: str = "accumulate",
    gradient: str = "all",
    leaky: bool = False,
    amend: bool = False,
    alpha: Schedule = 1.0,
    parents: Tensor | None = None,
    coupling: bool = False,
) -> RoutedOutput:
    r"""Votes û_ij = u_i W_ij and their routing, as :func:`dynamic_routing` or :func:`optimized_routing` would have it.

    The result is that of the two steps; the votes ``[B, I, J, D]``, the logits and the couplings are never stored (for
    fewer than eight images the votes are, being smaller than the weights; for many images of a small problem those of a
    few images at a time, in the cache). One pass over the children per iteration computes vote, logit, softmax and sum;
    ``ops/dynamic/README.md`` derives it. A kernel serves on the CPU for float32 and float64, the same passes in torch
    serve elsewhere; :func:`routed_path` says which and why. Half precision is computed in float32.

    Args:
        poses: the children's poses u.
        weight: W, one matrix per child and parent, or shared by all children.
        routing: ``dynamic`` or ``optimized``.
        iterations: r.
        activation: the children's activation; needed by ``amend`` only.
        mask: False marks children that are padding.
        bias: added to s_j (dynamic).
        squash: a kind of :func:`squash` (dynamic).
        update: ``accumulate`` or ``replace`` (dynamic).
        gradient: through ``all`` iterations or the ``last`` (dynamic).
        leaky: a child may go nowhere (dynamic).
        amend: a child counts by its activation (dynamic).
        alpha: weight of the entropy; a constant or a schedule (optimised).
        parents: indices of those that take part, for partial sampling; the others' couplings are 0 (dynamic).
        coupling: also return the coupling, which costs another pass; it carries no gradient.

    Shapes:
        poses ``[B, I, d]``, weight ``[I, J, d, D]`` or ``[J, d, D]``, activation and mask ``[B, I]``, bias ``[J, D]``,
        parents int64 ``[K]`` →
        pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    require_choice("fused routing", routing, ROUTINGS)
    require_count("iterations", iterations)
    require_choice("squash kind", squash, SQUASH_KINDS)
    require_choice("update", update, UPDATES)
    require_choice("gradient", gradient, GRADIENTS)
    _require_inputs(poses, weight, bias)
    alphas = resolve_schedule("alpha", alpha, iterations) if routing == "optimized" else []
    if alphas and (bias is not None or leaky or amend or gradient != "all" or update != "accumulate"):
        raise ValueError("bias, leaky, amend, gradient and update are options of dynamic routing, not of optimized.")
    if parents is not None:
        if alphas:
            raise ValueError("parents are sampled in dynamic routing, not in optimized.")
        parents = parents.to(weight.device)
        among, rest = weight.index_select(-3, parents), None if bias is None else bias.index_select(0, parents)
        some = routed_linear(
            poses, among, routing, iterations, activation=activation, mask=mask, bias=rest, squash=squash,
            update=update, gradient=gradient, leaky=leaky, amend=amend, coupling=coupling,
        )  # fmt: skip
        return _among_all(some, parents, weight.shape[-3], bias, squash)

    given = poses.dtype
    child_weight = None
    if mask is not None:
        require_mask("mask", mask, tuple(poses.shape[:2]), meaning="[batch, children]")
        poses = poses.masked_fill(~mask[..., None], 0)
        child_weight = mask.to(poses.dtype)
    if amend:
        if activation is None:
            raise ValueError("amend=True scales each coupling by the child's activation: pass activation [B, I].")
        require_shape("activation", activation, tuple(poses.shape[:2]), meaning="[batch, children]")
        child_weight = activation if mask is None else activation.masked_fill(~mask, 0)

    compute = poses.dtype if poses.dtype == weight.dtype else torch.promote_types(poses.dtype, weight.dtype)
    compute = torch.float32 if compute in (torch.float16, torch.bfloat16) else compute
    poses, weight = _ready(poses, compute), _ready(weight, compute)
    child_weight = None if child_weight is None else _ready(child_weight, compute)
    bias = None if bias is None else bias.to(compute)
    replace = update == "replace"
    inputs = (poses, weight, child_weight, bias)
    wanted = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs)
    op = routed_linear_op if wanted else torch.ops.torchcaps.routed_forward.default
    pose, sums = op(poses, weight, child_weight, bias, iterations, squash, replace, leaky, gradient == "last", alphas)
    table = None
    if coupling:
        table = _coupling(poses, weight, child_weight, sums, Steps(bias, squash, replace, alphas), leaky)
        table = table if mask is None else table.masked_fill(~mask[..., None], 0)  # not 0·NaN
    if given != compute:
        pose = pose.to(given)
    return RoutedOutput(pose, torch.linalg.vector_norm(pose, dim=-1), table)


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


def _ready(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor as the kernel reads it; without a call where nothing is to be done, which counts for single images."""
    if tensor.dtype == dtype and tensor.is_contiguous():
        return tensor
    return tensor.to(dtype).contiguous()


def routed_path() -> str:
    """Which path serves :func:`routed_linear` on the CPU, and why."""
    library, note = native.load()
    if library is None:
        return f"torch, in chunks of children ({note})"
    return f"kernel, {note}"


def _coupling(
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    sums: Tensor,
    steps: Steps,
    leaky: bool,
) -> Tensor:
    with torch.no_grad():
        agree = steps.agreements(sums)[-1]
        detached = (poses.detach(), weight.detach(), agree, None if child_weight is None else child_weight.detach())
        table: Tensor = passes_for(poses, weight).sum_pass(*detached, leaky, coupling=True)[1]
    return table


def _require_inputs(poses: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    require_float("poses", poses)
    require_float("weight", weight)
    if poses.dim() != 3 or weight.dim() not in (3, 4):
        raise ValueError(
            "routed_linear expects poses [batch, children, d] and weight [children, parents, d, D] or [parents, d, D]; "
            f"got {tuple(poses.shape)} and {tuple(weight.shape)}."
        )
    children, inner = poses.shape[1:]
    if weight.shape[-2] != inner or (weight.dim() == 4 and weight.shape[0] != children):
        raise ValueError(
            f"poses of shape {tuple(poses.shape)} do not fit weight of shape {tuple(weight.shape)}: the children's "
            f"number and size must be those of weight [children, parents, d, D] or [parents, d, D]."
        )
    if poses.device != weight.device:
        raise ValueError(f"poses are on {poses.device}, weight is on {weight.device}; move one of them.")
    if 0 in weight.shape[-3:]:
        raise ValueError(f"weight needs at least one parent and one pose dimension, got {tuple(weight.shape)}.")
    if bias is not None:
        require_shape("bias", bias, (weight.shape[-3], weight.shape[-1]), meaning="[parents, pose size]")
    require_finite("poses", poses)
    require_finite("weight", weight)
