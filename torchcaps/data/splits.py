"""Cutting a part from the training data to watch training by."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.errors import DataError


def cut_validation(labels: Tensor, part: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to train on and indices to validate on: ``part`` of every class, chosen by the seed."""
    if not 0 <= part < 1:
        raise DataError(
            f"data.validation is the part of the training data kept aside, in [0, 1); got {part}.",
            option="data.validation",
        )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(sub_seed(seed, Stream.VALIDATION)))
    aside = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1 if len(labels) else 0):
        members = order[labels[order] == label]
        aside[members[: round(part * len(members))]] = True
    return (~aside).nonzero()[:, 0], aside.nonzero()[:, 0]
