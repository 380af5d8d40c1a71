"""What every model returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torchcaps.capsules import Capsules, name_for_export


class ModelOutput(NamedTuple):
    """Scores, and for capsule networks what they rest on.

    Attributes:
        scores: ``[B, classes]``; the largest is the prediction. Lengths of the class capsules, or logits of a CNN.
        capsules: the class capsules, None for a CNN.
        reconstruction: ``[B, *image]``, or ``[B, M, *image]`` for M objects; None without a decoder.
    """

    scores: Tensor
    capsules: Capsules | None = None
    reconstruction: Tensor | None = None


name_for_export(ModelOutput)
