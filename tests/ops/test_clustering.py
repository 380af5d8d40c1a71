"""Soft k-means and the Gaussian mixture: against references, scikit-learn and the theory's promises."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture as SklearnMixture

from torchcaps.ops import gaussian_mixture, soft_kmeans
from torchcaps.ops.gmm import gaussian_mixture_reference
from torchcaps.ops.kmeans import soft_kmeans_reference


def blobs(seed=0, count=60, centres=3, size=2):
    generator = torch.Generator().manual_seed(seed)
    middle = 4 * torch.randn(centres, size, generator=generator, dtype=torch.float64)
    points = torch.randn(count, size, generator=generator, dtype=torch.float64)
    return points + middle[torch.arange(count) % centres]


@pytest.mark.parametrize("distance", ["euclid", "inner"])
@pytest.mark.parametrize("sharpness", [[0.5] * 4, [0.1, 0.3, 0.9]], ids=str)
def test_soft_kmeans_equals_the_reference(distance, sharpness):
    points = blobs(count=20)
    out = soft_kmeans(points, points[:3], len(sharpness), sharpness=sharpness, distance=distance)
    centres, losses = soft_kmeans_reference(points, points[:3], sharpness, distance)
    torch.testing.assert_close(out.centres, centres)
    torch.testing.assert_close(out.objective[:-1], torch.tensor(losses, dtype=torch.float64))
    torch.testing.assert_close(out.path[-1], out.centres)


@given(st.integers(0, 1000), st.floats(0.05, 5.0), st.sampled_from(["euclid", "inner"]))
def test_soft_kmeans_never_raises_its_loss(seed, sharpness, distance):
    points = blobs(seed)
    loss = soft_kmeans(points, points[:4], 15, sharpness=sharpness, distance=distance).objective
    assert (loss[1:] - loss[:-1] <= 1e-9 * (1 + loss.abs().max())).all()


def test_soft_kmeans_tends_to_the_kmeans_loss_as_k_grows():
    points, centres = blobs(), blobs(1)[:3]
    hard = torch.cdist(points, centres).square().amin(dim=1).sum()
    gaps = []
    for sharpness in (1.0, 10.0, 100.0, 1000.0):
        soft = soft_kmeans(points, centres, 1, sharpness=sharpness).objective[0]
        assert soft <= hard * (1 + 1e-12)  # a bound from below
        assert hard - soft <= len(points) * np.log(3) / sharpness + 1e-9
        gaps.append(float(hard - soft))
    assert gaps[0] > gaps[1] > gaps[2] - 1e-9
    assert gaps[3] < 1e-6


def test_soft_kmeans_survives_far_centres_and_sharp_choices():
    points = blobs().float()
    far = torch.cat([points[:2], torch.full((1, 2), 1e4)]).requires_grad_()
    out = soft_kmeans(points, far, 10, sharpness=50.0)
    assert out.centres.isfinite().all()
    (gradient,) = torch.autograd.grad(out.centres.sum(), far)
    assert gradient.isfinite().all()


def test_gaussian_mixture_equals_the_reference():
    points = blobs(count=24)
    out = gaussian_mixture(points, points[:3], 5)
    means, covariances, weights, likelihoods = gaussian_mixture_reference(points, points[:3], 5)
    torch.testing.assert_close(out.means, means)
    torch.testing.assert_close(out.covariances, covariances)
    torch.testing.assert_close(out.weights, weights)
    torch.testing.assert_close(out.log_likelihood[:-1], torch.tensor(likelihoods, dtype=torch.float64))


def test_gradients_equal_those_of_the_references():
    points = blobs(count=15).requires_grad_()
    start = points.detach()[:3]
    for fast, slow in (
        (soft_kmeans(points, start, 3, sharpness=0.2).centres, soft_kmeans_reference(points, start, [0.2] * 3)[0]),
        (gaussian_mixture(points, start, 2).covariances, gaussian_mixture_reference(points, start, 2)[1]),
    ):
        weight = torch.randn_like(fast)
        got, want = (torch.autograd.grad((side * weight).sum(), points)[0] for side in (fast, slow))
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-8)


def test_gaussian_mixture_survives_a_mean_far_from_all_points():
    points = blobs()
    out = gaussian_mixture(points, torch.cat([points[:2], torch.full((1, 2), 200.0, dtype=torch.float64)]), 3)
    assert out.means.isfinite().all()
    assert out.log_likelihood.isfinite().all()


def test_gaussian_mixture_agrees_with_scikit_learn():
    points = blobs(count=300)
    out = gaussian_mixture(points, points[:3], 400, covariance_floor=1e-6)
    oracle = SklearnMixture(
        3,
        means_init=out.means.numpy(),
        weights_init=out.weights.numpy(),
        precisions_init=np.linalg.inv(out.covariances.numpy()),
        max_iter=200,
        tol=1e-12,
    ).fit(points.numpy())
    np.testing.assert_allclose(oracle.means_, out.means.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(oracle.covariances_, out.covariances.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(oracle.score(points.numpy()) * 300, float(out.log_likelihood[-1]), rtol=1e-7)


@given(st.integers(0, 1000), st.integers(1, 4))
def test_gaussian_mixture_never_lowers_its_likelihood(seed, clusters):
    points = blobs(seed, count=80)
    likelihood = gaussian_mixture(points, points[:clusters], 12, covariance_floor=0.0).log_likelihood
    assert (likelihood[1:] - likelihood[:-1] >= -1e-7 * likelihood.abs().max()).all()


def test_a_number_of_centres_picks_points_by_seed():
    points = blobs()
    first, second = (soft_kmeans(points, 3, 1, generator=torch.Generator().manual_seed(5)).path[0] for _ in range(2))
    torch.testing.assert_close(first, second)
    assert all((points == centre).all(dim=1).any() for centre in first)


@pytest.mark.parametrize("cluster", [soft_kmeans, gaussian_mixture])
def test_bad_points_are_refused(cluster):
    with pytest.raises(TypeError, match="floating point"):
        cluster(torch.zeros(5, 2, dtype=torch.long), 2)
    with pytest.raises(ValueError, match="number of points"):
        cluster(torch.zeros(5), 2)
    with pytest.raises(ValueError, match="6 (centres|means) need at least as many points, got 5"):
        cluster(torch.randn(5, 2), 6)
    with pytest.raises(ValueError, match=r"\[number of (centres|means), 2\]"):
        cluster(torch.randn(5, 2), torch.randn(3, 4))
    with pytest.raises(ValueError, match="iterations must be at least 1"):
        cluster(torch.randn(5, 2), 2, 0)


def test_collapsed_cluster_is_explained():
    points = torch.zeros(6, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="collapsed"):
        gaussian_mixture(points, 2, 3, covariance_floor=0.0)
