"""Models know what they were made from."""

import copy
import json
import pickle

import pytest
import torch

from torchcaps import create_model, list_models
from torchcaps.models import Model, ModelConfig, ModelOutput, capsnet_small, cnn_small, register_model
from torchcaps.models.registry import _models, input_kind
from torchcaps.plain import shorten
from torchcaps.routing import DynamicRouting, FrozenRouting, OptimizedRouting, Routing, register_routing
from torchcaps.routing.registry import unregister_routing

SMALL = ("capsnet-small", (1, 14, 14), 3)


@pytest.fixture
def registered():
    """Register models that are forgotten afterwards."""
    before = dict(_models)
    yield register_model
    _models.clear()
    _models.update(before)


@pytest.mark.parametrize("name", list_models())
def test_every_model_can_be_made_again_from_json(name):
    shape = (300, 16) if input_kind(name) == "words" else (1, 28, 28)
    model = create_model(name, shape, 4, device="meta")
    assert isinstance(model, Model)
    config = ModelConfig.from_dict(json.loads(json.dumps(model.config.to_dict())))
    assert config == model.config
    assert hash(config) == hash(model.config)
    again = config.build(device="meta")
    assert again.config == config
    assert [(key, value.shape) for key, value in again.state_dict().items()] == [
        (key, value.shape) for key, value in model.state_dict().items()
    ]
    if not name.startswith(("cnn-baseline", "capsnet", "matrix-capsnet")) or "small" in name:
        torch.manual_seed(1)
        first = create_model(name, shape, 4)
        torch.manual_seed(1)
        second = config.build()
        for one, other in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
            assert torch.equal(one, other)


def test_options_are_complete_and_equal_options_make_equal_configs():
    config = create_model(*SMALL).config
    assert config.to_dict() == {
        "name": "capsnet-small",
        "input_shape": [1, 14, 14],
        "classes": 3,
        "options": {"routing": "dynamic", "shared": False, "squash": "sabour", "decoder": True, "objects": 1},
    }
    same = [
        capsnet_small((1, 14, 14), 3).config,
        capsnet_small(image_shape=[1, 14, 14], classes=3, shared=False).config,
        create_model(*SMALL, squash="sabour", routing={"name": "dynamic"}).config,
        create_model(*SMALL, routing=DynamicRouting()).config,
        ModelConfig(*SMALL),
    ]
    others = [
        create_model(*SMALL, routing=DynamicRouting(2)).config,
        create_model(*SMALL, decoder=False).config,
        create_model("capsnet-small", (1, 14, 14), 4).config,
        cnn_small((1, 14, 14), 3).config,
    ]
    assert all(one == config for one in same)
    assert not any(one == config for one in others)
    one_class = capsnet_small((1, 14, 14), 1)  # create_model wants two
    assert one_class.config.build().config == one_class.config
    with pytest.raises(TypeError, match="options of a model are a mapping of names to values, got None"):
        ModelConfig(*SMALL, None)
    assert config != "capsnet-small"
    assert len({config, *same}) == 1
    deep = [create_model("capsnet-deep", stem=stem).config for stem in (((8, 3), (8, 3)), [[8, 3], [8, 3]])]
    assert deep[0] == deep[1]


def test_a_routing_is_described_and_used_as_it_is():
    routing = FrozenRouting(source=DynamicRouting(2, leaky=True), after=3)
    model = create_model(*SMALL, routing=routing)
    assert model.class_capsules.routing is routing
    described = {
        "name": "frozen",
        "source": {"name": "dynamic", "iterations": 2, "leaky": True},
        "after": 3,
    }
    assert model.config.to_dict()["options"]["routing"] == described
    again = model.config.build().class_capsules.routing
    assert again is not routing
    assert again.config == described


def test_the_config_goes_with_copies_and_not_with_weights():
    model = create_model(*SMALL, routing=DynamicRouting(2))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)):
        assert other.config == model.config
        assert other.class_capsules.routing.config == {"name": "dynamic", "iterations": 2}
    assert not any("config" in key for key in model.state_dict())
    plain = create_model(*SMALL)
    plain.load_state_dict(model.state_dict())
    assert plain.config != model.config


def test_models_with_a_config_are_exported_and_compiled():
    model, images = create_model(*SMALL).eval(), torch.rand(2, 1, 14, 14)
    wanted = model(images).scores
    exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images).scores, wanted)
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(images).scores, wanted)


class Mean(Routing):
    def forward(self, votes, activation=None, mask=None, trace=False):
        return DynamicRouting(1)(votes, activation, mask, trace)


@pytest.mark.parametrize(
    ("routing", "sentence"),
    [
        (lambda: Mean(), "Mean has no name by which plain data could tell of it: register it"),
        (lambda: OptimizedRouting(alpha=lambda step: 1.0), "alpha is <function.*which plain data cannot hold"),
        (lambda: {"name": "optimized", "alpha": lambda step: 1.0}, "routing is <function.*plain data cannot hold"),
    ],
)
def test_what_is_no_plain_data_is_told_when_it_is_asked_for(routing, sentence):
    model = create_model(*SMALL, routing=routing())
    assert copy.deepcopy(model).config == model.config
    for ask in (model.config.to_dict, model.config.build):
        with pytest.raises(ValueError, match=sentence):
            ask()


