"""Routing with other numbers of iterations: what each of them is, and sums by hand."""

import math

import pytest
import torch

from torchcaps import create_model
from torchcaps.analysis.couplings import routing_by_layer
from torchcaps.analysis.iterations import _sum_up, vary_iterations

IMAGES = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("capsnet-small", {}),
        ("capsnet-small", {"routing": "em"}),
        ("capsnet-small", {"routing": "optimized"}),
        ("matrix-capsnet-small", {}),
        ("matrix-capsnet-small", {"routing": "dynamic"}),
    ],
)
def test_each_number_is_a_model_with_so_many_iterations(name, options):
    model = create_model(name, (1, 28, 28), 4, **options).eval()
    found = vary_iterations(model, IMAGES, LABELS, most=6)
    assert found.trained == model.class_capsules.routing.iterations
    assert found.entropy.shape == (6,)
    for count in (1, 3, 6):
        model.class_capsules.routing.iterations = count
        with torch.no_grad():
            activation = model(IMAGES).capsules.activation
        layer = routing_by_layer(model, IMAGES)[-1]
        torch.testing.assert_close(found.entropy[count - 1], layer.entropy[-1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.polarisation[count - 1], layer.polarisation[-1], rtol=1e-3, atol=1e-5)
        right = (activation.argmax(dim=1) == LABELS).double().mean()
        assert float(found.accuracy[count - 1]) == pytest.approx(float(right))
        shown = activation[torch.arange(5), LABELS]
        assert float(found.present[count - 1]) == pytest.approx(float(shown.mean()), rel=1e-4)
        others = (activation.sum() - shown.sum()) / (4 * 5 - 5)
        assert float(found.absent[count - 1]) == pytest.approx(float(others), rel=1e-4)


def test_sums_by_hand():
    """Two iterations, two images of two objects among three classes; the second iteration changes one answer."""
    activation = torch.tensor([[[0.9, 0.8, 0.1], [0.1, 0.7, 0.5]], [[0.9, 0.3, 0.6], [0.2, 0.8, 0.6]]])
    zeros = torch.zeros(2, 2)
    found = _sum_up(1, zeros, zeros + 0.5, activation, torch.tensor([[1, 0], [2, 1]]))
    assert found.accuracy.tolist() == [1.0, 0.5]
    assert found.changed.tolist() == [0.0, 0.5]
    assert found.present.tolist() == pytest.approx([(0.9 + 0.8 + 0.7 + 0.5) / 4, (0.9 + 0.3 + 0.8 + 0.6) / 4])
    assert found.absent.tolist() == pytest.approx([0.1, 0.4])
    assert found.polarisation.tolist() == [0.5, 0.5]


def test_the_first_iteration_is_uniform_and_the_model_stays_as_it_was():
    model = create_model("capsnet-small", (1, 28, 28), 4)
    found = vary_iterations(model, IMAGES, LABELS)
    assert found.entropy.shape == (20,)
    assert float(found.entropy[0]) == pytest.approx(math.log(4), abs=1e-5)
    assert model.class_capsules.routing.iterations == 3
    assert model.training


@pytest.mark.parametrize("routing", ["uniform", "random", {"name": "optimized", "alpha": [1.0, 0.5, 0.25]}])
def test_where_there_is_no_other_number(routing):
    model = create_model("capsnet-small", (1, 28, 28), 4, routing=routing)
    assert vary_iterations(model, IMAGES, LABELS) is None
