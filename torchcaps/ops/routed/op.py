"""``torchcaps::routed_linear``: the passes put together, forward and backward, as a custom op.

Forward, with V₁ = 0:   s_t = Σ_i w_i softmax_j(û_ij·V_t) û_ij      r passes over the children
                        V_{t+1} = V_t + squash(s_t + bias)           dynamic; without V_t for ``replace``
                        V_{t+1} = s_t / (α_t ‖s_t‖)                  optimised

Backward: G_r is the gradient of s_r. For t = r … 2 a pass over the children gives dV_t from G_t, and dV_t gives
G_{t−1}. One more pass gives the gradients of poses and weights from all V_t and G_t. Only the sums s_t are kept from
the forward pass.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Optional

import torch
from torch import Tensor

from torchcaps.ops.routed import native, passes
from torchcaps.ops.routed.steps import (
    normalised_by_longest,
    normalised_by_longest_gradient,
    squash_gradient,
)
from torchcaps.ops.squash import squash as squash_vectors

# The annotations below become the op's schema; torch reads Optional, not `| None`, in every version it supports.
# ruff: noqa: UP045


def passes_for(poses: Tensor, weight: Tensor) -> ModuleType:
    """The kernel where it serves, else the same in torch."""
    return native if native.serves(poses, weight) else passes


def _exact(poses: Tensor) -> AbstractContextManager[None]:
    """No autocast inside: everything is computed in the type of the poses."""
    device = poses.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


class Steps:
    """What happens between the passes: dynamic without alphas, optimised with one per iteration."""

    def __init__(self, bias: Tensor | None, squash: str, replace: bool, alphas: Sequence[float]) -> None:
        self.bias, self.squash, self.alphas = bias, squash, list(alphas)
        self.accumulate = not replace and not self.alphas

    def shifted(self, s: Tensor) -> Tensor:
        """The sums with the bias."""
        return s if self.bias is None else s + self.bias

    def next(self, agree: Tensor | None, s: Tensor, t: int) -> Tensor:
        """V for the next pass."""
        if self.alphas:
            return squash_vectors(s, "unit") / self.alphas[t]
        v = squash_vectors(self.shifted(s), self.squash)
        return agree + v if self.accumulate and agree is not None else v

    def next_gradient(self, grad: Tensor, s: Tensor, t: int) -> Tensor:
        """Gradient of s (and of the bias) from that of what it adds to V."""
        if self.alphas:
            return squash_gradient(s, grad / self.alphas[t], "unit")
        return squash_gradient(self.shifted(s), grad, self.squash)

    def result(self, s: Tensor) -> Tensor:
        """The parents' poses from the last sums."""
        return normalised_by_longest(s) if self.alphas else squash_vectors(self.shifted(s), self.squash)

    def result_gradient(self, grad: Tensor, s: Tensor) -> Tensor:
        """Gradient of the last sums."""
        if self.alphas:
            return normalised_by_longest_gradient(s, grad)
        return squash_gradient(self.shifted(s), grad, self.squash)

    def agreements(self, sums: Tensor) -> list[Tensor | None]:
        """V of every pass again, from the sums."""
        found: list[Tensor | None] = [None]
        for t in range(len(sums) - 1):
            found.append(self.next(found[-1], sums[t], t))
        return found


