"""Known transformations, and probes whose answer is known beforehand."""

import math

import pytest
import torch
from torch import nn

from torchcaps import create_model
from torchcaps.analysis.equivariance import TRANSFORMATIONS, UNCHANGED, measure_movements, transform
from torchcaps.analysis.moments import measure_shape
from torchcaps.capsules import Capsules
from torchcaps.models.output import ModelOutput


def blobs(images: int = 24, size: int = 28) -> torch.Tensor:
    """Soft blobs of various sizes near the middle, so that no shift of four pixels cuts them: ``[B, 1, H, W]``."""
    at = torch.arange(size) - (size - 1) / 2
    centre, width = torch.randn(images, 2, 1, 1), 1 + torch.rand(images, 1, 1)
    distance = (at[:, None] - centre[:, 0]).square() + (at - centre[:, 1]).square()
    return torch.exp(-distance / (2 * width.square()))[:, None]


def square(side: int, size: int = 31) -> torch.Tensor:
    image, start = torch.zeros(1, 1, size, size), (size - side) // 2
    image[..., start : start + side, start : start + side] = 1
    return image


@pytest.mark.parametrize("kind", TRANSFORMATIONS)
def test_amounts_are_about_the_identity(kind):
    amounts = TRANSFORMATIONS[kind]
    assert len(amounts) == 9
    assert amounts[4] == UNCHANGED[kind]
    assert list(amounts) == sorted(amounts)
    images = torch.rand(2, 3, 9, 12)
    assert torch.equal(transform(images, kind, UNCHANGED[kind]), images)


@pytest.mark.parametrize("amount", [-40, -4, -1, 1, 3, 40])
def test_shifts_by_whole_pixels_are_exact(amount):
    images = torch.rand(2, 3, 9, 12)
    right, down = transform(images, "shift right", amount), transform(images, "shift down", amount)
    for row in range(9):
        for column in range(12):
            at, above = column - amount, row - amount
            expected = images[:, :, row, at] if 0 <= at < 12 else torch.zeros(2, 3)
            assert torch.equal(right[:, :, row, column], expected)
            expected = images[:, :, above, column] if 0 <= above < 9 else torch.zeros(2, 3)
            assert torch.equal(down[:, :, row, column], expected)


@pytest.mark.parametrize("amount", [-3.0, -1.25, 0.5, 2.0, 3.75])
def test_shifts_move_the_centroid_by_exactly_that(amount):
    images = blobs()
    before = centroids(images)
    right, down = (centroids(transform(images, kind, amount)) for kind in ("shift right", "shift down"))
    torch.testing.assert_close(right - before, torch.tensor([0, amount]).expand(24, 2), atol=0.01, rtol=0)
    torch.testing.assert_close(down - before, torch.tensor([amount, 0]).expand(24, 2), atol=0.01, rtol=0)


def centroids(images):
    """Row and column of the pixels' centre of mass ``[B, 2]``."""
    weight = images[:, 0] / images[:, 0].sum(dim=(1, 2), keepdim=True)
    row, column = torch.arange(images.shape[2]), torch.arange(images.shape[3])
    return torch.stack([(weight.sum(dim=2) * row).sum(dim=1), (weight.sum(dim=1) * column).sum(dim=1)], dim=1)


@pytest.mark.parametrize(("degrees", "quarters"), [(90, 1), (180, 2), (-90, -1)])
def test_quarter_turns_are_those_of_rot90(degrees, quarters):
    images = torch.rand(2, 3, 13, 13)
    expected = torch.rot90(images, quarters, dims=(-2, -1))  # counter-clockwise as seen
    torch.testing.assert_close(transform(images, "rotate", degrees), expected, atol=1e-5, rtol=1e-5)


def test_a_positive_turn_is_counter_clockwise():
    """An upright bar then leans to the left: its slant is −tan θ."""
    bar = torch.zeros(1, 1, 41, 41)
    bar[..., 8:33, 19:22] = 1
    for degrees in (20.0, -20.0):
        slant = float(measure_shape(transform(bar, "rotate", degrees)[0, 0]).slant)
        assert slant == pytest.approx(-math.tan(math.radians(degrees)), abs=0.02)


def test_images_that_are_not_square_turn_without_being_stretched():
    bar = torch.zeros(1, 1, 31, 61)
    bar[..., 15, 20:41] = 1
    upright = transform(bar, "rotate", 90)
    assert float(upright[0, 0, :, 30].sum()) == pytest.approx(21, abs=1e-3)
    assert float(upright.sum()) == pytest.approx(21, abs=1e-3)


def test_scale_by_two_doubles_a_square():
    before, after = measure_shape(square(7)[0, 0]), measure_shape(transform(square(7), "scale", 2.0)[0, 0])
    assert float(after.mass) == pytest.approx(4 * float(before.mass), rel=1e-4)
    assert float(after.width) == pytest.approx(2 * float(before.width), rel=0.02)  # edges are soft afterwards
    assert float(after.height) == pytest.approx(2 * float(before.height), rel=0.02)
    assert float(after.x) == pytest.approx(0, abs=1e-4)


