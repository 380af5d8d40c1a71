"""Soft k-means on points: the theory that routing grew from, alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.checks import require_choice, require_count, require_finite, require_float
from torchcaps.errors import InputError
from torchcaps.ops.kmeans.routing import DISTANCES
from torchcaps.ops.schedules import Schedule, resolve_schedule
from torchcaps.ops.squash import squash


class SoftKMeans(NamedTuple):
    """Result of :func:`soft_kmeans`.

    Attributes:
        centres: ``[K, D]``.
        assignment: ``[N, K]``, each row sums to one.
        objective: ``[iterations + 1]``, L for the starting centres and after each iteration.
        path: ``[iterations + 1, K, D]``, the centres on their way.
    """

    centres: Tensor
    assignment: Tensor
    objective: Tensor
    path: Tensor


def soft_kmeans(
    points: Tensor,
    centres: Tensor | int,
    iterations: int = 20,
    *,
    distance: str = "euclid",
    sharpness: Schedule = 1.0,
    generator: torch.Generator | None = None,
) -> SoftKMeans:
    r"""Soft k-means: descend a smooth bound of the k-means loss.

    ::

        L = −(1/K) Σ_i ln Σ_j e^(−K d(u_i, v_j))
        c_ij = softmax_j(−K d(u_i, v_j)),   v_j = Σ_i c_ij u_i / Σ_i c_ij

    As K grows, L tends to Σ_i min_j d(u_i, v_j). For constant K, L never rises. d is the squared Euclidean
    distance, or −⟨u, v⟩ with centres kept at unit length.
    Su Jianlin 2018, "From k-means to capsules", kexue.fm/archives/5112.

    Args:
        points: u.
        centres: starting centres, or how many to pick at random among the points.
        iterations: how many updates.
        distance: ``euclid`` (squared) or ``inner``.
        sharpness: K; a constant, one value per iteration, or a function of the iteration.
        generator: for picking the centres; torch's default if None.

    Shapes:
        points ``[N, D]``, centres ``[K, D]``.
    """
    require_choice("distance", distance, DISTANCES)
    sharpnesses = resolve_schedule("sharpness", sharpness, iterations)
    v = starting_centres(points, centres, generator)
    if distance == "inner":
        v = squash(v, "unit")
    path, losses = [v], []
    for k in sharpnesses:
        logits = -k * _distances(points, v, distance)  # [N, K]
        losses.append(-logits.logsumexp(dim=1).sum() / k)
        log_c = logits.log_softmax(dim=1)
        if distance == "inner":
            v = squash(log_c.exp().T @ points, "unit")  # [K, D]
        else:
            v = log_c.softmax(dim=0).T @ points  # Σ c u / Σ c, exact also where c underflows
        path.append(v)
    logits = -sharpnesses[-1] * _distances(points, v, distance)
    losses.append(-logits.logsumexp(dim=1).sum() / sharpnesses[-1])
    return SoftKMeans(v, logits.softmax(dim=1), torch.stack(losses), torch.stack(path))


def starting_centres(
    points: Tensor, centres: Tensor | int, generator: torch.Generator | None, name: str = "centres"
) -> Tensor:
    """The given centres, checked, or that many different points picked at random."""
    require_float("points", points)
    if points.dim() != 2 or points.numel() == 0:
        raise InputError(f"points must have shape [number of points, dimensions], got {tuple(points.shape)}.")
    require_finite("points", points)
    if isinstance(centres, int):
        require_count(name, centres)
        if centres > len(points):
            raise InputError(f"{centres} {name} need at least as many points, got {len(points)}.")
        return points[torch.randperm(len(points), generator=generator)[:centres].to(points.device)]
    require_float(name, centres)
    if centres.dim() != 2 or centres.shape[1] != points.shape[1]:
        raise InputError(
            f"{name} must have shape [number of {name}, {points.shape[1]}] for points of shape "
            f"{tuple(points.shape)}, got {tuple(centres.shape)}."
        )
    return centres.to(points)


def _distances(points: Tensor, centres: Tensor, distance: str) -> Tensor:
    if distance == "inner":
        return -points @ centres.T
    return (points[:, None] - centres).square().sum(dim=-1)