def _forward(
    poses: Tensor,
    weight: Tensor,
    child_weight: Optional[Tensor],
    bias: Optional[Tensor],
    iterations: int,
    squash: str,
    replace: bool,
    leaky: bool,
    last_only: bool,
    alphas: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Pose [B, J, D] and the sums of all passes [r, B, J, D]."""
    if native.serves(poses, weight):
        return native.route(poses, weight, child_weight, bias, iterations, squash, replace, leaky, alphas)
    steps = Steps(bias, squash, replace, alphas)
    sums: list[Tensor] = []
    agree = None
    with _exact(poses):
        for t in range(iterations):
            if t > 0:
                agree = steps.next(agree, sums[-1], t - 1)
            sums.append(passes.sum_pass(poses, weight, agree, child_weight, leaky)[0])
        return steps.result(sums[-1]), torch.stack(sums)


def _fake_forward(
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    bias: Tensor | None,
    iterations: int,
    squash: str,
    replace: bool,
    leaky: bool,
    last_only: bool,
    alphas: Sequence[float],
) -> tuple[Tensor, Tensor]:
    shape = (poses.shape[0], weight.shape[-3], weight.shape[-1])
    return poses.new_empty(shape), poses.new_empty((iterations, *shape))


routed_linear_op = torch.library.custom_op("torchcaps::routed_linear", _forward, mutates_args=())
routed_linear_op.register_fake(_fake_forward)

# The same without autograd, for where no gradient is wanted: for a single image the way through Python that
# differentiable ops take would cost as much as the routing itself.
torch.library.define("torchcaps::routed_forward", torch.library.infer_schema(_forward, mutates_args=()))
torch.library.impl("torchcaps::routed_forward", "default")(_forward)
torch.library.register_fake("torchcaps::routed_forward")(_fake_forward)


@torch.library.custom_op("torchcaps::routed_linear_backward", mutates_args=())
def routed_linear_backward_op(
    grad: Tensor,
    sums: Tensor,
    poses: Tensor,
    weight: Tensor,
    child_weight: Optional[Tensor],
    bias: Optional[Tensor],
    squash: str,
    replace: bool,
    leaky: bool,
    last_only: bool,
    alphas: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of poses, weight, child_weight [B, I] and bias [J, D]."""
    if native.small(poses, weight):
        options = (squash, replace, leaky, last_only, alphas)
        return native.small_gradients(grad, sums, poses, weight, child_weight, bias, *options)
    with _exact(poses):
        backend, steps = passes_for(poses, weight), Steps(bias, squash, replace, alphas)
        iterations = len(sums)
        agrees = steps.agreements(sums)
        grads = [torch.empty(0)] * iterations
        grads[-1] = steps.result_gradient(grad, sums[-1])
        dbias = grads[-1].sum(dim=0)
        carry: Tensor | None = None
        first = iterations - 1 if last_only else 0
        for t in range(iterations - 1, first, -1):
            dagree = backend.agreement_pass(poses, weight, agrees[t], grads[t], child_weight, leaky)
            carry = carry + dagree if steps.accumulate and carry is not None else dagree
            grads[t - 1] = steps.next_gradient(carry, sums[t - 1], t - 1)
            dbias = dbias + grads[t - 1].sum(dim=0)
        used = [torch.zeros_like(sums[0]) if agree is None else agree for agree in agrees[first:]]
        dposes, dweight, dchild = backend.parameter_pass(
            poses,
            weight,
            torch.stack(used),
            torch.stack(grads[first:]),
            child_weight,
            leaky,
            agrees[first] is None,
            not last_only,
        )
    return dposes, dweight, dchild, dbias


@routed_linear_backward_op.register_fake
def _(
    grad: Tensor,
    sums: Tensor,
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    bias: Tensor | None,
    squash: str,
    replace: bool,
    leaky: bool,
    last_only: bool,
    alphas: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(poses, memory_format=torch.contiguous_format),
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        poses.new_empty(poses.shape[:2]),
        poses.new_empty(sums.shape[2:]),
    )


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    poses, weight, child_weight, bias, _, squash, replace, leaky, last_only, alphas = inputs
    ctx.save_for_backward(output[1], poses, weight, child_weight, bias)
    ctx.options = (squash, replace, leaky, last_only, alphas)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad, _):  # type: ignore[no-untyped-def]
    sums, poses, weight, child_weight, bias = ctx.saved_tensors
    gradients = routed_linear_backward_op(grad.contiguous(), sums, poses, weight, child_weight, bias, *ctx.options)
    dposes, dweight, dchild, dbias = gradients
    child = None if child_weight is None else dchild
    return dposes, dweight, child, None if bias is None else dbias, None, None, None, None, None, None


routed_linear_op.register_autograd(_backward, setup_context=_setup)
