"""Linear probes: what can be read from features by a linear map, after Alain & Bengio 2016, arXiv 1610.01644."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PENALTY = 1e-6
"""Of the probe's squared weights, per item and for features of variance one: only so that it can always be solved."""
PENALTIES = (PENALTY, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Among which one is chosen where it is known which items belong together: with few images a free probe overfits."""

_FOLDS = 4
_STILL = 1e-9  # a feature whose standard deviation is not larger does not vary, and stays out


def fit_ridge(features: Tensor, target: Tensor, others: Tensor, penalty: float) -> Tensor:
    r"""Predict targets of other items by ridge regression on standardised features.

    ::

        w = argmin ‖y − ȳ − X w‖² + λ N ‖w‖²          ŷ = x w + ȳ

    with columns of X of mean 0 and variance 1. The mean is not penalised.

    Args:
        features: of the items that the map is fitted to.
        target: of the same items.
        others: features of the items to predict.
        penalty: λ.

    Shapes:
        features ``[N, D]``, target ``[N]`` or ``[N, K]``, others ``[M, D]`` → ``[M]`` or ``[M, K]``.
    """
    features, target, others = features.double(), target.double(), others.double()
    centre, deviation = features.mean(dim=0), features.std(dim=0, correction=0)
    scale = torch.where(deviation > _STILL, 1 / deviation.clamp_min(_STILL), 0)
    x, y = (features - centre) * scale, target - target.mean(dim=0)
    ridge = penalty * len(x) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weight: Tensor = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
    return (others - centre) * scale @ weight + target.mean(dim=0)


def linear_probe_r2(
    features: Tensor, target: Tensor, groups: Tensor, train: Tensor, items: Tensor | None = None
) -> float:
    r"""How well a number can be read from features by a linear map, judged on items that it was not fitted to.

    ::

        R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)²          ŷ = w·x + b by least squares, w and b of each group's own

    with sums over the items that are held out and ȳ their group's mean. 1: exactly; 0: no better than the mean; below:
    worse.

    Args:
        features: of each item.
        target: what to read.
        groups: which items share a map, such as those of a class. A group without items on either side is left out.
        train: which items the maps are fitted to.
        items: what each one is a version of, such as the image that was moved. Given, a ridge penalty is chosen
            among :data:`PENALTIES` by four-fold cross-validation on the items of ``train`` alone, with all versions in
            the same fold; not given, it is next to none.

    Shapes:
        features ``[N, D]``, target ``[N]``, groups and items int ``[N]``, train bool ``[N]`` → a number, NaN if
        nothing is held out or the target does not vary.
    """
    features, target = features.double(), target.double()
    penalty = PENALTY if items is None else _choose_penalty(features, target, groups, train, items)
    wrong = spread = 0.0
    for group in set(groups.tolist()):
        fit, judge = (groups == group) & train, (groups == group) & ~train
        if not fit.any() or not judge.any():
            continue
        predicted = fit_ridge(features[fit], target[fit], features[judge], penalty)
        wrong += float((target[judge] - predicted).square().sum())
        spread += float((target[judge] - target[judge].mean()).square().sum())
    return 1 - wrong / spread if spread > 0 else math.nan


def _choose_penalty(features: Tensor, target: Tensor, groups: Tensor, train: Tensor, items: Tensor) -> float:
    """The penalty with the least error on items that were left out, of those that probes are fitted to."""
    errors = dict.fromkeys(PENALTIES, 0.0)
    for group in set(groups.tolist()):
        own = (groups == group) & train
        x, y = features[own], target[own]
        kinds, kind = torch.unique(items[own], return_inverse=True)
        for fold in range(min(_FOLDS, len(kinds)) if len(kinds) > 1 else 0):
            out = kind % _FOLDS == fold
            for penalty in PENALTIES:
                errors[penalty] += float((y[out] - fit_ridge(x[~out], y[~out], x[out], penalty)).square().sum())
    return min(PENALTIES, key=lambda penalty: errors[penalty])