def test_a_routing_that_is_a_function_has_the_name_it_is_registered_under():
    @register_routing("even-for-config")
    def even(votes, *, activation=None, mask=None, trace=False, sharpness=1.0):
        return DynamicRouting(1)(votes, activation, mask, trace)

    try:
        model = create_model(*SMALL, routing={"name": "even-for-config", "sharpness": 2.0})
        assert model.class_capsules.routing.config == {"name": "even-for-config", "sharpness": 2.0}
        assert model.config.build().config == model.config
    finally:
        unregister_routing("even-for-config")


def test_a_users_function(registered):
    class Own(torch.nn.Module):
        def __init__(self, size, classes, width):
            super().__init__()
            self.layer = torch.nn.Linear(size, classes * width)

        def forward(self, images, target=None):
            return ModelOutput(self.layer(images.flatten(1)))

    @registered("own-function")
    def make(input_shape, classes, width=2, *, depth=3):
        return Own(input_shape[1], classes, width)

    class OwnConfig(Own):
        config = "mine"

    @registered("own-config")
    def make_config(input_shape, classes, **options):
        return OwnConfig(input_shape[1], classes, **options)

    @registered("own-class")
    class Whole(Own):
        def __init__(self, input_shape, classes, width=1):
            super().__init__(input_shape[1], classes, width)

    model = create_model("own-function", (1, 4, 1), 5, device="meta", dtype=torch.float64)
    assert model.layer.weight.is_meta
    assert model.layer.weight.dtype == torch.float64
    assert model.config.options == {"width": 2, "depth": 3}
    assert make((1, 4, 1), 5, 7).config == make((1, 4, 1), 5, width=7, depth=3).config
    assert make((1, 4, 1), 5, 7).config.build().layer.out_features == 35
    assert make.__name__ == "make"
    with pytest.raises(TypeError, match=r"make\(\) missing 1 required positional argument: 'classes'"):
        make((1, 4, 1))
    assert create_model("own-config", (1, 4, 1), 5, width=2).config == "mine"
    assert isinstance(Whole, type)
    assert create_model("own-class", (1, 4, 1), 5).config.options == {"width": 1}


def test_device_and_dtype():
    torch.manual_seed(0)
    single = create_model(*SMALL, routing="em")
    torch.manual_seed(0)
    double = create_model(*SMALL, routing="em", device="cpu", dtype=torch.float64)
    assert double.config == single.config
    for one, other in zip(single.parameters(), double.parameters(), strict=True):
        assert other.dtype == torch.float64
        assert torch.equal(one.double(), other)
    assert double(torch.rand(2, 1, 14, 14, dtype=torch.float64)).scores.dtype == torch.float64
    text = create_model("text-capsnet-a", (50, 8), 3, device="meta", dtype=torch.bfloat16)
    assert all(tensor.is_meta and tensor.dtype == torch.bfloat16 for tensor in text.parameters())
    with pytest.raises(TypeError, match="dtype must be a floating point type"):
        create_model(*SMALL, dtype=torch.int8)


GOOD = {"name": "capsnet-small", "input_shape": [1, 14, 14], "classes": 3, "options": {}}
DEEP = []
for _ in range(2000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "capsnet-small",
        {},
        GOOD | {"more": 1},
        GOOD | {"more": 10**5000},
        {1: 2, **GOOD},
        GOOD | {"name": "os.system"},
        GOOD | {"name": ["capsnet-small"]},
        GOOD | {"name": "x" * 10_000_000},
        GOOD | {"input_shape": [1, 14]},
        GOOD | {"input_shape": [1, 14, 14.0]},
        GOOD | {"input_shape": [1, 14, True]},
        GOOD | {"input_shape": [1, 14, -14]},
        GOOD | {"input_shape": "111"},
        GOOD | {"input_shape": [1, 1, 10**30]},
        GOOD | {"classes": 0},
        GOOD | {"classes": True},
        GOOD | {"classes": "3"},
        GOOD | {"classes": 10**5000},
        GOOD | {"classes": [3]},
        GOOD | {"options": []},
        GOOD | {"options": {"nonsense": 1}},
        GOOD | {"options": {"device": "cuda"}},
        GOOD | {"options": {1: 1}},
        GOOD | {"options": {"routing": {"name": "dynamic", "iterations": 10**6}}},
        GOOD | {"options": {"routing": DEEP}},
        GOOD | {"options": {"decoder": [1] * 5000}},
        GOOD | {"options": {"squash": float("nan")}},
        GOOD | {"options": {"squash": print}},
        GOOD | {"options": {"routing": DynamicRouting()}},
        GOOD | {"options": {"squash": "x" * 10_000_000}},
    ],
    ids=shorten,
)
def test_a_hostile_dictionary_is_refused_in_a_sentence(wrong):
    with pytest.raises((ValueError, TypeError)) as caught:
        ModelConfig.from_dict(wrong)
    assert type(caught.value).__module__ == "torchcaps.errors"
    assert len(str(caught.value)) < 1000
