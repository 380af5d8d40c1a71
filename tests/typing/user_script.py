"""What a user writes, as a type checker sees it: every call has a type, and that type is the real one."""

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import assert_type, override

import torchcaps
import torchcaps.analysis.attacks
from torchcaps import (
    CapsuleConv1d,
    CapsuleConv2d,
    CapsuleLinear,
    CapsuleLoss,
    Capsules,
    ClassCapsules,
    MatrixPrimaryCapsules2d,
    ModelOutput,
    Prediction,
    PrimaryCapsules1d,
    PrimaryCapsules2d,
    ReconstructionDecoder,
    Run,
    check_finite,
    create_model,
    list_models,
    list_pretrained,
    load,
    margin_loss,
    register_model,
    register_routing,
    squash,
    use_backend,
)
from torchcaps.losses import LossParts
from torchcaps.models import CapsNet, Model, ModelConfig, capsnet_small
from torchcaps.ops import RoutingOutput, dynamic_routing, em_routing, routed_linear, uniform_routing, vector_output
from torchcaps.routing import DynamicRouting, EMRouting, FrozenRouting, Routing, resolve_routing, unregister_routing
from torchcaps.training.tasks import Task


class Network(torch.nn.Module):
    """Layers of the package in a network of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.primary = PrimaryCapsules2d(1, types=2, dim=4, kernel_size=3, stride=3, device="cpu", dtype=torch.float32)
        self.classes = CapsuleLinear(2 * 4 * 4, 4, 3, 8, routing={"name": "dynamic", "iterations": 2})
        self.decoder = ReconstructionDecoder(3, 8, (1, 12, 12), hidden=(16,))

    @override
    def forward(self, images: Tensor, target: Tensor | None = None) -> ModelOutput:
        parts = assert_type(self.primary(images), Capsules)
        wholes = assert_type(self.classes(parts), Capsules)
        assert_type(self.classes.route(parts, trace=True), RoutingOutput)
        return ModelOutput(wholes.activation, wholes, assert_type(self.decoder(wholes, target), Tensor))


class MeanRouting(Routing):
    """A routing of one's own."""

    @override
    def forward(
        self, votes: Tensor, activation: Tensor | None = None, mask: Tensor | None = None, trace: bool = False
    ) -> RoutingOutput:
        coupling = torch.full_like(votes[..., 0], 1 / votes.shape[2])
        return vector_output(squash(torch.einsum("bij,bijd->bjd", coupling, votes)), coupling)


def layers() -> None:
    """Every layer is typed."""
    features = torch.rand(2, 4, 6, 6)
    matrices = assert_type(MatrixPrimaryCapsules2d(4, types=3)(features), Capsules)
    grid = assert_type(CapsuleConv2d(3, 2, kernel_size=3, routing=EMRouting(2))(matrices), Capsules)
    classes = assert_type(ClassCapsules(2, classes=5)(grid), Capsules)
    assert_type(classes.activation, Tensor)
    assert_type(classes.mask, Tensor | None)
    words = assert_type(PrimaryCapsules1d(4, types=3, dim=4)(features[..., 0], None), Capsules)
    assert_type(CapsuleConv1d(3, 2, 3, in_pose=4, routing="dynamic")(words).flatten(), Capsules)
    frozen = torchcaps.layers.CapsuleLinear(6, 6, 2, 2, FrozenRouting())
    assert_type(frozen(Capsules.from_pose(features[0])), Capsules)


def routings() -> None:
    """Every routing is typed."""
    votes, activation = torch.rand(2, 6, 3, 4), torch.rand(2, 6)
    routed = assert_type(DynamicRouting(2)(votes), RoutingOutput)
    assert_type(routed.coupling, Tensor | None)
    assert_type(resolve_routing("dynamic"), Routing)
    assert_type(resolve_routing("uniform")(votes, activation, trace=True).pose, Tensor)
    assert_type(MeanRouting()(votes, activation), RoutingOutput)
    assert_type(register_routing("typed-mean")(MeanRouting), type[MeanRouting])
    assert_type(list(MeanRouting().config), list[str])
    unregister_routing("typed-mean")


def ops() -> None:
    """The functions below the layers."""
    votes, activation = torch.rand(2, 6, 3, 4), torch.rand(2, 6)
    assert_type(dynamic_routing(votes, 3), RoutingOutput)
    assert_type(uniform_routing(votes).activation, Tensor)
    assert_type(em_routing(votes, activation, torch.zeros(3), torch.zeros(3)).pose, Tensor)
    assert_type(routed_linear(torch.rand(2, 6, 5), torch.rand(6, 3, 5, 4)).pose, Tensor)
    assert_type(torchcaps.ops.squash(votes), Tensor)
    with check_finite(), use_backend("torch"):
        assert_type(dynamic_routing(votes, 3).pose, Tensor)


def models() -> None:
    """Models by name, by function, trained ones, and what they were made from."""
    model = assert_type(create_model("capsnet-small", (1, 12, 12), 3, routing="em", device="cpu"), Model)
    output = assert_type(model(torch.rand(2, 1, 12, 12)), ModelOutput)
    assert_type(output.capsules, Capsules | None)
    assert_type(output.scores.argmax(dim=1), Tensor)
    assert_type(capsnet_small((1, 12, 12), 3, shared=True).primary_capsules(torch.rand(2, 1, 12, 12)), Capsules)
    if model.config is not None:
        again = assert_type(ModelConfig.from_dict(model.config.to_dict()), ModelConfig)
        assert_type(again.build(dtype=torch.float64), Model)
    run = assert_type(load(list_pretrained()[0]), Run)
    assert_type(run.task, Task)
    trained = assert_type(run.model, Model)
    assert_type(trained.eval()(torch.rand(2, 1, 28, 28)).scores, Tensor)
    for answer in run.predict(torch.zeros(2, 28, 28)):
        assert_type(answer, Prediction)
        assert_type(answer.label, str)
        assert_type(answer.score, float)
    assert_type(torchcaps.analysis.attacks.fgsm(trained, torch.rand(1, 1, 28, 28), torch.tensor([3]), 0.1), Tensor)
    assert_type(list_models("words"), list[str])


@register_model("typed-model")
def small(input_shape: tuple[int, int, int], classes: int, *, routing: str = "dynamic") -> CapsNet:
    """A model of one's own."""
    return capsnet_small(input_shape, classes, routing=routing, decoder=False)


def train() -> float:
    """A training loop of one's own."""
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    images = torch.zeros(60, 1, 12, 12)
    images[torch.arange(60), 0, 4 * labels + 1] = 1  # a bar at one of three heights
    model, loss = Network(), CapsuleLoss("margin", reconstruction_scale=0.0005)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(10):
        for batch, target in DataLoader(TensorDataset(images, labels), batch_size=20):
            parts = assert_type(loss(model(batch, target), target, batch), LossParts)
            optimizer.zero_grad()
            parts.total.backward()  # type: ignore[no-untyped-call] # torch's own
            optimizer.step()
    output: ModelOutput = model(images)
    assert_type(loss(output.scores, labels), LossParts)
    if output.capsules is not None:
        assert_type(loss(output.capsules, labels).total, Tensor)
    assert_type(margin_loss(output.scores, labels), Tensor)
    return float((output.scores.argmax(dim=1) == labels).double().mean())


def main() -> None:
    """Everything above runs, so that the types are those of real values."""
    layers()
    routings()
    ops()
    models()
    assert_type(small((1, 12, 12), 3), CapsNet)
    assert train() > 0.9


if __name__ == "__main__":
    main()