class Centroids(nn.Module):
    """A model whose pose is the centroid of the image, as a matrix, and whose activation is its distance."""

    def forward(self, images: torch.Tensor, target: torch.Tensor | None = None) -> ModelOutput:
        assert not self.training, "in evaluation mode"
        shape = measure_shape(images.mean(dim=1))
        pose = torch.stack([shape.x, shape.y, torch.ones_like(shape.x), torch.zeros_like(shape.x)], dim=-1)
        pose = pose.view(-1, 1, 2, 2).expand(-1, 3, -1, -1)
        scores = torch.tensor([0.2, 0.9, 0.4]).expand(len(images), -1)
        return ModelOutput(scores, Capsules(pose, scores))


def test_a_pose_that_is_the_centroid_tells_shifts_and_nothing_of_scale():
    model, images, labels = Centroids(), blobs(60), torch.arange(60) % 3
    found = {movement.kind: movement for movement in measure_movements(model, images, labels)}
    assert list(found) == list(TRANSFORMATIONS)
    for kind in ("shift right", "shift down"):  # the blobs' own places, of variance 1 against 6.7, are in the way
        assert 0.8 < found[kind].probe_r2 < 0.95
        assert found[kind].shuffled_r2 < 0.05
    assert found["scale"].probe_r2 < 0.1
    assert found["rotate"].probe_r2 < 0.1
    assert model.training, "the mode is as it was"

    exact = measure_movements(model, blobs(1).repeat(60, 1, 1, 1), labels, ["shift right"])[0]
    assert exact.probe_r2 > 0.999
    assert exact.amounts.tolist() == list(TRANSFORMATIONS["shift right"])


def test_changes_of_pose_activation_and_accuracy():
    image = square(5)  # in the very middle: its pose is (0, 0, 1, 0), of length 1
    found = measure_movements(Centroids(), image.repeat(4, 1, 1, 1), torch.tensor([1, 1, 1, 0]), ["shift down"])[0]
    torch.testing.assert_close(found.pose_change, found.amounts.abs(), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.activation, torch.full((9,), (0.9 * 3 + 0.2) / 4))
    torch.testing.assert_close(found.accuracy, torch.full((9,), 0.75))


def test_the_same_seed_gives_the_same_and_of_several_objects_the_first_counts():
    images, labels = blobs(20), torch.stack([torch.arange(20) % 3, (torch.arange(20) + 1) % 3], dim=1)
    first, again, single = (
        measure_movements(Centroids(), images, of, ["scale"])[0] for of in (labels, labels, labels[:, 0].contiguous())
    )
    assert first.probe_r2 == again.probe_r2 == single.probe_r2
    torch.testing.assert_close(first.activation, single.activation)
    assert float(first.accuracy[0]) == pytest.approx(7 / 20)  # of the images with 1 and 2, the two largest scores


@pytest.mark.parametrize("name", ["capsnet-small", "matrix-capsnet-small"])
def test_networks_of_capsules(name):
    model = create_model(name, (1, 28, 28), 3)
    found = measure_movements(model, blobs(6), torch.arange(6) % 3, ["rotate"])[0]
    assert found.pose_change[4] == 0
    assert (found.pose_change[:4] > 0).all()
    assert found.activation.shape == found.accuracy.shape == (9,)


def test_bad_input_is_refused():
    images = blobs(2)
    with pytest.raises(ValueError, match="transformation"):
        transform(images, "rotated", 3)
    with pytest.raises(ValueError, match="positive"):
        transform(images, "scale", 0)
    with pytest.raises(ValueError, match="channels"):
        transform(images[0], "scale", 2)
    with pytest.raises(ValueError, match="class indices"):
        measure_movements(Centroids(), images, torch.ones(2).bool())
    with pytest.raises(ValueError, match="at least one image"):
        measure_movements(Centroids(), images, torch.zeros(2, 3).bool())
    with pytest.raises(ValueError, match="no capsules"):
        measure_movements(create_model("cnn-small", (1, 28, 28), 3), images, torch.tensor([0, 1]))


@pytest.mark.parametrize(("kind", "amount"), [("shift right", 2.0), ("rotate", 20.0), ("scale", 0.7)])
def test_what_comes_in_is_as_dark_as_the_image_is(kind, amount):
    """Standardised images have their black below zero: zeros from outside would be a bright frame."""
    images = torch.zeros(2, 1, 20, 20)
    images[:, :, 8:12, 8:12] = 1
    standard = (images - images.mean()) / images.std()
    moved, expected = transform(standard, kind, amount), transform(images, kind, amount)
    torch.testing.assert_close(moved, (expected - images.mean()) / images.std())
    assert float(moved.min()) == pytest.approx(float(standard.min()))
