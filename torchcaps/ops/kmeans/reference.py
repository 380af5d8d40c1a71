"""Soft k-means routing, line by line (Su Jianlin 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.ops.squash import squash_reference


def kmeans_routing_reference(
    votes: Tensor,
    sharpnesses: Sequence[float],
    distance: str = "euclid",
    squash: str = "sabour",
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One image after the other, one iteration per entry of ``sharpnesses``.

    Shapes:
        votes ``[B, I, J, D]`` → pose ``[B, J, D]``, coupling ``[B, I, J]``.
    """
    batch, children, parents, size = votes.shape
    poses, couplings = [], []
    for image in range(batch):
        u = votes[image]
        present = [i for i in range(children) if mask is None or bool(mask[image, i])]
        c = {i: u.new_full((parents,), 1 / parents) for i in present}
        for t, k in enumerate(sharpnesses):
            v = []
            for j in range(parents):
                total = sum((c[i][j] * u[i, j] for i in present), u.new_zeros(size))
                if distance == "euclid" and present:
                    total = total / sum(c[i][j] for i in present)
                v.append(total)
            if t == len(sharpnesses) - 1:
                break
            for i in present:
                if distance == "euclid":
                    d = [((u[i, j] - v[j]) ** 2).sum() for j in range(parents)]
                else:
                    d = [-u[i, j] @ squash_reference(v[j], "unit") for j in range(parents)]
                c[i] = (-k * torch.stack(d)).softmax(dim=0)
        poses.append(torch.stack([squash_reference(v[j], squash) for j in range(parents)]))
        couplings.append(torch.stack([c.get(i, u.new_zeros(parents)) for i in range(children)]))
    return torch.stack(poses), torch.stack(couplings)


def soft_kmeans_reference(
    points: Tensor, centres: Tensor, sharpnesses: Sequence[float], distance: str = "euclid"
) -> tuple[Tensor, list[float]]:
    """The centres after one update per entry of ``sharpnesses``, and L before each update."""
    v = [squash_reference(centre, "unit") if distance == "inner" else centre for centre in centres]
    losses = []
    for k in sharpnesses:
        c, loss = [], 0.0
        for u in points:
            d = torch.stack([((u - vj) ** 2).sum() if distance == "euclid" else -u @ vj for vj in v])
            z = torch.exp(-k * d)
            loss -= float(z.detach().sum().log()) / k
            c.append(z / z.sum())
        losses.append(loss)
        for j in range(len(v)):
            total = sum((c[i][j] * points[i] for i in range(len(points))), torch.zeros_like(points[0]))
            mass = sum(c[i][j] for i in range(len(points)))
            v[j] = total / mass if distance == "euclid" else squash_reference(total, "unit")
    return torch.stack(v), losses
