"""A mixture of Gaussians with full covariance, fitted by EM: the theory behind EM routing, alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.ops.kmeans.clustering import starting_centres


class GaussianMixture(NamedTuple):
    """Result of :func:`gaussian_mixture`.

    Attributes:
        means: ``[K, D]``.
        covariances: ``[K, D, D]``.
        weights: ``[K]``, sum to one.
        responsibilities: ``[N, K]``, each row sums to one.
        log_likelihood: ``[iterations + 1]``, Σ_i ln p(x_i) for the start and after each iteration.
        path: ``[iterations + 1, K, D]``, the means on their way.
    """

    means: Tensor
    covariances: Tensor
    weights: Tensor
    responsibilities: Tensor
    log_likelihood: Tensor
    path: Tensor


def gaussian_mixture(
    points: Tensor,
    means: Tensor | int,
    iterations: int = 20,
    *,
    covariance_floor: float = 1e-6,
    generator: torch.Generator | None = None,
) -> GaussianMixture:
    r"""Fit p(x) = Σ_j π_j N(x; μ_j, Σ_j) by expectation maximisation.

    ::

        E  P(j|x_i) = π_j N(x_i; μ_j, Σ_j) / Σ_k π_k N(x_i; μ_k, Σ_k)
        M  μ_j = Σ_i P(j|x_i) x_i / n_j                          n_j = Σ_i P(j|x_i)
           Σ_j = Σ_i P(j|x_i) (x_i−μ_j)(x_i−μ_j)ᵀ / n_j
           π_j = n_j / N

    The log-likelihood never falls (with ``covariance_floor=0``; the floor keeps a cluster of one point from
    collapsing and perturbs that by as little). It starts from the covariance of all points and equal weights.

    Args:
        points: x.
        means: starting means, or how many to pick at random among the points.
        iterations: how many EM steps.
        covariance_floor: added to the diagonal of every covariance.
        generator: for picking the means; torch's default if None.

    Shapes:
        points ``[N, D]``, means ``[K, D]``.
    """
    require_count("iterations", iterations)
    mu = starting_centres(points, means, generator, name="means")
    count, size = points.shape
    floor = covariance_floor * torch.eye(size, dtype=points.dtype, device=points.device)
    centred = points - points.mean(dim=0)
    sigma = (centred.T @ centred / count + floor).expand(len(mu), size, size)
    log_pi = points.new_full((len(mu),), -math.log(len(mu)))

    path, likelihoods = [mu], []
    for _ in range(iterations):
        joint = _log_joint(points, mu, sigma, log_pi)  # [N, K]
        likelihoods.append(joint.logsumexp(dim=1).sum())
        log_p = joint.log_softmax(dim=1)
        share = log_p.softmax(dim=0)  # P(j|x_i) / n_j, exact also where P underflows
        mu = share.T @ points
        offset = points[:, None] - mu  # [N, K, D]
        sigma = torch.einsum("nk,nkd,nke->kde", share, offset, offset) + floor
        log_pi = log_p.logsumexp(dim=0) - math.log(count)
        path.append(mu)
    joint = _log_joint(points, mu, sigma, log_pi)
    likelihoods.append(joint.logsumexp(dim=1).sum())
    return GaussianMixture(mu, sigma, log_pi.exp(), joint.softmax(dim=1), torch.stack(likelihoods), torch.stack(path))


def _log_joint(points: Tensor, mu: Tensor, sigma: Tensor, log_pi: Tensor) -> Tensor:
    """Each point's ln π_j + ln N(x_i; μ_j, Σ_j): [N, K]."""
    factor, failed = torch.linalg.cholesky_ex(sigma)  # [K, D, D]
    if not torch.compiler.is_compiling() and bool(failed.any()):
        raise InputError(
            "a cluster has collapsed: its covariance is no longer positive definite. "
            "Use fewer clusters, or a larger covariance_floor."
        )
    offset = (points[:, None] - mu).permute(1, 2, 0)  # [K, D, N]
    z: Tensor = torch.linalg.solve_triangular(factor, offset, upper=False)
    log_det: Tensor = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)  # ½ ln det Σ
    constant = 0.5 * points.shape[1] * math.log(2 * math.pi)
    joint: Tensor = log_pi - constant - log_det - 0.5 * z.square().sum(dim=1).T
    return joint
