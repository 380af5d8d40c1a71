"""Attacks on models whose weakest point is known, and what must hold for every model."""

import pytest
import torch
from torch import nn

from torchcaps import create_model
from torchcaps.analysis.attacks import fgsm, one_pixel, pgd, robust_accuracy, score_margin
from torchcaps.losses import margin_loss
from torchcaps.models.output import ModelOutput

SHAPE = (1, 6, 6)


class Linear(nn.Module):
    """Two classes: w·x + shift against 0."""

    def __init__(self, weight, shift=0.0):
        super().__init__()
        self.weight, self.shift = nn.Parameter(weight.flatten()), shift

    def forward(self, images, target=None):
        first = images.flatten(1) @ self.weight + self.shift
        return ModelOutput(torch.stack([first, torch.zeros_like(first)], dim=1))


def linear_task(count=8):
    weight = torch.randn(SHAPE)
    return Linear(weight), weight, torch.rand(count, *SHAPE), torch.randint(2, (count,))


def network(name="cnn-small"):
    """A small network, untrained: its scores are close together, so that attacks change them."""
    shape = (1, 20, 20)
    model = create_model(name, shape, 4).eval()
    images = torch.rand(12, *shape)
    return model, images, model(images).scores.argmax(dim=1)


def harm(model, images, labels):
    with torch.no_grad():
        return score_margin(model(images).scores, labels)


def test_margin_between_scores():
    scores, labels = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.3, 0.7], [0.4, 0.4, 0.1]]), torch.tensor([0, 1, 0])
    torch.testing.assert_close(score_margin(scores, labels), torch.tensor([-0.4, 0.4, 0.0]))


def test_margin_has_a_slope_where_the_margin_loss_has_none():
    scores, labels = torch.tensor([[0.95, 0.05]], requires_grad=True), torch.tensor([0])
    (flat,) = torch.autograd.grad(margin_loss(scores, labels).sum(), scores)
    (steep,) = torch.autograd.grad(score_margin(scores, labels).sum(), scores)
    assert flat.tolist() == [[0.0, 0.0]]
    assert steep.tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_the_optimum_of_a_linear_classifier(attack):
    model, weight, images, labels = linear_task()
    away = torch.where(labels == 0, -1.0, 1.0)[:, None, None, None] * weight.sign()
    torch.testing.assert_close(attack(model, images, labels, 0.1), (images + 0.1 * away).clamp(0, 1))


@pytest.mark.parametrize("name", ["cnn-small", "capsnet-small"])
@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_attacks_stay_in_the_ball_and_do_harm(attack, name):
    model, images, labels = network(name)
    for epsilon in (0.02, 0.5):
        found = attack(model, images, labels, epsilon)
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
        assert float((found - images).abs().max()) <= epsilon + 1e-6
        assert bool((harm(model, found, labels) > harm(model, images, labels)).all())
    assert torch.equal(attack(model, images, labels, 0.0), images)


@pytest.mark.parametrize("name", ["cnn-small", "capsnet-small"])
def test_pgd_is_at_least_as_strong_as_fgsm(name):
    model, images, labels = network(name)
    one, many = (attack(model, images, labels, 0.1) for attack in (fgsm, pgd))
    assert bool((harm(model, many, labels) >= harm(model, one, labels)).all())
    assert robust_accuracy(model, many, labels) <= robust_accuracy(model, one, labels)


def test_pgd_keeps_the_most_harmful_of_all_steps_and_restarts():
    model, images, labels = network()
    jumpy = pgd(model, images, labels, 0.05, steps=7, step=0.04)
    assert bool((harm(model, jumpy, labels) >= harm(model, images, labels)).all())
    again = pgd(model, images, labels, 0.05, steps=7, step=0.04, restarts=3)
    assert bool((harm(model, again, labels) >= harm(model, jumpy, labels)).all())
    still = pgd(model, images, labels, 0.05, steps=1, step=0.0)
    assert bool((harm(model, still, labels) >= harm(model, images, labels)).all()), "the image itself is a candidate"


