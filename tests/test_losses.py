import math

import pytest
import torch

from torchcaps import Capsules, check_finite, create_model
from torchcaps.losses import (
    CapsuleLoss,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin_by_epoch,
    spread_margin_by_step,
)
from torchcaps.models import ModelOutput


def test_margin_loss_by_hand():
    lengths = torch.tensor([[0.95, 0.3, 0.05], [0.2, 0.1, 0.6]])
    # image 1: present 0.95 > 0.9 costs 0; absent 0.3: 0.5·0.2² = 0.02; absent 0.05 costs 0
    # image 2: present 0.6: 0.3² = 0.09; absent 0.2: 0.5·0.1² = 0.005; absent 0.1 costs 0
    assert math.isclose(float(margin_loss(lengths, torch.tensor([0, 2]))), (0.02 + 0.095) / 2, rel_tol=1e-5)


def test_margin_loss_takes_any_number_of_classes():
    lengths = torch.tensor([[0.5, 0.3, 0.7]])
    expected = (0.9 - 0.5) ** 2 + 0.5 * 0.2**2 + (0.9 - 0.7) ** 2
    for target in (
        torch.tensor([[0, 2]]),
        torch.tensor([[True, False, True]]),
        torch.tensor([[1.0, 0.0, 1.0]]),
    ):
        assert math.isclose(float(margin_loss(lengths, target)), expected, rel_tol=1e-5)
    none = torch.zeros(1, 3, dtype=torch.bool)
    expected = 0.5 * (0.4**2 + 0.2**2 + 0.6**2)
    assert math.isclose(float(margin_loss(lengths, none)), expected, rel_tol=1e-5)


def test_margin_loss_reaches_zero_at_its_margins():
    assert float(margin_loss(torch.tensor([[0.9, 0.1, 0.1]]), torch.tensor([0]))) == pytest.approx(0, abs=1e-12)


def test_spread_loss_by_hand():
    activations = torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.6, 0.3]])
    # image 1, target 0, m=0.5: (0.5−0.4)² + 0 = 0.01; image 2, target 2: (0.5−0.1)² + (0.5+0.3)² = 0.16+0.64
    loss = spread_loss(activations, torch.tensor([0, 2]), margin=0.5)
    assert math.isclose(float(loss), (0.01 + 0.80) / 2, rel_tol=1e-5)


def test_spread_margins():
    assert [round(spread_margin_by_epoch(e), 3) for e in (0, 1, 5, 7, 8, 100)] == [
        0.2,
        0.3,
        0.7,
        0.9,
        0.9,
        0.9,
    ]
    assert math.isclose(spread_margin_by_step(0), 0.2 + 0.79 / (1 + math.exp(4)))
    assert math.isclose(spread_margin_by_step(200_000), 0.2 + 0.79 / 2)
    assert math.isclose(spread_margin_by_step(10**9), 0.2 + 0.79 / (1 + math.exp(-10)))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 5, 7)])
def test_reconstruction_loss_is_a_scaled_sum_for_every_image_size(shape):
    image, made = torch.rand(4, *shape), torch.rand(4, *shape)
    expected = 0.0005 * sum(((m - i) ** 2).sum() for m, i in zip(made, image, strict=True)) / 4
    torch.testing.assert_close(reconstruction_loss(made, image), expected)


def test_reconstructions_of_several_objects_add_up():
    image, made = torch.rand(4, 2, 1, 5, 5), torch.rand(4, 2, 1, 5, 5)
    each = [reconstruction_loss(made[:, k], image[:, k]) for k in range(2)]
    torch.testing.assert_close(reconstruction_loss(made, image), sum(each))


