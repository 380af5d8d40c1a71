"""What the fused ops cost, for ``torch.utils.flop_counter.FlopCounterMode``: as much as plain torch would count.

That is the products of the algorithm, each counted once. What a kernel computes again instead of storing it is not
counted, so that the numbers of all backends can be compared.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from torchcaps.ops.conv import op as _conv  # noqa: F401
from torchcaps.ops.dynamic import op as _dynamic  # noqa: F401 - which defines the ops
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.em import op as _em  # noqa: F401
from torchcaps.ops.plan import read_plan

_Shape = tuple[int, ...]
_ops = torch.ops.torchcaps


def _products(poses: _Shape, weight: _Shape) -> tuple[int, int]:
    """Of the votes û, and of one sum over children or one agreement with parents."""
    batch, children, inner = poses
    parents, _, size = weight[-3:]
    one = 2 * batch * children * parents * size
    return one * inner, one


def _routed(poses: _Shape, weight: _Shape, *rest: Any, **_shapes: Any) -> int:
    votes, one = _products(poses, weight)
    plan: DynamicPlan = read_plan(DynamicPlan, rest[-1])
    return votes + (2 * plan.iterations - 1) * one


def _routed_backward(*arguments: Any, **_shapes: Any) -> int:
    _, _, poses, weight, *_, text = arguments
    (votes, one), plan = _products(poses, weight), read_plan(DynamicPlan, text)
    sums = 1 if plan.gradient == "last" else 4 * plan.iterations - 3  # the first couplings are even, whatever the votes
    return 2 * votes + (sums + int(plan.amend)) * one  # but they follow the activations where those amend them


def _moments(poses: _Shape, weight: _Shape, *rest: Any, **_shapes: Any) -> int:
    """Of the votes V, and of their mean."""
    batch, _, types, rows, inner = poses
    parents, columns = weight[2], weight[4]
    size, kernel, stride, padding = rest[6:10]
    out = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(size, kernel, stride, padding, strict=True)]
    one: int = 2 * batch * math.prod(out) * math.prod(kernel) * types * parents * rows * columns
    return one * (inner + 1)


def _moments_backward(*arguments: Any, **_shapes: Any) -> int:
    return 2 * _moments(*arguments[7:])


def _conv2d(
    images: _Shape, weight: _Shape, _bias: Any, stride: _Shape, padding: _Shape, *_: Any, **_shapes: Any
) -> int:
    """As torch counts its own convolution, however it is computed."""
    out = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(images[2:], weight[2:], stride, padding, strict=True)]
    return 2 * images[0] * math.prod(weight) * math.prod(out)


def _conv2d_backward(
    _grad: _Shape, images: _Shape, weight: _Shape, stride: _Shape, padding: _Shape, wanted: Any, **_shapes: Any
) -> int:
    return sum(map(bool, wanted[:2])) * _conv2d(images, weight, None, stride, padding)


for _op, _cost in (
    (_ops.conv2d, _conv2d),
    (_ops.conv2d_forward, _conv2d),
    (_ops.conv2d_backward, _conv2d_backward),
    (_ops.routed_linear, _routed),
    (_ops.routed_forward, _routed),
    (_ops.routed_linear_backward, _routed_backward),
    (_ops.em_moments, _moments),
    (_ops.em_moments_backward, _moments_backward),
):
    register_flop_formula(_op)(_cost)
