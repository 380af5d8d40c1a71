"""What widely used capsule implementations get wrong, each as a named test."""

import gzip
import math

import pytest
import torch
from sklearn.datasets import load_digits

from benchmarks import capsnet_small
from torchcaps import Capsules, create_model, list_models, list_routings
from torchcaps.layers import CapsuleConv2d, CapsuleLinear, PrimaryCapsules2d
from torchcaps.losses import CapsuleLoss, margin_loss, reconstruction_loss
from torchcaps.ops import dynamic_routing, em_routing
from torchcaps.ops.dynamic import dynamic_routing_reference


def test_trap_softmax_over_the_children():
    coupling = dynamic_routing(torch.randn(2, 7, 3, 4)).coupling
    torch.testing.assert_close(coupling.sum(dim=2), torch.ones(2, 7))
    assert (coupling.sum(dim=1) - 1).abs().max() > 0.1


def test_trap_view_without_permute_scrambles_primary_capsules():
    layer = PrimaryCapsules2d(1, types=3, dim=4, kernel_size=1)
    image = torch.randn(1, 1, 5, 5)
    before = layer(image).pose
    image[0, 0, 2, 3] += 1  # one pixel may change the capsules of its position only, all types of it
    changed = (layer(image).pose != before).any(dim=-1)[0]
    assert changed[2, 3].all()
    changed[2, 3] = False
    assert not changed.any()
    with torch.no_grad():
        layer.conv.weight[4:8] += 1  # channels 4..7 are type 1 and nothing else
    changed = (layer(image).pose != before).any(dim=-1)[0]
    changed[2, 3] = torch.tensor([False, True, False])
    assert changed[..., 1].all()
    assert not changed[..., [0, 2]].any()


@pytest.mark.parametrize("name", list_models("images"))
def test_trap_logits_shared_by_the_batch(name):
    model = create_model(name, (1, 17, 17), 4).eval()
    images = torch.rand(5, 1, 17, 17)
    with torch.no_grad():
        together = model(images).scores
        alone = torch.cat([model(image[None]).scores for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["capsnet", "capsnet-small"])
def test_trap_black_image_gives_nan(name):
    model = create_model(name, (1, 17, 17), 4)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter.zero_()
    images, target = torch.zeros(2, 1, 17, 17), torch.tensor([0, 3])
    loss = CapsuleLoss()(model(images, target), target, images).total
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("iterations", range(1, 6))
def test_trap_iterations_miscounted(iterations):
    votes = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    out = dynamic_routing(votes, iterations)
    pose, _ = dynamic_routing_reference(votes, iterations)
    torch.testing.assert_close(out.pose, pose)
    more, _ = dynamic_routing_reference(votes, iterations + 1)
    assert (out.pose - more).abs().max() > 1e-4


def test_trap_em_ignores_the_activations():
    votes, activation, zero = torch.randn(1, 5, 3, 4), torch.full((1, 5), 0.5), torch.zeros(3)
    before = em_routing(votes, activation, zero, zero)
    activation[0, 2] = 0.9
    after = em_routing(votes, activation, zero, zero)
    assert (before.pose - after.pose).abs().max() > 1e-3
    assert (before.activation - after.activation).abs().max() > 1e-5


def test_trap_convolution_windows_scrambled():
    layer = PrimaryCapsules2d(2, types=3, dim=2, kernel_size=3, stride=2).double()
    image = torch.randn(1, 2, 7, 9, dtype=torch.float64)
    whole = layer(image).pose
    for row in range(3):
        for column in range(4):
            window = image[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            torch.testing.assert_close(layer(window).pose[:, 0, 0], whole[:, row, column])


@pytest.mark.parametrize("routing", ["em", "dynamic"])
def test_trap_windows_of_convolutional_capsules_scrambled(routing):
    layer = CapsuleConv2d(2, 3, 3, 2, routing=routing, compete="types").double()
    pose, activation = torch.randn(1, 7, 9, 2, 4, 4, dtype=torch.float64), torch.rand(1, 7, 9, 2, dtype=torch.float64)
    whole = layer(Capsules(pose, activation))
    for row in range(3):
        for column in range(4):
            rows, columns = slice(2 * row, 2 * row + 3), slice(2 * column, 2 * column + 3)
            window = layer(Capsules(pose[:, rows, columns], activation[:, rows, columns]))
            torch.testing.assert_close(window.pose[:, 0, 0], whole.pose[:, row, column])
            torch.testing.assert_close(window.activation[:, 0, 0], whole.activation[:, row, column])


def test_trap_margin_loss_on_softmax_or_not_squared():
    lengths = torch.tensor([[0.9, 0.1, 0.1]])  # reachable by lengths, never by a softmax over them
    assert float(margin_loss(lengths, torch.tensor([0]))) == pytest.approx(0, abs=1e-12)
    half = torch.tensor([[0.4, 0.1, 0.1]])
    assert math.isclose(float(margin_loss(half, torch.tensor([0]))), 0.25, rel_tol=1e-5)  # 0.5², not 0.5


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 36, 36), (3, 32, 32)])
def test_trap_reconstruction_averaged_then_scaled_as_if_summed(shape):
    loss = reconstruction_loss(torch.ones(2, *shape), torch.zeros(2, *shape), scale=0.0005)
    assert math.isclose(float(loss), 0.0005 * math.prod(shape), rel_tol=1e-5)


