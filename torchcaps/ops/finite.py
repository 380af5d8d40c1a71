"""What becomes of NaN, of infinities and of what overflows: the same on every path.

Something that is not a finite number must show in the result. It never becomes a number that one could take for a
result, in the kernel as little as in torch:

- NaN stays NaN, through every sum, squash and softmax, forward and backward. Zero times NaN is NaN: a coupling or an
  activation of zero hides nothing.
- The logits of a child: −∞ is the logarithm of zero, so that parent gets nothing and the others share the child. If a
  logit is NaN or +∞, or if all are −∞, the child has no shares: NaN for all its parents.
- A length that is not finite, because a number is not or because its square overflows (beyond 1.8e19 in float32,
  1.3e154 in float64), gives no direction: all numbers of the squashed vector are NaN. Only ``none``, which needs no
  length, leaves every number as it is. A length whose square underflows to zero is that of the zero vector.
- A variance, a cost or a longest length that overflows is NaN where it is used: 1/∞ = 0 would pass for a result.
- A mask hides. What a masked child holds (pose, votes, activation, logits), or a parent that takes no part (votes,
  logits), stays invisible, NaN included. Weights belong to no child: where votes are not stored, weights that are not
  finite show in every image.

So finite inputs of ordinary size give what they should, and what overflows on the way shows. Within a few orders of
the largest number the paths may round differently, and gradients there are noise. :func:`torchcaps.check_finite` finds
where something that is not finite came from.
"""

from __future__ import annotations

from torch import Tensor


def finite_or_nan(x: Tensor) -> Tensor:
    """x where it is finite, NaN where it is NaN or infinite; the gradient of x where that is finite, NaN elsewhere."""
    return x + 0 * x  # 0·∞ = NaN
