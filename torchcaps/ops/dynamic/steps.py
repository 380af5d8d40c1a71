"""What happens between two passes: from the sums s_j to what the children are compared with next, and back.

These act on [B, J, D] only, so they are plain torch. Gradients are written out because they run inside a custom op,
where autograd does not record. The kernel has the same in csrc/dynamic/steps.h.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.squash import length, squash, squash_gradient


class Steps:
    """The steps of a plan between its passes.

    Args:
        plan: dynamic or optimised routing.
        bias: added to the sums ``[J, D]`` (dynamic).
    """

    def __init__(self, plan: DynamicPlan, bias: Tensor | None) -> None:
        self.plan, self.bias = plan, bias

    def shifted(self, s: Tensor) -> Tensor:
        """The sums with the bias."""
        return s if self.bias is None else s + self.bias

    def next(self, agree: Tensor | None, s: Tensor, t: int) -> Tensor:
        """V for the next pass."""
        if self.plan.kind == "optimized":
            return squash(s, "unit") / self.plan.alphas[t]
        v = squash(self.shifted(s), self.plan.squash)
        return agree + v if self.plan.accumulates and agree is not None else v

    def next_gradient(self, grad: Tensor, s: Tensor, t: int) -> Tensor:
        """Gradient of s (and of the bias) from that of what it adds to V."""
        if self.plan.kind == "optimized":
            return squash_gradient(s, grad / self.plan.alphas[t], "unit")
        return squash_gradient(self.shifted(s), grad, self.plan.squash)

    def result(self, s: Tensor) -> Tensor:
        """The parents' poses from the last sums."""
        return normalised_by_longest(s) if self.plan.kind == "optimized" else squash(self.shifted(s), self.plan.squash)

    def result_gradient(self, grad: Tensor, s: Tensor) -> Tensor:
        """Gradient of the last sums."""
        if self.plan.kind == "optimized":
            return normalised_by_longest_gradient(s, grad)
        return squash_gradient(self.shifted(s), grad, self.plan.squash)

    def agreements(self, sums: Tensor) -> list[Tensor | None]:
        """V of every pass again, from the sums."""
        found: list[Tensor | None] = [None]
        for t in range(len(sums) - 1):
            found.append(self.next(found[-1], sums[t], t))
        return found


def normalised_by_longest(s: Tensor) -> Tensor:
    """v_j = s_j / (1 + max_k ‖s_k‖), the end of optimised routing."""
    return s / (1 + finite_or_nan(length(s).amax(dim=-1)))[:, None, None]


def normalised_by_longest_gradient(s: Tensor, grad: Tensor) -> Tensor:
    """Its gradient; equally long longest ones share it, as in torch's amax."""
    n = length(s)  # [B, J]
    top = finite_or_nan(n.amax(dim=-1, keepdim=True))
    scale = 1 / (1 + top)  # [B, 1]
    inner = -(s * grad).sum(dim=(1, 2))[:, None] * scale.square()  # [B, 1], gradient of the longest length
    longest = (n == top).to(s.dtype)
    share = inner * longest / longest.sum(dim=-1, keepdim=True)  # [B, J]
    direction = squash(s, "unit")
    return grad * scale[..., None] + share[..., None] * direction
