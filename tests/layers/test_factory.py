"""Device and dtype of a layer's weights, given when it is made, as torch's own layers take them."""

import pytest
import torch
from torch.nn.utils import skip_init

from torchcaps.layers import (
    CapsuleConv1d,
    CapsuleConv2d,
    CapsuleLinear,
    ClassCapsules,
    MatrixPrimaryCapsules2d,
    PrimaryCapsules1d,
    PrimaryCapsules2d,
    ReconstructionDecoder,
)
from torchcaps.routing import DynamicRouting, EMRouting, FrozenRouting, Routing

LEARNED = {"name": "dynamic", "bias": True, "prior": True}
FROZEN = {"name": "frozen", "source": "em", "after": 1}
# A layer, its arguments, and the sum of its weights and buffers when it is made with seed 7.
LAYERS = [
    pytest.param(CapsuleLinear, (6, 4, 3, 5), {}, -4.52184, id="linear"),
    pytest.param(CapsuleLinear, (6, 4, 3, 5, LEARNED), {}, -3.02184, id="linear-learned"),
    pytest.param(CapsuleLinear, (6, 4, 3, 5, FROZEN), {}, 1.47816, id="linear-frozen"),
    pytest.param(CapsuleLinear, (None, 4, 3, 5), {"shared": True}, -1.38853, id="linear-shared"),
    pytest.param(CapsuleConv2d, (3, 2, 3, 2), {}, -4.42373, id="conv2d"),
    pytest.param(CapsuleConv1d, (3, 2, 3), {"in_pose": 4, "routing": "dynamic"}, -4.79971, id="conv1d"),
    pytest.param(CapsuleConv1d, (3, 2, 3), {"routing": "dynamic", "positions": 5}, 12.89293, id="conv1d-positions"),
    pytest.param(ClassCapsules, (3, 2), {}, -4.84457, id="classes"),
    pytest.param(PrimaryCapsules1d, (4, 3, 2), {}, 0.58465, id="primary1d"),
    pytest.param(PrimaryCapsules2d, (4, 3, 2, 3), {}, -0.10384, id="primary2d"),
    pytest.param(MatrixPrimaryCapsules2d, (4, 3), {}, -3.73509, id="matrix-primary"),
    pytest.param(ReconstructionDecoder, (3, 4, (1, 5, 5), (8,)), {}, -2.91724, id="decoder"),
]
every_layer = pytest.mark.parametrize(("kind", "sizes", "options", "total"), LAYERS)


def tensors(layer):
    found = layer.state_dict().values()
    assert found
    return found


@every_layer
def test_weights_of_a_seed_stay_what_they_are(kind, sizes, options, total):
    torch.manual_seed(7)
    layer = kind(*sizes, **options)
    torch.testing.assert_close(sum(float(tensor.sum()) for tensor in tensors(layer)), total, rtol=0, atol=1e-4)
    torch.manual_seed(7)
    given = kind(*sizes, **options, device="cpu", dtype=torch.float32)
    for one, other in zip(tensors(layer), tensors(given), strict=True):
        assert torch.equal(one, other)


@every_layer
def test_every_weight_is_of_the_type_and_on_the_device(kind, sizes, options, total):
    layer = kind(*sizes, **options, device="meta", dtype=torch.float64)
    for tensor in tensors(layer):
        assert tensor.is_meta
        assert tensor.dtype == torch.float64 or not tensor.is_floating_point()
    assert all(parameter.requires_grad for parameter in layer.parameters())


@every_layer
def test_initialisation_can_be_skipped(kind, sizes, options, total):
    layer = skip_init(kind, *sizes, **options, device="cpu")
    wanted = kind(*sizes, **options).state_dict()
    layer.load_state_dict(wanted)
    for name, tensor in layer.state_dict().items():
        assert torch.equal(tensor, wanted[name])


@pytest.mark.parametrize("dtype", ["float32", float, torch.int64, torch.complex64])
@every_layer
def test_other_types_are_refused(kind, sizes, options, total, dtype):
    with pytest.raises(TypeError, match=r"dtype must be a floating point type such as torch\.float32.*got "):
        kind(*sizes, **options, dtype=dtype)


def test_a_routing_of_ones_own_lands_there_too():
    class Learned(Routing):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))  # does not depend on sizes

        def make_parameters(self, children, parents, size):
            self.shift = torch.nn.Parameter(torch.zeros(parents, size))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    layer = CapsuleLinear(6, 4, 3, 5, Learned(), device="meta", dtype=torch.bfloat16)
    assert {name: tensor.dtype for name, tensor in layer.routing.state_dict().items()} == {
        "scale": torch.bfloat16,
        "shift": torch.bfloat16,
        "steps": torch.int64,
    }
    assert all(tensor.is_meta for tensor in tensors(layer))


def test_a_routing_that_was_built_keeps_its_parameters():
    routing = EMRouting()
    routing.build(6, 3, 5)
    layer = CapsuleLinear(6, 4, 3, 5, routing, dtype=torch.float64)
    assert layer.weight.dtype == torch.float64
    assert routing.beta_u.dtype == torch.float32


@pytest.mark.parametrize("routing", [LEARNED, FROZEN, "em"])
def test_from_meta_to_first_values(routing):
    """What frameworks do that shard a model: make it on meta, give it memory, let every module draw its values."""
    layer = CapsuleLinear(6, 4, 3, 5, routing, device="meta").train().to_empty(device="cpu")
    for module in layer.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    fresh = CapsuleLinear(6, 4, 3, 5, routing).routing.state_dict()
    for name, tensor in layer.routing.state_dict().items():
        assert torch.equal(tensor, fresh[name]), name


def test_forgetting_a_frozen_coupling():
    routing = FrozenRouting(source=DynamicRouting(2))
    routing.build(6, 3, 5)
    routing.freeze(torch.rand(2, 6, 3, 5))
    assert bool(routing.is_frozen)
    routing.reset_parameters()
    assert not bool(routing.is_frozen)
    assert torch.equal(routing.coupling, torch.full((6, 3), 1 / 3))
