"""Losses with weights of classes, against loops in float64; without weights nothing changes, not a bit."""

import math

import pytest
import torch
import torch.nn.functional as F

from torchcaps import create_model
from torchcaps.losses import CapsuleLoss, margin_loss, spread_loss

WEIGHTS = (0.5, 3.0, 1.0, 0.2)
INDICES = torch.tensor([0, 1, 3, 1, 2])
OBJECTS = torch.tensor([[0, 1], [1, 2], [3, 0], [2, 3], [1, 3]])
FLAGS = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0]]).bool()


def classes_of(row):
    """Of one target, and whether it is flags."""
    if row.dtype == torch.bool:
        return row.nonzero()[:, 0].tolist(), True
    return row.reshape(-1).tolist(), False


def margin_by_hand(scores, target):
    total = 0.0
    for row, labels in zip(scores, target, strict=True):
        classes, flags = classes_of(labels)
        item = 0.0
        for k in range(len(row)):
            if k in classes:
                item = item + (WEIGHTS[k] if flags else 1) * torch.clamp(0.9 - row[k], min=0) ** 2
            else:
                item = item + 0.5 * torch.clamp(row[k] - 0.1, min=0) ** 2
        total = total + item * (1 if flags else sum(WEIGHTS[k] for k in classes) / len(classes))
    return total / len(scores)


def spread_by_hand(scores, target):
    total = 0.0
    for row, label in zip(scores, target.tolist(), strict=True):
        for k in range(len(row)):
            if k != label:
                total = total + WEIGHTS[label] * torch.clamp(0.9 - (row[label] - row[k]), min=0) ** 2
    return total / len(scores)


def cross_entropy_by_hand(logits, target):
    total = 0.0
    for row, labels in zip(logits, target, strict=True):
        classes, flags = classes_of(labels)
        if flags:
            for k in range(len(row)):
                chance = torch.sigmoid(row[k])
                total = total - (WEIGHTS[k] * torch.log(chance) if k in classes else torch.log(1 - chance))
        else:
            chances = torch.exp(row) / torch.exp(row).sum()
            item = sum(-torch.log(chances[k]) for k in classes) / len(classes)
            total = total + item * sum(WEIGHTS[k] for k in classes) / len(classes)
    return total / len(logits)


@pytest.mark.parametrize(
    ("kind", "by_hand", "target"),
    [
        ("margin", margin_by_hand, INDICES),
        ("margin", margin_by_hand, INDICES[:, None]),
        ("margin", margin_by_hand, OBJECTS),
        ("margin", margin_by_hand, FLAGS),
        ("spread", spread_by_hand, INDICES),
        ("cross-entropy", cross_entropy_by_hand, INDICES),
        ("cross-entropy", cross_entropy_by_hand, OBJECTS),
        ("cross-entropy", cross_entropy_by_hand, FLAGS),
    ],
)
def test_weighted_losses_and_gradients_by_hand(kind, by_hand, target):
    scores = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    loss = CapsuleLoss(kind, class_weights=torch.tensor(WEIGHTS, dtype=torch.float64))(scores, target).total
    expected = by_hand(scores, target)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    (found,), (wanted,) = torch.autograd.grad(loss, scores), torch.autograd.grad(expected, scores)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", CapsuleLoss.KINDS)
def test_weights_of_one_change_nothing_and_none_not_a_bit(kind):
    scores = torch.rand(5, 4, generator=torch.Generator().manual_seed(2))
    plain = CapsuleLoss(kind)(scores, INDICES).total
    torch.testing.assert_close(CapsuleLoss(kind, class_weights=[1, 1, 1, 1])(scores, INDICES).total, plain)
    before = {
        "margin": margin_loss(scores, INDICES), "spread": spread_loss(scores, INDICES),
        "cross-entropy": F.cross_entropy(scores, F.one_hot(INDICES, 4).float()),
    }  # fmt: skip
    assert torch.equal(plain, before[kind])


def test_soft_flags_weigh_their_shares():
    logits, flags = torch.randn(3, 4, dtype=torch.float64), F.one_hot(torch.tensor([0, 1, 3]), 4).double()
    loss = CapsuleLoss("cross-entropy", class_weights=list(WEIGHTS))
    torch.testing.assert_close(loss(logits, flags).total, loss(logits, torch.tensor([0, 1, 3])).total)


def test_weights_are_not_saved_and_follow_the_type():
    loss = CapsuleLoss(class_weights=WEIGHTS)
    assert not loss.state_dict()
    assert not CapsuleLoss().state_dict()
    assert loss.double().class_weights.dtype == torch.float64
    assert "class_weights=[0.5, 3.0, 1.0" in repr(loss)
    CapsuleLoss(class_weights=WEIGHTS).load_state_dict(CapsuleLoss().state_dict())


def test_the_drawing_is_not_weighted():
    model = create_model("capsnet-small", (1, 16, 16), 4)
    images = torch.rand(5, 1, 16, 16)
    with torch.no_grad():
        output = model(images, INDICES)
        plain, weighted = (CapsuleLoss(class_weights=w)(output, INDICES, images) for w in (None, WEIGHTS))
    assert torch.equal(plain.reconstruction, weighted.reconstruction)
    assert not math.isclose(float(plain.classification), float(weighted.classification))


@pytest.mark.parametrize("weights", [[1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf], [[1.0, 2.0]], 3.0])
def test_weights_that_are_none(weights):
    with pytest.raises(ValueError, match="class_weights must be positive numbers, one for each class"):
        CapsuleLoss(class_weights=weights)


@pytest.mark.parametrize("kind", CapsuleLoss.KINDS)
def test_as_many_weights_as_classes(kind):
    with pytest.raises(ValueError, match=r"one number for each of the 4 classes, got shape \(3,\)"):
        CapsuleLoss(kind, class_weights=[1.0, 2.0, 3.0])(torch.rand(5, 4), INDICES)
