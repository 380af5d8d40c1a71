"""A routing knows what it was made with."""

import copy
import inspect
import pickle

import pytest

from torchcaps import list_routings
from torchcaps.layers import CapsuleLinear, ClassCapsules
from torchcaps.routing import (
    DynamicRouting,
    EMRouting,
    FrozenRouting,
    FunctionRouting,
    KMeansRouting,
    OptimizedRouting,
    RandomRouting,
    Routing,
    resolve_routing,
)


@pytest.mark.parametrize(
    ("routing", "config"),
    [
        (DynamicRouting(5, leaky=True), {"name": "dynamic", "iterations": 5, "leaky": True}),
        (EMRouting(inverse_temperature=(1, 2, 3.5)), {"name": "em", "inverse_temperature": [1, 2, 3.5]}),
        (OptimizedRouting(2, alpha=[1.0, 2.0]), {"name": "optimized", "iterations": 2, "alpha": [1.0, 2.0]}),
        (KMeansRouting(distance="inner"), {"name": "kmeans", "distance": "inner"}),
        (RandomRouting(seed=3), {"name": "random", "seed": 3}),
        (FrozenRouting(source=EMRouting(2)), {"name": "frozen", "source": {"name": "em", "iterations": 2}}),
        (FrozenRouting(source="em", after=4), {"name": "frozen", "source": "em", "after": 4}),
    ],
)
def test_the_mapping_makes_the_same_routing(routing, config):
    assert routing.config == config
    assert resolve_routing(routing.config).config == config
    CapsuleLinear(6, 4, 3, 5, routing)
    assert copy.deepcopy(routing).config == pickle.loads(pickle.dumps(routing)).config == config


@pytest.mark.parametrize("name", list_routings())
def test_every_routing_has_one(name):
    assert resolve_routing(name).config == {"name": name}


def test_it_says_what_was_given_and_not_what_became_of_it():
    layer = ClassCapsules(3, 2, routing=EMRouting(2))
    assert layer.routing.inverse_temperature == "authors-class"
    assert layer.routing.config == {"name": "em", "iterations": 2}
    assert DynamicRouting(3).with_iterations(7).config == {"name": "dynamic", "iterations": 3}


def test_a_subclass_keeps_its_own_arguments():
    class Deeper(DynamicRouting):
        def __init__(self, depth, *rest, **options):
            super().__init__(depth * 2, **options)

    assert Deeper(2).iterations == 4
    with pytest.raises(ValueError, match="Deeper has no name by which plain data could tell of it: register it"):
        _ = Deeper(2).config
    assert Deeper(2, leaky=True)._given == {"depth": 2, "leaky": True}


def test_signatures_and_errors_of_constructors_stay_what_they_are():
    assert {"iterations", "bias", "leaky"} <= set(inspect.signature(DynamicRouting).parameters)
    assert DynamicRouting.__init__.__name__ == "__init__"
    with pytest.raises(TypeError, match="has no option 'leeky'. Did you mean 'leaky'"):
        DynamicRouting(leeky=True)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        FrozenRouting("em")


def test_what_plain_data_cannot_hold():
    for routing in (
        OptimizedRouting(alpha=lambda step: 1.0),
        FrozenRouting(source=OptimizedRouting(alpha=lambda step: 2.0)),
    ):
        assert isinstance(copy.deepcopy(routing), Routing)
        with pytest.raises(ValueError, match="alpha is <.*function.* which plain data cannot hold"):
            _ = routing.config

    def unknown(votes, *, activation, mask, trace):
        raise NotImplementedError

    with pytest.raises(ValueError, match="FunctionRouting has no name"):
        _ = FunctionRouting(unknown).config