def test_the_sum_of_both():
    model = create_model("capsnet-small", (1, 16, 16), 3)
    images, target = torch.rand(2, 1, 16, 16), torch.tensor([0, 2])
    output = model(images, target)
    parts = CapsuleLoss()(output, target, images)
    torch.testing.assert_close(parts.classification, margin_loss(output.scores, target))
    torch.testing.assert_close(parts.reconstruction, reconstruction_loss(output.reconstruction, images))
    torch.testing.assert_close(parts.total, parts.classification + parts.reconstruction)
    assert CapsuleLoss(reconstruction_scale=0)(output, target).reconstruction == 0
    spread = CapsuleLoss("spread", reconstruction_scale=0, margin=0.4)
    torch.testing.assert_close(spread(output, target).total, spread_loss(output.scores, target, 0.4))
    logits = create_model("cnn-small", (1, 16, 16), 3)(images)
    entropy = torch.nn.functional.cross_entropy(logits.scores, target)
    torch.testing.assert_close(CapsuleLoss("cross-entropy")(logits, target, images).total, entropy)


@pytest.mark.parametrize("loss", [margin_loss, spread_loss])
def test_gradients(loss):
    lengths = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: loss(x, torch.tensor([0, 1, 2, 1])), lengths)


@pytest.mark.parametrize("loss", [margin_loss, spread_loss])
def test_bad_input(loss):
    with pytest.raises(ValueError, match="labels must be in 0 … 2 for 3 classes, got values from 0 to 3"):
        loss(torch.rand(2, 3), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="from -1 to 0"):
        loss(torch.rand(2, 3), torch.tensor([0, -1]))
    with pytest.raises(ValueError, match=r"\[batch, classes\], got \(3,\)"):
        loss(torch.rand(3), torch.tensor([0]))
    with pytest.raises(ValueError, match="for 2 images, but targets for 3"):
        loss(torch.rand(2, 3), torch.tensor([0, 1, 2]))
    with check_finite(), pytest.raises(ValueError, match="NaN or infinite"):
        loss(torch.full((2, 3), float("nan")), torch.tensor([0, 1]))


def test_more_bad_input():
    with pytest.raises(ValueError, match=r"reconstruction has shape \(2, 4\), the image \(2, 5\)"):
        reconstruction_loss(torch.rand(2, 4), torch.rand(2, 5))
    capsules = Capsules.from_pose(torch.rand(1, 2, 4))
    with pytest.raises(ValueError, match="pass the image to compare with"):
        CapsuleLoss()(ModelOutput(torch.rand(1, 2), capsules, torch.rand(1, 3)), torch.tensor([0]))
    with pytest.raises(ValueError, match="unknown classification loss 'marginal'. Did you mean 'margin'"):
        CapsuleLoss("marginal")
    with pytest.raises(ValueError, match="must not be negative"):
        CapsuleLoss(reconstruction_scale=-1)
    with pytest.raises(ValueError, match=r"one class index per image, shape \[batch\]; got \(1, 2\)"):
        spread_loss(torch.rand(1, 3), torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=r"\[batch\] or \[batch, objects\], got \(1, 1, 2\)"):
        margin_loss(torch.rand(1, 3), torch.tensor([[[0, 1]]]))


def test_integer_flags_and_logits_are_not_mistaken():
    flags = torch.nn.functional.one_hot(torch.tensor([2, 0]), 3)
    with pytest.raises(ValueError, match=r"looks like class flags.*target.bool\(\)"):
        margin_loss(torch.rand(2, 3), flags)
    margin_loss(torch.rand(2, 3), flags.bool())
    logits = create_model("cnn-small", (1, 16, 16), 3)(torch.rand(2, 1, 16, 16))
    with pytest.raises(ValueError, match=r"gives logits: use CapsuleLoss\('cross-entropy'\)"):
        CapsuleLoss()(logits, torch.tensor([0, 1]))
    for bad, error, message in (
        (torch.tensor(1), TypeError, "one entry per image"),
        ([0, 1], TypeError, "one entry per image"),
        (torch.tensor([0, 3]), ValueError, "labels must be in 0 … 2"),
    ):
        with pytest.raises(error, match=message):
            CapsuleLoss("cross-entropy")(logits, bad)
    CapsuleLoss("cross-entropy")(logits, torch.tensor([0, 1], dtype=torch.int32))


