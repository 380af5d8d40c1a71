"""A fixed coupling, line by line."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops.squash import squash_reference


def frozen_routing_reference(
    votes: Tensor, coupling: Tensor, squash: str = "sabour", mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """v_j = squash(Σ_i c_ij û_ij), one image after the other, with coupling ``[I, J]``.

    Shapes:
        votes ``[B, I, J, D]`` → pose ``[B, J, D]``, coupling ``[B, I, J]``.
    """
    poses, couplings = [], []
    for image, u in enumerate(votes):
        c = coupling.clone()
        for i in range(len(u)):
            if mask is not None and not bool(mask[image, i]):
                c[i] = 0
        v = []
        for j in range(u.shape[1]):
            s = sum((c[i, j] * u[i, j] for i in range(len(u))), u.new_zeros(u.shape[2]))
            v.append(squash_reference(s, squash))
        poses.append(torch.stack(v))
        couplings.append(c)
    return torch.stack(poses), torch.stack(couplings)
