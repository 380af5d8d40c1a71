"""EM routing, line by line, in plain probabilities: right for benign numbers in float64, no more."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def em_routing_reference(
    votes: Tensor,
    activation: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    lambdas: Sequence[float],
    *,
    mask: Tensor | None = None,
    variance_floor: float = 1e-4,
    mass: float | None = 100.0,
    compete_within: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Procedure 1 of Hinton et al. 2018 for one image after the other, one iteration per entry of ``lambdas``.

    Shapes:
        votes ``[B, I, J, D]``, activation ``[B, I]``, betas ``[J]`` →
        pose ``[B, J, D]``, activation ``[B, J]``, coupling ``[B, I, J]``.
    """
    batch, children, parents, size = votes.shape
    group = compete_within or parents
    poses, activations, couplings = [], [], []
    for image in range(batch):
        v, a = votes[image], activation[image]
        present = [i for i in range(children) if mask is None or bool(mask[image, i])]
        scale = 1.0 if mass is None else mass * parents / max(len(present), 1)
        r = {(i, j): v.new_full((), 1 / group) for i in present for j in range(parents)}
        for t, lam in enumerate(lambdas):
            mu, var, a_out = [], [], []
            for j in range(parents):
                weights = {i: r[i, j] * a[i] for i in present}
                m = sum(weights.values(), v.new_zeros(()))
                mu_j = sum((weights[i] * v[i, j] for i in present), v.new_zeros(size)) / m
                var_j = sum((weights[i] * (v[i, j] - mu_j) ** 2 for i in present), v.new_zeros(size)) / m
                var_j = var_j.clamp_min(variance_floor)
                cost = sum((beta_u[j] + var_j[h].sqrt().log()) * m * scale for h in range(size))
                mu.append(mu_j)
                var.append(var_j)
                a_out.append(torch.sigmoid(lam * (beta_a[j] - cost)))
            if t == len(lambdas) - 1:
                break
            for i in present:
                p = []
                for j in range(parents):
                    density = v.new_ones(())
                    for h in range(size):
                        z = (v[i, j, h] - mu[j][h]) ** 2 / (2 * var[j][h])
                        density = density * torch.exp(-z) / (2 * math.pi * var[j][h]).sqrt()
                    p.append(a_out[j] * density)
                for j in range(parents):
                    first = j // group * group
                    r[i, j] = p[j] / sum(p[first : first + group])
        zero = v.new_zeros(())
        poses.append(torch.stack(mu))
        activations.append(torch.stack(a_out))
        couplings.append(
            torch.stack([torch.stack([r.get((i, j), zero) for j in range(parents)]) for i in range(children)])
        )
    return torch.stack(poses), torch.stack(activations), torch.stack(couplings)