def test_cross_entropy_of_two_objects_is_the_mean_of_theirs():
    logits = ModelOutput(torch.randn(4, 5, dtype=torch.float64))
    pairs = torch.tensor([[0, 1], [4, 2], [3, 0], [1, 2]])
    loss = CapsuleLoss("cross-entropy")
    torch.testing.assert_close(
        loss(logits, pairs).total, (loss(logits, pairs[:, 0]).total + loss(logits, pairs[:, 1]).total) / 2
    )


def test_cross_entropy_of_flags_is_that_of_each_class_on_its_own():
    logits, flags = torch.randn(4, 3, dtype=torch.float64), torch.rand(4, 3) < 0.5
    probability = logits.sigmoid()
    expected = -torch.where(flags, probability, 1 - probability).log().sum(dim=1).mean()
    torch.testing.assert_close(CapsuleLoss("cross-entropy")(ModelOutput(logits), flags).total, expected)


def test_margin_of_flags_takes_logits_by_their_sigmoid():
    logits, flags = torch.randn(4, 3), torch.rand(4, 3) < 0.5
    expected = margin_loss(logits.sigmoid(), flags)
    torch.testing.assert_close(CapsuleLoss()(ModelOutput(logits), flags).total, expected)
    with pytest.raises(ValueError, match="gives logits"):
        CapsuleLoss()(ModelOutput(logits), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("kind", ["margin", "spread"])
def test_a_network_of_ones_own_gives_capsules_or_their_lengths(kind):
    capsules, labels = Capsules.from_pose(0.3 * torch.rand(4, 3, 2)), torch.tensor([0, 2, 1, 1])
    loss = CapsuleLoss(kind)
    wanted = loss(ModelOutput(capsules.activation, capsules), labels)
    for output in (capsules, capsules.activation):
        for found, part in zip(loss(output, labels), wanted, strict=True):
            assert torch.equal(found, part)
    grown = torch.rand(4, 3, requires_grad=True)
    loss(grown, labels).total.backward()
    assert grown.grad.abs().sum() > 0


def test_scores_of_ones_own_are_logits_for_cross_entropy_and_lengths_for_flags():
    scores, flags = torch.rand(4, 3), torch.rand(4, 3) < 0.5
    labels = torch.tensor([0, 2, 1, 1])
    entropy = torch.nn.functional.cross_entropy(scores, labels)
    torch.testing.assert_close(CapsuleLoss("cross-entropy")(scores, labels).total, entropy)
    torch.testing.assert_close(CapsuleLoss()(scores, flags).total, margin_loss(scores, flags))  # no sigmoid


def test_an_image_is_not_needed_where_nothing_is_reconstructed():
    scores, labels = torch.rand(2, 3), torch.tensor([0, 1])
    assert float(CapsuleLoss()(scores, labels, torch.rand(2, 1, 4, 4)).reconstruction) == 0


@pytest.mark.parametrize(
    ("output", "kind", "sentence"),
    [
        ((torch.rand(2, 3),), TypeError, r"takes what a model gives \(ModelOutput\), class Capsules, or .* got tuple"),
        (None, TypeError, "got NoneType"),
        (torch.rand(2), ValueError, r"lengths must have shape \[batch, classes\], got \(2,\)"),
        (torch.zeros(2, 3, dtype=torch.int64), TypeError, "lengths must be a floating point tensor"),
        (Capsules.from_pose(torch.rand(2, 5, 5, 3, 4)), ValueError, r"lengths must have shape .* got \(2, 5, 5, 3\)"),
        (Capsules(torch.rand(2, 3, 4), torch.rand(2, 2)), ValueError, "pose must have the activation's dimensions"),
        (torch.rand(3, 3), ValueError, "for 3 images, but targets for 2"),
    ],
)
def test_what_is_no_output_is_refused(output, kind, sentence):
    with pytest.raises(kind, match=sentence):
        CapsuleLoss()(output, torch.tensor([0, 1]))
