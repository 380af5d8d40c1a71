"""A network that is defined here, of no class of the library's models, is explained and explored."""

import json

import pytest
import torch
from checked_html import Checked
from fastapi.testclient import TestClient
from torch import nn

from torchcaps import CapsuleLoss, Capsules
from torchcaps.analysis.couplings import routing_by_layer, routing_flow
from torchcaps.data.images import Images, ImageSet
from torchcaps.explorer import create_app, make_subject
from torchcaps.explorer.subjects import to_base64
from torchcaps.layers import CapsuleConv2d, CapsuleLinear, PrimaryCapsules2d, ReconstructionDecoder
from torchcaps.models.output import ModelOutput
from torchcaps.report import Facts, explain
from torchcaps.training.tasks import ImageTask

NAMES = ("bar", "disc", "ring")


class Shapes(nn.Module):
    """A stem with a residual block and pooling, primary capsules, a layer of capsules on the grid, three classes."""

    def __init__(self, decoder=False, hidden=None):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.block = nn.Conv2d(8, 8, 3, padding="same")
        self.skip = nn.Conv2d(8, 8, 1)
        self.pool = nn.MaxPool2d(2)
        self.parts = PrimaryCapsules2d(8, 4, 6, 3, stride=2)
        self.middle = hidden or CapsuleConv2d(4, 5, 2, in_pose=6, routing="dynamic")
        below = 5 * 4 * 4 if hidden is None else hidden.out_capsules
        self.shapes = CapsuleLinear(below, 6, 3, 8)
        if decoder:
            self.decoder = ReconstructionDecoder(3, 8, (1, 24, 24), (16,))

    def primary_capsules(self, images):
        features = torch.relu(self.first(images))
        return self.parts(self.pool(torch.relu(self.skip(features) + self.block(features))))

    def capsule_layers(self):
        return [("middle", self.middle), ("shapes", self.shapes)]

    def forward(self, images, target=None):
        capsules = self.shapes(self.middle(self.primary_capsules(images)))
        drawn = self.decoder(capsules, target) if hasattr(self, "decoder") else None
        return ModelOutput(capsules.activation, capsules, drawn)


@pytest.fixture(scope="module")
def source():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 60, (18, 1, 24, 24), generator=generator, dtype=torch.uint8)
    labels = torch.arange(18) % 3
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 8 * label : 8 * label + 8] += 150
    return Images(ImageSet(images, labels, NAMES))


TASK = ImageTask(NAMES, (1, 24, 24))


def made(**options):
    torch.manual_seed(0)
    return Shapes(**options)


@pytest.mark.parametrize("decoder", [False, True])
def test_a_report_of_ones_own_model(source, tmp_path, decoder):
    model = made(decoder=decoder).train()
    told = []
    facts = Facts("shapes-net", "shapes", loss=CapsuleLoss())
    report = explain(model, TASK, source, tmp_path, facts=facts, progress=lambda *step: told.append(step[0]))
    page = Checked(report.page.read_text(encoding="utf-8"))
    sections = {"reconstructions", "dimensions"} if decoder else {"predictions"}
    assert page.ids == sections | {"measures", "routing", "movements"}
    assert "shapes-net on shapes" in page.said
    assert [layer["name"] for layer in report.numbers["routing"]["layers"]] == ["middle", "shapes"]
    direct = routing_by_layer(model, source.batch(torch.arange(18), 0).inputs)
    assert report.numbers["routing"]["layers"][0]["entropy"] == pytest.approx(direct[0].entropy.tolist(), rel=1e-4)
    assert report.numbers["classes"] == list(NAMES)
    assert json.loads((tmp_path / "numbers.json").read_text()) == report.numbers
    assert (told[0], told[-1]) == ("answers", "movements")
    assert model.training, "the mode is as it was"


def test_without_a_known_loss_there_are_no_gradients(source, tmp_path):
    report = explain(made(), TASK, source, tmp_path, facts=Facts("m", "d"), images=4)
    assert "gradients" not in report.numbers["routing"]
    assert "Gradients per layer" not in report.page.read_text(encoding="utf-8")


