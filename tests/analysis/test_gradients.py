"""Gradients that can be computed by hand, and a model that is afterwards as it was."""

import math

import pytest
import torch
from torch import nn

from torchcaps import create_model
from torchcaps.analysis.gradients import evaluating, gradient_norms
from torchcaps.capsules import Capsules
from torchcaps.data.images import Batch
from torchcaps.losses import CapsuleLoss
from torchcaps.models.output import ModelOutput


class Linear(nn.Module):
    """Scores W x as if they were lengths of capsules, and layers that have no part in them."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2, bias=False)  # registered before the first, used after it
        self.first = nn.Linear(3, 2, bias=False)
        self.dropout = nn.Dropout(0.9)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.0, 0.1]]))
            self.second.weight.copy_(torch.eye(2))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> ModelOutput:
        scores = self.dropout(self.second(self.first(inputs)))
        return ModelOutput(scores, Capsules(scores[..., None], scores))


def one_image() -> Batch:
    return Batch(torch.tensor([[1.0, 2.0, -1.0]]), torch.tensor([0]), torch.zeros(1, 3))


def test_a_gradient_known_by_hand():
    r"""Scores s = (0.5, 0.2), label 0: L = (0.9 − s₀)² + ½ (s₁ − 0.1)², so ∂L/∂s = (−0.8, 0.1)."""
    found = {layer.name: layer for layer in gradient_norms(Linear(), one_image(), CapsuleLoss("margin"))}
    slope = math.sqrt(0.8**2 + 0.1**2)
    assert found["first"].gradient == pytest.approx(slope * math.sqrt(1 + 4 + 1), rel=1e-5)  # ‖∂L/∂s ⊗ x‖
    assert found["second"].gradient == pytest.approx(slope * math.sqrt(0.5**2 + 0.2**2), rel=1e-5)  # ‖∂L/∂s ⊗ s‖
    assert found["first"].weight == pytest.approx(math.sqrt(0.01 + 0.04 + 0.09 + 0.01), rel=1e-5)
    assert found["second"].weight == pytest.approx(math.sqrt(2))
    assert found["first"].ratio == pytest.approx(found["first"].gradient / found["first"].weight)
    assert (found["first"].parameters, found["unused"].parameters) == (6, 6)


def test_a_layer_that_is_not_used_has_no_gradient():
    found = {layer.name: layer for layer in gradient_norms(Linear(), one_image(), CapsuleLoss("margin"))}
    assert found["unused"].gradient == found["unused"].ratio == 0
    assert found["unused"].weight > 0


def test_layers_come_in_the_order_of_use():
    names = [layer.name for layer in gradient_norms(Linear(), one_image(), CapsuleLoss("margin"))]
    assert names.index("first") < names.index("second")


def test_weights_that_are_zero_have_no_ratio_and_frozen_ones_no_gradient():
    model = Linear()
    with torch.no_grad():
        model.second.weight.zero_()
    model.first.requires_grad_(False)
    found = {layer.name: layer for layer in gradient_norms(model, one_image(), CapsuleLoss("margin"))}
    assert math.isnan(found["second"].ratio)
    assert found["first"].gradient == 0
    assert found["first"].weight > 0
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter"):
        gradient_norms(model, one_image(), CapsuleLoss("margin"))


def test_the_model_is_afterwards_as_it_was():
    model = Linear()
    model.train()
    model.unused.eval()
    model.first.weight.grad = torch.full((2, 3), 7.0)
    modes = [module.training for module in model.modules()]
    with torch.no_grad():  # also where a caller has switched gradients off
        gradient_norms(model, one_image(), CapsuleLoss("margin"))
    assert (model.first.weight.grad == 7).all()
    assert model.second.weight.grad is None
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_mode_is_restored_after_an_error():
    model = Linear()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        _ = 1 / int(model.training)  # zero: the model evaluates
    assert model.training


@pytest.mark.parametrize(
    ("name", "loss", "last"),
    [("capsnet-small", "margin", "decoder.layers.4"), ("matrix-capsnet-small", "spread", "class_capsules.routing")],
)
def test_networks_of_capsules(name, loss, last):
    model = create_model(name, (1, 28, 28), 4)
    images = torch.rand(3, 1, 28, 28)
    layers = gradient_norms(model, Batch(images, torch.tensor([0, 3, 1]), images), CapsuleLoss(loss))
    assert sum(layer.parameters for layer in layers) == sum(parameter.numel() for parameter in model.parameters())
    assert layers[0].name == "stem.0"
    assert layers[-1].name == last
    assert all(layer.gradient > 0 for layer in layers)


def test_shared_parameters_are_counted_once():
    model = Linear()
    model.unused = model.second
    layers = gradient_norms(model, one_image(), CapsuleLoss("margin"))
    assert sum(layer.parameters for layer in layers) == 4 + 6
