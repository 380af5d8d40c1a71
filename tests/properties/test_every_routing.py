"""What must hold for every routing, on the day it is registered, with each of its options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchcaps import list_routings
from torchcaps.testing import ROUTING_CHECKS, prepared_routing, routing_case

ROUTINGS = {name: name for name in list_routings()}
ROUTINGS |= {
    "dynamic-replace": {"name": "dynamic", "update": "replace"},
    "dynamic-last": {"name": "dynamic", "gradient": "last"},
    "dynamic-bias-prior": {"name": "dynamic", "bias": True, "prior": True},
    "dynamic-leaky-amend": {"name": "dynamic", "leaky": True, "amend": True},
    "dynamic-half": {"name": "dynamic", "squash": "half"},
    "optimized-falling": {"name": "optimized", "alpha": [2.0, 1.0, 0.5]},
    "kmeans-inner": {"name": "kmeans", "distance": "inner", "sharpness": [0.5, 1.0, 2.0]},
    "em-counting": {"name": "em", "inverse_temperature": "counting", "mass": None},
    "em-apart": {"name": "em", "compete_within": 1},
    "random-other": {"name": "random", "seed": 5},
}
sizes = st.integers(1, 6)
QUICK = [name for name in ROUTING_CHECKS if name not in ("compile", "gradients")]


@pytest.mark.parametrize("routing", ROUTINGS)
@given(batch=st.integers(1, 4), children=sizes, parents=sizes, size=sizes, seed=st.integers(0, 999))
def test_quick_properties_on_random_shapes(routing, batch, children, parents, size, seed):
    case = routing_case(batch, children, parents, size, seed=seed)
    for name in QUICK:
        ROUTING_CHECKS[name](prepared_routing(ROUTINGS[routing], case), case)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("shape", [(2, 7, 3, 5), (1, 5, 2, 9), (2, 3, 4, 1)], ids=str)
def test_gradcheck(routing, shape):
    case = routing_case(*shape)
    ROUTING_CHECKS["gradients"](prepared_routing(ROUTINGS[routing], case), case)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_compile_without_graph_breaks(routing):
    case = routing_case()
    ROUTING_CHECKS["compile"](prepared_routing(ROUTINGS[routing], case), case)
