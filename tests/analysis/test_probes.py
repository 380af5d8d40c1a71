"""Probes whose answer is known beforehand, and ridge regression beside scikit-learn's."""

import math

import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from torchcaps.analysis.probes import fit_ridge, linear_probe_r2


@pytest.mark.parametrize("penalty", [1e-6, 0.03, 1.0])
@pytest.mark.parametrize("targets", [(), (3,)])
def test_ridge_regression_is_that_of_scikit_learn(penalty, targets):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator) * torch.tensor([1.0, 10.0, 0.1, 3.0, 0.0]) + 7
    target, others = torch.randn(60, *targets, generator=generator) + 2, torch.randn(20, 5, generator=generator) + 7
    scaler = StandardScaler().fit(features.double().numpy())
    ridge = Ridge(alpha=penalty * 60).fit(scaler.transform(features.double().numpy()), target.double().numpy())
    others[:, 4] = 7  # as where it was fitted: a feature that never varies says nothing
    expected = ridge.predict(scaler.transform(others.double().numpy()))
    assert fit_ridge(features, target, others, penalty).numpy() == pytest.approx(expected, rel=1e-9)


def test_a_linear_feature_is_read_exactly():
    target, groups = torch.randn(200), torch.arange(200) % 4
    slope, offset = torch.randn(4, 6), torch.randn(4, 6)
    features = target[:, None] * slope[groups] + offset[groups]  # of every group in its own way
    train = torch.arange(200) < 100
    assert linear_probe_r2(features, target, groups, train) == pytest.approx(1, abs=1e-6)
    together = linear_probe_r2(features, target, torch.zeros_like(groups), train)
    assert together < 0.999, "one map for all of them cannot do it"


def test_a_feature_that_never_varies_does_no_harm():
    target = torch.randn(50)
    features = torch.stack([target, torch.full((50,), 3.0)], dim=1)
    found = linear_probe_r2(features, target, torch.zeros(50).long(), torch.arange(50) < 25)
    assert found == pytest.approx(1, abs=1e-6)


def test_random_features_say_nothing():
    train = torch.arange(4000) < 2000
    found = linear_probe_r2(torch.randn(4000, 8), torch.randn(4000), torch.zeros(4000).long(), train)
    assert -0.03 < found < 0.005


def test_r2_by_hand():
    """Fitted to (0, 0), (1, 1): ŷ = x. Held out are (0, 1), (2, 1), (4, 4): wrong by 1, 1, 0; the spread is 6."""
    features = torch.tensor([[0.0], [1.0], [0.0], [2.0], [4.0]])
    target = torch.tensor([0.0, 1.0, 1.0, 1.0, 4.0])
    train = torch.tensor([True, True, False, False, False])
    assert linear_probe_r2(features, target, torch.zeros(5).long(), train) == pytest.approx(1 - 2 / 6, abs=1e-4)


def test_groups_on_one_side_only_are_left_out():
    target = torch.randn(40)
    groups = torch.cat([torch.zeros(20), torch.ones(20)]).long()
    train = torch.arange(40) < 10
    assert linear_probe_r2(target[:, None], target, groups, train) == pytest.approx(1, abs=1e-6)
    assert math.isnan(linear_probe_r2(target[:, None], target, groups, torch.ones(40).bool()))


def test_a_penalty_is_chosen_for_few_items_of_many_features():
    """A number plus noise in 50 features, 20 items in 3 versions each: without a penalty the probe fits the noise."""
    generator = torch.Generator().manual_seed(0)
    items = torch.arange(40).repeat(3)
    target = torch.randn(120, generator=generator)
    features = target[:, None] + 3 * torch.randn(120, 50, generator=generator)
    train, groups = items < 20, torch.zeros(120, dtype=torch.long)
    free = linear_probe_r2(features, target, groups, train)
    chosen = linear_probe_r2(features, target, groups, train, items)
    assert chosen > free + 0.1
    shuffled = linear_probe_r2(features, target[torch.randperm(120, generator=generator)], groups, train, items)
    assert -0.35 < shuffled < 0.1
    exact = linear_probe_r2(torch.stack([target, -2 * target], dim=1), target, groups, train, items)
    assert exact == pytest.approx(1, abs=1e-4)
