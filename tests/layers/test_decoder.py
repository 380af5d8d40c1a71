import pytest
import torch

from torchcaps import Capsules
from torchcaps.layers import ReconstructionDecoder


@pytest.fixture
def decoder():
    return ReconstructionDecoder(5, 4, (2, 6, 7), hidden=(8, 9))


@pytest.fixture
def classes():
    return Capsules.from_pose(torch.rand(3, 5, 4))


def masked(decoder, pose, *kept):
    mask = torch.zeros(5)
    mask[list(kept)] = 1
    return decoder.layers((pose * mask[:, None]).flatten()).view(2, 6, 7)


def test_target_keeps_one_capsule(decoder, classes):
    out = decoder(classes, torch.tensor([4, 0, 2]))
    assert out.shape == (3, 2, 6, 7)
    for image, kept in enumerate((4, 0, 2)):
        torch.testing.assert_close(out[image], masked(decoder, classes.pose[image], kept))


def test_without_target_the_longest_is_kept(decoder, classes):
    longest = classes.activation.argmax(dim=1)
    torch.testing.assert_close(decoder(classes), decoder(classes, longest))


def test_several_targets_give_an_image_each(decoder, classes):
    target = torch.tensor([[0, 1], [3, 2], [4, 0]])
    out = decoder(classes, target)
    assert out.shape == (3, 2, 2, 6, 7)
    for objects in range(2):
        torch.testing.assert_close(out[:, objects], decoder(classes, target[:, objects]))
    two = decoder(classes, objects=2)
    torch.testing.assert_close(two, decoder(classes, classes.activation.topk(2).indices))


def test_flags_give_one_image_of_all_of_them(decoder, classes):
    flags = torch.tensor([[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
    for kind in (flags.bool(), flags.float()):
        out = decoder(classes, kind)
        assert out.shape == (3, 2, 6, 7)
        torch.testing.assert_close(out[0], masked(decoder, classes.pose[0], 0, 2))


def test_only_the_kept_capsule_gets_a_gradient(decoder):
    pose = torch.rand(1, 5, 4, requires_grad=True)
    decoder(Capsules.from_pose(pose), torch.tensor([3])).sum().backward()
    assert pose.grad[0, 3].any()
    assert not pose.grad[0, [0, 1, 2, 4]].any()


def test_bad_input(decoder, classes):
    with pytest.raises(ValueError, match="labels must be in 0 … 4 for 5 classes, got values from 1 to 5"):
        decoder(classes, torch.tensor([1, 5, 2]))
    with pytest.raises(ValueError, match="cannot decode the 6 longest of 5 capsules"):
        decoder(classes, objects=6)
    with pytest.raises(ValueError, match=r"class flags must have shape \[batch, 5\]"):
        decoder(classes, torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="poses of 5 capsules of size 4"):
        decoder.decode(torch.rand(2, 4, 4))
    with pytest.raises(ValueError, match="targets for 1 images, but capsules of 3"):
        decoder(classes, torch.tensor([1]))
    with pytest.raises(TypeError, match="the decoder takes Capsules"):
        decoder(classes.pose)
    with pytest.raises(ValueError, match="poses of 5 capsules of size 4"):
        decoder(Capsules.from_pose(torch.rand(3, 4, 4)), torch.tensor([1, 2, 0]))