@pytest.mark.parametrize("routing", list_routings())
def test_trap_weight_scale_fails_to_train(routing):
    """One epoch over 1,000 real digits from scikit-learn: far better than chance, for every routing."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None].div(16)
    images = torch.nn.functional.interpolate(images, scale_factor=3)  # [1797, 1, 24, 24]
    labels = torch.tensor(digits.target)
    model = create_model("capsnet-small", (1, 24, 24), 10, routing=routing, decoder=False)
    loss = CapsuleLoss("spread" if routing == "em" else "margin", margin=0.5)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for index in torch.randperm(1000).split(16):
        optimizer.zero_grad()
        loss(model(images[index]), labels[index]).total.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(images[1000:]).scores.argmax(dim=1) == labels[1000:]).float().mean()
    assert accuracy > 0.6, f"{accuracy:.1%} after one epoch"


def test_trap_selection_by_the_test_set(tmp_path, monkeypatch):
    """The one choice this project made, that of capsnet-small, reads training files only and augments training only."""
    (tmp_path / "mnist").mkdir()
    for name, header, count in (("train-images-idx3-ubyte.gz", 16, 784), ("train-labels-idx1-ubyte.gz", 8, 1)):
        with gzip.open(tmp_path / "mnist" / name, "wb") as file:
            file.write(bytes(header) + bytes(range(10)) * (2 * count))
    images, labels = capsnet_small.load(tmp_path)  # there is no test file that could be read
    assert len(images) == len(labels) == 20
    chosen, held_out = capsnet_small.split(60_000)
    assert not set(chosen.tolist()) & set(held_out.tolist())
    seen = []
    monkeypatch.setattr(capsnet_small, "shifted", lambda batch: seen.append(batch) or batch)
    train, judge = (images[:12], labels[:12]), (images[12:] + 2, labels[12:])
    capsnet_small.run("capsnet-small", 0, 1, train, judge)
    assert sum(map(len, seen)) == 12
    assert max(float(batch.max()) for batch in seen) <= 1  # the digits to judge by, marked with +2, were never shifted


def test_trap_the_childs_presence_is_lost_between_layers():
    layer = CapsuleLinear(5, 4, 3, 4, "em")
    pose = torch.randn(1, 5, 4)
    quiet, loud = (layer(Capsules(pose, activation)) for activation in (torch.rand(1, 5), torch.rand(1, 5)))
    assert (quiet.pose - loud.pose).abs().max() > 1e-4
