"""Optimised routing, line by line (Wang & Liu 2018, algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.ops.finite import finite_or_nan
from torchcaps.ops.squash import squash_reference


def optimized_routing_reference(
    votes: Tensor, alphas: Sequence[float], mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Algorithm 2 for one image after the other, one iteration per entry of ``alphas``.

    Shapes:
        votes ``[B, I, J, D]`` → pose ``[B, J, D]``, coupling ``[B, I, J]``.
    """
    batch, children, parents, size = votes.shape
    poses, couplings = [], []
    for image in range(batch):
        u = votes[image]
        present = [i for i in range(children) if mask is None or bool(mask[image, i])]
        b = {i: u.new_zeros(parents) for i in present}
        for alpha in alphas:
            c = {i: b[i].softmax(dim=0) for i in present}
            total = [sum((c[i][j] * u[i, j] for i in present), u.new_zeros(size)) for j in range(parents)]
            s = [squash_reference(total[j], "unit") for j in range(parents)]
            b = {i: torch.stack([u[i, j] @ s[j] / alpha for j in range(parents)]) for i in present}
        norms = [total[j].norm() for j in range(parents)]
        longest = finite_or_nan(torch.stack(norms).max())
        poses.append(torch.stack([s[j] * norms[j] / (1 + longest) for j in range(parents)]))
        couplings.append(torch.stack([c.get(i, u.new_zeros(parents)) for i in range(children)]))
    return torch.stack(poses), torch.stack(couplings)
