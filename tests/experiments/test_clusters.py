"""Four ways to cluster the same points: what they find where the answer is known, and that their objectives fall."""

import math

import pytest
import torch
from PIL import Image

from torchcaps.experiments.clusters import (
    ALPHA,
    NOISE,
    SHARPNESS,
    cluster_all,
    make_lengths,
    make_points,
    purity,
    small_start,
    write_animation,
)
from torchcaps.ops import dynamic_routing, optimized_routing, soft_kmeans

NAMES = ["soft k-means", "Gaussian mixture", "dynamic routing", "optimised routing"]


def blobs(centres, spread=0.1, count=40):
    middle = torch.tensor(centres, dtype=torch.float64).repeat_interleave(count, dim=0)
    points = middle + spread * torch.randn(len(middle), 2, dtype=torch.float64)
    return points, torch.arange(len(centres)).repeat_interleave(count)


@pytest.mark.parametrize("seed", range(5))
def test_points_far_apart_are_found_by_all(seed):
    centres = [[3.0, 0.0], [-2.0, 2.0], [-1.0, -3.0]]
    points, labels = blobs(centres)
    results = cluster_all(points, labels, 3, 15, seed)
    assert [result.name for result in results] == NAMES
    assert [result.purity for result in results] == [1.0] * 4
    for result in results[:2]:
        distance = torch.cdist(result.centres[-1], torch.tensor(centres, dtype=torch.float64))
        assert float(distance.amin(dim=0).max()) < 0.1, "each has a centre of its own"
    for result in results[2:]:
        found = result.centres[-1] / result.centres[-1].norm(dim=1, keepdim=True)
        true = torch.nn.functional.normalize(torch.tensor(centres, dtype=torch.float64), dim=1)
        assert float((found @ true.T).amax(dim=0).min()) > 0.999, "each direction has a parent of its own"


def test_routing_tells_directions_apart_and_not_lengths():
    """Two clusters in the same direction: distances separate them, inner products with unit parents cannot."""
    points, labels = make_lengths(0)
    found = {result.name: result.purity for result in cluster_all(points, labels, 3, 20, 0)}
    assert found["soft k-means"] == 1.0
    assert max(found["dynamic routing"], found["optimised routing"]) < 0.9


@pytest.mark.parametrize("seed", range(5))
def test_objectives_do_not_rise(seed):
    points, labels = make_points(seed)
    for result in cluster_all(points, labels, 3, 20, seed):
        counted = int((result.objective.diff() > 1e-8 * result.objective.abs().max()).sum())
        assert result.rises == counted
        if result.name != "dynamic routing":  # the one for which it is not proven
            assert result.rises == 0, result.name
        assert float(result.objective[-1]) < float(result.objective[0])


def test_shapes_and_shares():
    points, labels = make_points(1, clusters=4, per_cluster=12)
    assert points.shape == (56, 2)
    start = small_start(points, 4, seed=7)
    for result in cluster_all(points, labels, 4, 6, seed=7):
        assert result.centres.shape == (7, 4, 2)
        assert result.share.shape == (7, 56, 4)
        assert result.objective.shape == (7,)
        assert torch.equal(result.centres[0], start)
        assert torch.equal(result.share[0], torch.full((56, 4), 0.25, dtype=torch.float64))
        torch.testing.assert_close(result.share.sum(dim=2), torch.ones(7, 56, dtype=torch.float64))
        assert bool(torch.isfinite(result.objective).all())


def test_shares_go_with_the_centres_of_the_same_iteration():
    points, labels = make_points(0)
    kmeans, mixture, dynamic, optimised = cluster_all(points, labels, 3, 5, 0)
    for at in range(1, 6):
        near = torch.cdist(points, kmeans.centres[at]).square()
        torch.testing.assert_close(kmeans.share[at], (-SHARPNESS * near).softmax(dim=1))
        torch.testing.assert_close(optimised.share[at], (points @ optimised.centres[at].T / ALPHA).softmax(dim=1))
        summed = points @ dynamic.centres[: at + 1].sum(dim=0).T
        torch.testing.assert_close(dynamic.share[at], summed.softmax(dim=1))
    for at in range(1, 5):
        share = mixture.share[at]
        torch.testing.assert_close(mixture.centres[at + 1], share.T @ points / share.sum(dim=0)[:, None])


