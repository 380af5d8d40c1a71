import pytest
import torch

from torchcaps import Capsules, check_finite, list_routings
from torchcaps.layers import CapsuleLinear
from torchcaps.ops import dynamic_routing


def capsules(*arrangement, size=4):
    return Capsules.from_pose(0.5 * torch.rand(*arrangement, size))


@pytest.mark.parametrize("shared", [False, True])
def test_votes_are_the_childs_pose_times_its_weights(shared):
    layer = CapsuleLinear(6, 4, 3, 5, shared=shared)
    children = capsules(2, 6)
    votes = layer.votes(children)
    assert votes.shape == (2, 6, 3, 5)
    for i in range(6):
        for j in range(3):
            weight = layer.weight[j] if shared else layer.weight[i, j]
            torch.testing.assert_close(votes[:, i, j], children.pose[:, i] @ weight)
    out = layer(children)
    torch.testing.assert_close(out.pose, dynamic_routing(votes).pose)
    torch.testing.assert_close(out.activation, out.pose.norm(dim=-1))


@pytest.mark.parametrize("shared", [False, True])
def test_frobenius_normalisation(shared):
    layer = CapsuleLinear(6, 4, 3, 5, "optimized", shared=shared)
    assert layer.normalize
    norms = torch.linalg.matrix_norm(layer.effective_weight())
    torch.testing.assert_close(norms, torch.ones_like(norms))
    votes = layer.votes(capsules(2, 6))
    assert (votes.norm(dim=-1) <= 1 + 1e-6).all()
    assert not CapsuleLinear(6, 4, 3, 5, "optimized", normalize=False).normalize
    assert CapsuleLinear(6, 4, 3, 5, "dynamic", normalize=True).normalize


def test_shared_weights_take_any_number_of_children_and_masks():
    layer = CapsuleLinear(None, 4, 3, 5, shared=True)
    few, many = capsules(2, 3), capsules(2, 50)
    assert layer(few).pose.shape == layer(many).pose.shape == (2, 3, 5)
    padded = Capsules.from_pose(
        torch.cat([few.pose, torch.full((2, 4, 4), float("nan"))], dim=1), torch.arange(7).expand(2, 7) < 3
    )
    torch.testing.assert_close(layer(padded).pose, layer(few).pose)


@pytest.mark.parametrize("routing", list_routings())
def test_any_arrangement_and_any_routing(routing):
    layer = CapsuleLinear(12, 4, 3, 5, routing).eval()
    grid = capsules(2, 2, 3, 2)  # [B, H, W, T]
    plain = Capsules(grid.pose.reshape(2, 12, 4), grid.activation.reshape(2, 12))
    torch.testing.assert_close(layer(grid).pose, layer(plain).pose)
    matrices = Capsules(grid.pose.reshape(2, 2, 3, 2, 2, 2), grid.activation)  # 2×2 poses
    torch.testing.assert_close(layer(matrices).pose, layer(plain).pose)


@pytest.mark.parametrize("routing", list_routings())
def test_layers_stack(routing):
    network = torch.nn.Sequential(CapsuleLinear(6, 4, 5, 3, routing), CapsuleLinear(5, 3, 2, 4, routing)).eval()
    children = capsules(2, 6)
    children.pose.requires_grad_()
    out = network(children)
    out.activation.sum().backward()
    assert out.pose.shape == (2, 2, 4)
    assert network[0].weight.grad.isfinite().all()


def test_route_shows_couplings_and_iterations():
    layer = CapsuleLinear(6, 4, 3, 5)
    children = capsules(2, 6)
    out = layer.route(children, trace=True)
    assert out.coupling.shape == (2, 6, 3)
    assert out.trace.coupling.shape == (3, 2, 6, 3)
    torch.testing.assert_close(out.pose, layer(children).pose)


@pytest.mark.parametrize("routing", list_routings())
def test_nan_behind_a_mask_reaches_no_weight(routing):
    layer = CapsuleLinear(6, 4, 3, 5, routing)
    pose = torch.rand(2, 6, 4)
    pose[:, 4:] = float("nan")
    mask = torch.arange(6).expand(2, 6) < 4
    with check_finite():
        layer(Capsules.from_pose(pose, mask)).pose.sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_first_weights_have_the_authors_scale_and_follow_the_layers_size():
    def std(*sizes):
        return float(CapsuleLinear(*sizes).weight.detach().std())

    assert 0.097 < std(1152, 8, 10, 16) < 0.103  # the authors' 0.1
    assert 0.19 < std(72, 8, 10, 16) < 0.21
    assert 0.045 < std(1152, 8, 10, 64) < 0.055


def test_bad_input():
    layer = CapsuleLinear(1152, 8, 10, 16)
    with pytest.raises(
        ValueError,
        match=r"CapsuleLinear expects 1152 input capsules of size 8, got pose of shape \(4, 1024, 8\)",
    ):
        layer(capsules(4, 1024, size=8))
    with pytest.raises(ValueError, match="without shared=True every child has its own weights"):
        CapsuleLinear(None, 8, 10, 16)
    with pytest.raises(ValueError, match="out_capsules must be at least 1, got 0"):
        CapsuleLinear(6, 8, 0, 16)
    with pytest.raises(ValueError, match="unknown routing 'enn'"):
        CapsuleLinear(6, 8, 2, 16, "enn")
    with pytest.raises(ValueError, match=r"got pose \(2, 6, 4\) and activation \(2, 5\)"):
        CapsuleLinear(6, 4, 3, 5)(Capsules(torch.rand(2, 6, 4), torch.rand(2, 5)))
    with pytest.raises(TypeError, match=r"CapsuleLinear takes Capsules\(pose, activation\), got Tensor"):
        CapsuleLinear(6, 4, 3, 5)(torch.rand(2, 6, 4))
    children = capsules(2, 6)
    children.pose[1, 2, 3] = float("nan")
    with check_finite(), pytest.raises(ValueError, match=r"pose holds 1 NaN .*\(1, 2, 3\)"):
        CapsuleLinear(6, 4, 3, 5)(children)


def test_empty_batches_and_zero_children():
    layer = CapsuleLinear(6, 4, 3, 5)
    assert layer(capsules(0, 6)).pose.shape == (0, 3, 5)
    for routing in ("dynamic", "optimized", "kmeans", "em", "uniform"):
        nothing = CapsuleLinear(None, 4, 3, 5, routing, shared=True)(capsules(2, 0))
        assert (nothing.pose == 0).all(), routing
