"""What happens between two passes: from the sums s_j to what the children are compared with next, and back.

These act on [B, J, D] only, so they are plain torch. Gradients are written out because they run inside a custom op,
where autograd does not record.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.squash import length, squash


def squash_gradient(s: Tensor, grad: Tensor, kind: str) -> Tensor:
    """Gradient of v = f(n)·s, n = ‖s‖: f·g + (f'/n)(s·g)·s; zero at s = 0."""
    n = length(s, keepdim=True)
    absent = n == 0
    if kind == "none":
        return torch.where(absent, 0, grad)
    n = torch.where(absent, 1, finite_or_nan(n))
    if kind in ("sabour", "half"):
        a = 1.0 if kind == "sabour" else 0.5
        b = a + n * n
        f, slope = n / b, (a - n * n) / b / b  # not b², which overflows long before b does
    elif kind == "exponential":
        f = -torch.expm1(-n) / n
        slope = (torch.exp(-n) - f) / n
    else:  # unit
        f, slope = 1 / n, -1 / n.square()
    radial = (s * grad).sum(dim=-1, keepdim=True) * slope / n
    return torch.where(absent, 0, f * grad + radial * s)


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