def test_optimised_routing_is_the_library_s():
    """The settings of dynamic routing that stand in for ``optimized_routing``, because they can start anywhere."""
    votes = torch.randn(2, 30, 3, 2, dtype=torch.float64)
    stand_in = dynamic_routing(votes / ALPHA, 6, update="replace", squash="unit", trace=True)
    own = optimized_routing(votes, 6, alpha=ALPHA, trace=True)
    torch.testing.assert_close(stand_in.trace.coupling, own.trace.coupling)
    torch.testing.assert_close(ALPHA * stand_in.trace.objective, own.trace.objective)
    torch.testing.assert_close(stand_in.pose, torch.nn.functional.normalize(own.pose, dim=-1))


def test_optimised_routing_is_soft_k_means_with_inner_products():
    points, _ = make_points(0)
    start = torch.nn.functional.normalize(small_start(points, 3, 0), dim=1)
    votes = (points / ALPHA)[None, :, None].expand(1, -1, 3, -1)
    routed = dynamic_routing(votes, 8, logits=points @ start.T / ALPHA, update="replace", squash="unit", trace=True)
    clustered = soft_kmeans(points, start, 8, distance="inner", sharpness=1 / ALPHA)
    torch.testing.assert_close(routed.trace.pose[:, 0], clustered.path[1:])


def test_points_have_their_labels():
    points, labels = make_points(3, clusters=3, per_cluster=60)
    assert [int((labels == kind).sum()) for kind in (0, 1, 2, NOISE)] == [60, 60, 60, 30]
    middles = torch.stack([points[labels == kind].mean(dim=0) for kind in range(3)])
    assert float(torch.cdist(points[labels == 0], middles).argmin(dim=1).double().mean()) < 0.05
    assert float(points[labels == NOISE].norm(dim=1).max()) <= 2.2
    angles = torch.atan2(middles[:, 1], middles[:, 0]).sort().values
    gaps = torch.cat([angles.diff(), angles[:1] + 2 * math.pi - angles[-1:]])
    assert float(gaps.min()) > 1.2, "directions differ"


def test_the_same_seed_gives_the_same():
    first, again, other = (make_points(seed) for seed in (0, 0, 1))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    torch.rand(3)
    one, two = (cluster_all(*first, 3, 4, seed=2) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        assert torch.equal(left.centres, right.centres)
        assert torch.equal(left.objective, right.objective)
        assert left.purity == right.purity


def test_purity():
    labels = torch.tensor([0, 0, 1, 1, 2, 2, NOISE])
    assert purity(torch.eye(3)[[2, 2, 0, 0, 1, 1, 1]], labels) == 1.0, "names do not count"
    assert purity(torch.eye(3)[[0, 0, 0, 0, 0, 0, 0]], labels) == pytest.approx(1 / 3), "all in one"
    assert purity(torch.eye(3)[[0, 0, 1, 1, 1, 2, 0]], labels) == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="noise"):
        purity(torch.eye(3)[[0, 1]], torch.tensor([NOISE, NOISE]))


def test_animation(tmp_path):
    points, labels = make_points(0)
    path = tmp_path / "clustering.gif"
    write_animation(path, points, cluster_all(points, labels, 3, 3, 0))
    assert path.stat().st_size < 1_000_000
    with Image.open(path) as picture:
        assert picture.format == "GIF"
        assert picture.n_frames == 4
        assert picture.info["loop"] == 0
        colours = set()
        for at in range(4):
            picture.seek(at)
            frame = picture.convert("RGB")
            assert frame.getpixel((2, 2)) == (255, 255, 255)
            colours |= {colour for _, colour in frame.getcolors(1 << 20)}
    assert len(colours) > 20