def test_pgd_depends_on_its_seed_alone():
    model, images, labels = network()
    first = pgd(model, images, labels, 0.05, steps=3)
    torch.rand(5)
    assert torch.equal(pgd(model, images, labels, 0.05, steps=3), first)
    assert not torch.equal(pgd(model, images, labels, 0.05, steps=3, seed=1), first)


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_images_do_not_influence_each_other(attack, at_once, monkeypatch):
    model, _, images, labels = linear_task()
    whole = attack(model, images, labels, 0.1)
    torch.testing.assert_close(attack(model, images[:3], labels[:3], 0.1), whole[:3])
    monkeypatch.setattr("torchcaps.analysis.attacks.AT_ONCE", at_once)
    torch.testing.assert_close(attack(model, images, labels, 0.1), whole)


def test_the_model_is_left_as_it_was():
    model, images, labels = network()
    model.train()
    model.features.eval()
    before = [module.training for module in model.modules()]
    model(images).scores.sum().backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    with torch.no_grad():  # a caller that measures does not keep an attack from its gradient
        attacked = [fgsm(model, images, labels, 0.1), pgd(model, images, labels, 0.1, steps=2)]
    with torch.inference_mode():
        assert torch.equal(fgsm(model, images, labels, 0.1), attacked[0])
    one_pixel(model, images[:1], labels[:1])
    robust_accuracy(model, images, labels)
    assert not any(found.requires_grad for found in attacked)
    assert [module.training for module in model.modules()] == before
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert torch.equal(parameter.grad, grad)


@pytest.mark.parametrize("batch", [1, 7, 1024])
def test_one_pixel_finds_the_only_pixel_that_counts(batch):
    weight = torch.zeros(SHAPE)
    weight[0, 4, 1] = 1.0
    images, labels = torch.rand(3, *SHAPE) * 0.2 + 0.7, torch.tensor([0, 0, 1])
    done = []
    found = one_pixel(Linear(weight, -0.5), images, labels, batch=batch, progress=done.append)
    assert found.place.tolist() == [[4, 1]] * 3
    assert found.value.tolist() == [0.0, 0.0, 1.0]
    assert found.fooled.tolist() == [True, True, True], "the third was wrong before"
    assert done == [1, 2, 3]
    expected = images.clone()
    expected[:, 0, 4, 1] = torch.tensor([0.0, 0.0, 1.0])
    assert torch.equal(found.images, expected)


def test_one_pixel_cannot_change_a_mean():
    images = torch.rand(3, *SHAPE) * 0.2 + 0.7
    found = one_pixel(Linear(torch.full(SHAPE, 1 / 36), -0.5), images, torch.zeros(3, dtype=torch.int64))
    assert not bool(found.fooled.any())
    brightest = images.flatten(1).argmax(dim=1)
    assert found.place.tolist() == [[int(at) // 6, int(at) % 6] for at in brightest], "the most that one can do"


def test_one_pixel_of_colour_and_with_other_values():
    weight = torch.zeros(3, 6, 6)
    weight[:, 2, 3] = 1.0
    images, labels = torch.full((2, 3, 6, 6), 0.5), torch.tensor([0, 1])
    found = one_pixel(Linear(weight, -1.0), images, labels, values=(0.25, 0.75))
    assert found.images[:, :, 2, 3].tolist() == [[0.25] * 3, [0.75] * 3]
    assert found.fooled.tolist() == [True, True]
    alone = one_pixel(Linear(weight, -1.0), images[1:], labels[1:], values=(0.25, 0.75))
    assert torch.equal(alone.images, found.images[1:])


def test_robust_accuracy_is_the_share_of_right_answers():
    model, weight, images, _ = linear_task(count=300)
    right = (images.flatten(1) @ weight.flatten() <= 0).long()
    assert robust_accuracy(model, images, right) == 1.0
    right[:75] = 1 - right[:75]
    assert robust_accuracy(model, images, right) == 0.75


def test_errors_that_teach():
    model, _, images, labels = linear_task()
    with pytest.raises(ValueError, match="0 … 1, got values from"):
        fgsm(model, images * 3 - 1, labels, 0.1)
    with pytest.raises(ValueError, match="several objects"):
        pgd(model, images, torch.stack([labels, labels], dim=1), 0.1)
    with pytest.raises(ValueError, match="epsilon"):
        pgd(model, images, labels, -0.1)
    with pytest.raises(ValueError, match="step must"):
        pgd(model, images, labels, 0.1, step=-1.0)
    with pytest.raises(ValueError, match="values"):
        one_pixel(model, images, labels, values=(2.0,))
    with pytest.raises(ValueError, match="batch, channels"):
        robust_accuracy(model, images[0], labels[:1])
