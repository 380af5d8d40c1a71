"""A mixture of Gaussians, line by line: the formulas with an explicit inverse and determinant."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gaussian_mixture_reference(
    points: Tensor, means: Tensor, iterations: int, covariance_floor: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, list[float]]:
    """Means, covariances, weights after ``iterations`` EM steps, and the log-likelihood before each."""
    count, size = points.shape
    clusters = range(len(means))
    floor = covariance_floor * torch.eye(size, dtype=points.dtype)
    centre = points.mean(dim=0)
    spread = sum((torch.outer(x - centre, x - centre) for x in points), torch.zeros_like(floor)) / count + floor
    mu, sigma, pi = list(means), [spread for _ in clusters], [points.new_full((), 1 / len(means)) for _ in clusters]
    likelihoods = []
    for _ in range(iterations):
        p, likelihood = [], 0.0
        for x in points:
            joint = []
            for j in clusters:
                z = (x - mu[j]) @ sigma[j].inverse() @ (x - mu[j])
                joint.append(pi[j] * torch.exp(-z / 2) / ((2 * math.pi) ** size * sigma[j].det()).sqrt())
            total = sum(joint[1:], joint[0])
            likelihood += math.log(float(total.detach()))
            p.append([each / total for each in joint])
        likelihoods.append(likelihood)
        for j in clusters:
            n = sum((p[i][j] for i in range(count)), points.new_zeros(()))
            mu[j] = sum((p[i][j] * points[i] for i in range(count)), torch.zeros(size, dtype=points.dtype)) / n
            outer = [p[i][j] * torch.outer(points[i] - mu[j], points[i] - mu[j]) for i in range(count)]
            sigma[j] = torch.stack(outer).sum(dim=0) / n + floor
            pi[j] = n / count
    return torch.stack(mu), torch.stack(sigma), torch.stack(pi), likelihoods
