import pytest
import torch

from torchcaps import Capsules


def test_from_pose_and_flatten():
    grid = Capsules.from_pose(torch.rand(2, 3, 4, 5, 6), torch.ones(2, 3, 4, 5, dtype=torch.bool))
    torch.testing.assert_close(grid.activation, grid.pose.norm(dim=-1))
    flat = grid.flatten()
    assert flat.pose.shape == (2, 60, 6)
    assert flat.activation.shape == flat.mask.shape == (2, 60)
    torch.testing.assert_close(flat.pose[:, 7 * 5 + 3], grid.pose[:, 1, 3, 3])
    matrices = Capsules(torch.rand(2, 7, 4, 4), torch.rand(2, 7))
    assert matrices.flatten().pose.shape == (2, 7, 16)
    assert flat.flatten().pose.shape == (2, 60, 6)


def test_activation_of_a_zero_pose_has_a_finite_gradient():
    pose = torch.zeros(1, 2, 3, requires_grad=True)
    Capsules.from_pose(pose).activation.sum().backward()
    assert (pose.grad == 0).all()


def test_validate_names_the_shapes():
    for pose, activation in (((2, 3), (2, 3)), ((2, 3, 4), (2, 4)), ((3, 4), (3,))):
        with pytest.raises(ValueError, match="with at least \\[batch, capsules\\] in front"):
            Capsules(torch.rand(pose), torch.rand(activation)).validate()
    with pytest.raises(TypeError, match="activation must be a floating point tensor"):
        Capsules(torch.rand(2, 3, 4), torch.ones(2, 3, dtype=torch.long)).validate()
    with pytest.raises(ValueError, match="mask must have shape"):
        Capsules.from_pose(torch.rand(2, 3, 4), torch.ones(2, 4, dtype=torch.bool)).validate()
