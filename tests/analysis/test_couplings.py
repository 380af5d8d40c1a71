"""Couplings with known entropy, capsules known to be dead, and receptive fields found by brute force."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from torchcaps import create_model
from torchcaps.analysis.couplings import (
    coupling_entropy,
    dead_capsules,
    flip_rates,
    polarisation,
    routing_by_layer,
    routing_flow,
)
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.convolution import Conv
from torchcaps.models.matrix_capsnet import MatrixCapsNet


def test_uniform_couplings():
    for parents in (2, 5, 10):
        coupling = torch.full((3, 7, parents), 1 / parents)
        torch.testing.assert_close(coupling_entropy(coupling), torch.full((3,), math.log(parents)))
        torch.testing.assert_close(polarisation(coupling), torch.zeros(3), atol=1e-6, rtol=0)


def test_couplings_to_one_parent():
    coupling = F.one_hot(torch.tensor([0, 3, 3, 1]), 4).float()
    assert float(coupling_entropy(coupling)) == 0
    assert float(polarisation(coupling)) == 1


def test_couplings_by_hand():
    coupling = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert float(coupling_entropy(coupling)) == pytest.approx(math.log(2) / 2)
    assert float(polarisation(coupling)) == pytest.approx(((3 * 0.5 - 1) / 2 + 1) / 2)


def test_rows_are_normalised_and_children_that_send_nothing_left_out():
    coupling = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    leaky = torch.cat([coupling * torch.tensor([[0.1], [3.0]]), torch.zeros(2, 3)])
    torch.testing.assert_close(coupling_entropy(leaky), coupling_entropy(coupling))
    torch.testing.assert_close(polarisation(leaky), polarisation(coupling))
    assert float(coupling_entropy(torch.zeros(2, 3))) == float(polarisation(torch.zeros(2, 3))) == 0


def test_flips_are_counted():
    """Of four images one changes its class in the second iteration, two in the third."""
    winners = torch.tensor([[0, 1, 2, 0], [0, 2, 2, 0], [1, 2, 0, 0]])
    activation = F.one_hot(winners, 3) * 0.5 + 0.1
    assert flip_rates(activation).tolist() == [0.25, 0.5]
    assert flip_rates(activation[:1]).shape == (0,)


def test_the_order_of_several_objects_is_no_flip():
    activation = torch.tensor([[[0.9, 0.8, 0.1]], [[0.8, 0.9, 0.1]], [[0.8, 0.1, 0.9]]])
    assert flip_rates(activation, objects=2).tolist() == [0, 1]
    assert flip_rates(activation, objects=1).tolist() == [1, 1]


def test_dead_capsules_are_never_active():
    activation = torch.tensor([[0.005, 0.0, 0.9], [0.009, 0.02, 0.0]])
    assert dead_capsules(activation).tolist() == [True, False, False]
    assert dead_capsules(activation, least=0.5).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="at least one image"):
        dead_capsules(torch.zeros(0, 3))


MODELS = ["capsnet-small", "matrix-capsnet-small", "matrix-capsnet"]
SMALL = {"matrix-capsnet": {"channels": 8, "types": (3, 4, 5)}}


def small(name: str, classes: int = 4, size: int = 28, **options):
    return create_model(name, (1, size, size), classes, **SMALL.get(name, {}), **options)


@pytest.mark.parametrize("name", MODELS)
def test_uniform_routing_is_uniform_in_every_layer(name):
    model = small(name, routing="uniform")
    parents = {"capsnet-small": [4], "matrix-capsnet-small": [32, 4], "matrix-capsnet": [4, 5, 4]}[name]
    layers = routing_by_layer(model, torch.rand(5, 1, 28, 28), batch=2)
    between = [f"conv_capsules.{at}" for at in range(len(parents) - 1)]
    assert [layer.name for layer in layers] == [*between, "class_capsules"]
    for layer, count in zip(layers, parents, strict=True):
        assert layer.entropy.tolist() == pytest.approx([math.log(count)], abs=1e-5)
        assert layer.largest_entropy == pytest.approx(math.log(count))
        assert layer.polarisation.tolist() == pytest.approx([0], abs=1e-5)
        torch.testing.assert_close(layer.received, torch.ones_like(layer.received))
        assert layer.objective.shape == layer.agreement.shape == (1,)
    assert [layer.flips is None for layer in layers] == [True] * (len(parents) - 1) + [False]


@pytest.mark.parametrize("routing", ["random", "frozen"])
def test_routings_without_iterations_have_one(routing):
    layer = routing_by_layer(small("capsnet-small", routing=routing), torch.rand(3, 1, 28, 28))[0]
    assert layer.entropy.shape == (1,)
    assert layer.flips is not None
    assert layer.flips.shape == (0,)


@pytest.mark.parametrize("name", MODELS)
def test_the_first_iteration_is_uniform_and_all_numbers_are_of_the_trace(name):
    """EM lets a child choose among the parents at all positions: their number differs in the middle and at the edge."""
    model, images = small(name).eval(), torch.rand(4, 1, 28, 28)
    layers = routing_by_layer(model, images)
    for layer in layers:
        assert float(layer.entropy[0]) == pytest.approx(layer.largest_entropy, rel=1e-5)
        assert (layer.entropy <= layer.largest_entropy + 1e-5).all()
        assert float(layer.polarisation[0]) == pytest.approx(0, abs=1e-5)
        assert (layer.agreement.abs() <= 1).all()
    capsules = model.primary_capsules(images)
    if name != "capsnet-small":
        capsules = model.conv_capsules(capsules)
    trace = model.class_capsules.route(capsules, trace=True).trace
    by_hand = coupling_entropy(trace.coupling.reshape(len(trace.coupling), 4, -1, 4)).mean(dim=1)
    torch.testing.assert_close(layers[-1].entropy, by_hand)
    torch.testing.assert_close(layers[-1].objective, trace.objective.mean(dim=1))
    torch.testing.assert_close(layers[-1].flips, flip_rates(trace.activation.reshape(len(by_hand), 4, 4)))


def test_children_on_a_grid_choose_among_all_parents_that_see_them():
    """A 4×4 grid under windows of 3×3: corners are in one window, edges in two, the middle in four; 5 types."""
    model = MatrixCapsNet((1, 8, 8), 3, stem=[Conv(4, 5)], types=2, layers=[Conv(5, 3)])
    layer = routing_by_layer(model, torch.rand(3, 1, 8, 8))[0]
    seen_by = [1] * 4 + [2] * 8 + [4] * 4
    assert layer.largest_entropy == pytest.approx(sum(math.log(5 * windows) for windows in seen_by) / 16)
    assert float(layer.entropy[0]) == pytest.approx(layer.largest_entropy)
    assert layer.dead_children.shape == (4 * 4 * 2,)
    assert layer.dead_parents.shape == layer.received.shape == (2 * 2 * 5,)


def test_agreement_is_the_mean_cosine_weighted_by_length_and_coupling():
    model, images = small("capsnet-small").eval(), torch.rand(3, 1, 28, 28)
    capsules = model.primary_capsules(images)
    trace, votes = model.class_capsules.route(capsules, trace=True).trace, model.class_capsules.votes(capsules)
    cosine = F.cosine_similarity(votes, trace.pose[-1][:, None], dim=-1)
    weight = trace.coupling[-1] * votes.norm(dim=-1)
    expected = ((weight * cosine).sum(dim=(1, 2)) / weight.sum(dim=(1, 2))).mean()
    torch.testing.assert_close(routing_by_layer(model, images)[0].agreement[-1], expected.detach())


def test_on_a_grid_agreement_and_what_is_received_are_those_of_every_window():
    torch.manual_seed(0)
    model = MatrixCapsNet((1, 10, 10), 3, stem=[Conv(4, 5)], types=2, layers=[Conv(3, 3, 2)]).eval()
    images = torch.rand(2, 1, 10, 10)
    found = routing_by_layer(model, images)[0]
    layer, capsules = model.conv_capsules[0], model.primary_capsules(images)
    trace, votes = layer.route(capsules, trace=True).trace, layer.votes(capsules)
    for step, (coupling, pose) in enumerate(zip(trace.coupling.detach(), trace.pose.detach(), strict=True)):
        agreements = []
        for image in range(2):
            agree = total = 0.0
            for at in itertools.product(*map(range, coupling.shape[1:])):  # window, place, type, parent
                vote, whole = votes[image][at].detach().flatten(), pose[image, at[0], at[3]].flatten()
                agree += float(coupling[image][at] * (vote @ whole) / whole.norm())
                total += float(coupling[image][at] * vote.norm())
            agreements.append(agree / total)
        assert float(found.agreement[step]) == pytest.approx(sum(agreements) / 2, abs=1e-5)
    got = trace.coupling[-1].detach().sum(dim=(2, 3))  # [image, window, parent]
    expected = (got / got.mean(dim=2, keepdim=True)).mean(dim=0).flatten()
    torch.testing.assert_close(found.received, expected)
    assert float(found.received.max() - found.received.min()) > 1e-3, "not uniform"


def test_what_is_received_is_relative_to_an_even_share():
    """Couplings that are the same for every child and image: a parent receives its share times their number."""
    model = small("capsnet-small", routing="frozen").eval()
    share = torch.tensor([0.1, 0.2, 0.3, 0.4])
    routing = model.class_capsules.routing
    routing.coupling.copy_(share.expand_as(routing.coupling))
    routing.is_frozen.fill_(True)
    received = routing_by_layer(model, torch.rand(3, 1, 28, 28))[0].received
    torch.testing.assert_close(received, 4 * share)


def test_dead_capsules_made_by_hand_are_found():
    model = small("capsnet-small")
    with torch.no_grad():
        model.primary.conv.weight[:8] = 0  # the first of eight types sees nothing,
        model.primary.conv.bias[:8] = 0
        model.class_capsules.weight *= 10  # class capsules are short before they are trained
        model.class_capsules.weight[:, 2] = 0  # and nobody votes for the third class
    layer = routing_by_layer(model, torch.rand(6, 1, 28, 28))[0]
    dead = layer.dead_children.view(-1, 8)
    assert dead[:, 0].all()
    assert not dead[:, 1:].any()
    assert layer.dead_parents.tolist() == [False, False, True, False]


@pytest.mark.parametrize("name", MODELS)
def test_batches_make_no_difference_and_the_mode_is_kept(name):
    model, images = small(name).train(), torch.rand(10, 1, 28, 28)
    for whole, parts in zip(routing_by_layer(model, images), routing_by_layer(model, images, batch=3), strict=True):
        for one, other in zip(whole[1:], parts[1:], strict=True):
            torch.testing.assert_close(one, other)
    assert model.training


@pytest.mark.parametrize("name", MODELS)
def test_the_flow_of_an_image(name):
    model, image = small(name).eval(), torch.rand(1, 28, 28)
    flow = routing_flow(model, image)
    output = model(image[None])
    steps, height, width, types, classes = flow.coupling.shape
    assert classes == 4
    assert flow.child_activation.shape == (height, width, types)
    assert flow.places.shape == (height, width, 2)
    torch.testing.assert_close(flow.parent_activation[-1], output.scores[0].detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(flow.coupling.sum(dim=-1), torch.ones(steps, height, width, types))


def padded_capsnet(size: int) -> CapsNet:
    """Convolutions with padding and different strides in a row."""
    return CapsNet((1, size, size), 3, stem=[Conv(3, 5, 2, 2), Conv(3, 3)], primary=Conv(8, 3, 2, 1), primary_dim=4,
                   class_dim=4)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda size: small("capsnet-small", size=size), 28),
        (lambda size: small("capsnet-small", size=size), 36),
        (lambda size: small("capsnet-small", size=size), 14),  # on a canvas of 17: one pixel before, two after
        (lambda size: small("matrix-capsnet", size=size), 33),
        (lambda size: small("matrix-capsnet-small", size=size), 32),
        (padded_capsnet, 20),
    ],
)
def test_places_are_the_middle_of_what_a_child_sees(make, size):
    """With positive weights every pixel that a child sees has a gradient; at the border the field is cut off."""
    model = make(size).eval()
    convs = [module for module in (*model.stem, model.primary.conv) if isinstance(module, torch.nn.Conv2d)]
    with torch.no_grad():
        for conv in convs:
            conv.weight.abs_()
    image = torch.rand(1, 1, size, size, requires_grad=True)
    features = model.primary.conv(model.stem(image))  # [1, ·, H, W]
    ones = features.sum(dim=1).flatten()
    seen = torch.stack([torch.autograd.grad(one, image, retain_graph=True)[0][0, 0] > 0 for one in ones])
    grid, layers = tuple(features.shape[2:]), getattr(model, "conv_capsules", ())
    flow = routing_flow(model, image.detach()[0])
    for layer in layers:  # a parent sees what its children see
        windows = layer.windows(grid)
        seen, grid = seen[windows.table()].any(dim=1), windows.out()
    places = flow.places.flatten(0, 1)
    field = 1
    for layer in reversed([*convs, *layers]):
        kernel, stride = layer.kernel_size[0], layer.stride[0]
        field = (field - 1) * stride + kernel
    assert flow.patch == (field, field)
    for (row, column), pixels in zip(places.tolist(), seen, strict=True):
        for centre, along in ((row, pixels.any(dim=1)), (column, pixels.any(dim=0))):
            first, last = int(along.nonzero().min()), int(along.nonzero().max())
            assert first == max(0, centre - (field - 1) / 2)
            assert last == min(size - 1, centre + (field - 1) / 2)


def test_models_without_capsules_are_refused():
    model = create_model("cnn-small", (1, 28, 28), 3)
    with pytest.raises(ValueError, match="has no capsules"):
        routing_by_layer(model, torch.rand(2, 1, 28, 28))
    with pytest.raises(ValueError, match="has no capsules"):
        routing_flow(model, torch.rand(1, 28, 28))
    with pytest.raises(ValueError, match="one image"):
        routing_flow(small("capsnet-small"), torch.rand(2, 1, 28, 28))
    with pytest.raises(ValueError, match="at least one"):
        routing_by_layer(small("capsnet-small"), torch.rand(0, 1, 28, 28))