def test_what_parts_see_through_ones_own_stem():
    """With positive weights all that a part sees has a gradient; the pooling looks at one of four pixels only."""
    model = made().eval()
    with torch.no_grad():
        for conv in (model.first, model.block, model.skip, model.parts.conv):
            conv.weight.abs_()
    flow = routing_flow(model, torch.rand(1, 24, 24))
    # Two of 3: 5 about each pixel; pooled: 6, every 2; of 3 with stride 2: 10, every 4; windows of 2: 14, every 4.
    assert flow.patch == (14, 14)
    assert flow.places.shape == (4, 4, 2)
    assert flow.places[0, 0].tolist() == [4.5, 4.5]
    assert flow.places[3, 1].tolist() == [16.5, 8.5]
    model.pool = nn.AvgPool2d(2)
    image = torch.rand(1, 1, 24, 24, requires_grad=True)
    part = model.parts.conv(model.pool(torch.relu(model.skip(f := torch.relu(model.first(image))) + model.block(f))))
    seen = sum(part[0, :, row, column].sum() for row in (1, 2) for column in (1, 2))  # a window of 2×2 parts
    pixels = torch.autograd.grad(seen, image)[0][0, 0] > 0
    rows, columns = pixels.any(dim=1).nonzero()[:, 0], pixels.any(dim=0).nonzero()[:, 0]
    assert (rows.min() + rows.max()) / 2 == flow.places[1, 1, 0]
    assert rows.max() - rows.min() + 1 == columns.max() - columns.min() + 1 == 14


def test_a_hidden_layer_that_sees_everything(source, tmp_path):
    model = made(hidden=CapsuleLinear(5 * 5 * 4, 6, 7, 6))
    flow = routing_flow(model, torch.rand(1, 24, 24))
    assert flow.places.shape == (1, 1, 2)
    assert flow.child_activation.shape == (1, 1, 7)
    assert flow.patch == (26, 26), "five parts of 10 pixels, 4 pixels apart"
    assert explain(model, TASK, source, tmp_path, facts=Facts("m", "d"), images=4).page.exists()


class Halved(Shapes):
    """Its pooling is no module."""

    def primary_capsules(self, images):
        return self.parts(nn.functional.avg_pool2d(self.first(images), 2))


def test_a_function_that_changes_the_size_is_told_of():
    with pytest.raises(ValueError, match=r"what features of 12×12 see .* Use modules such as nn.MaxPool2d"):
        routing_flow(Halved(), torch.rand(1, 24, 24))


def test_capsules_without_a_way_to_look_into_them(source, tmp_path):
    class Closed(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(24 * 24, 12)

        def forward(self, images, target=None):
            capsules = Capsules.from_pose(self.line(images.flatten(1)).view(-1, 3, 4).tanh() / 2)
            return ModelOutput(capsules.activation, capsules)

    report = explain(Closed(), TASK, source, tmp_path, facts=Facts("m", "d"))
    assert Checked(report.page.read_text(encoding="utf-8")).ids == {"predictions", "measures", "movements"}


def test_ones_own_model_is_explored(source):
    subject = make_subject("own", "My shapes", made(decoder=True).eval(), TASK)
    assert subject.info.architecture == "Shapes"
    assert subject.info.measure == "length"
    assert subject.info.classes == list(NAMES)
    pixels = to_base64(source.data.images[0])
    look, routing = subject.look(pixels), subject.routing(pixels)
    assert len(look.lengths) == 3
    assert len(look.drawings) == 1
    assert len(routing.parts) == 4 * 4 * 5
    assert routing.patch == (14, 14)
    assert subject.decode(1, look.poses[1]).label == 1


def test_ones_own_model_is_served():
    subject = make_subject("own", "My shapes", made().eval(), TASK)
    client = TestClient(create_app(subjects=[subject], pretrained=False))
    assert client.get("/api/models").json()["models"][0]["title"] == "My shapes"
