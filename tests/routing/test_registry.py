import pytest
import torch

from torchcaps import list_routings, register_routing
from torchcaps.layers import CapsuleLinear
from torchcaps.ops import frozen_routing, squash, vector_output
from torchcaps.routing import DynamicRouting, EMRouting, Routing, resolve_routing, unregister_routing
from torchcaps.testing import assert_routing


def mean_routing(votes, *, activation=None, mask=None, trace=False, sharpness=1.0):
    """Every parent gets the mean of its votes: the example of a user's own routing."""
    coupling = votes.new_full(votes.shape[:3], 1 / votes.shape[2])
    if mask is not None:
        coupling = coupling * mask[:, :, None]
        votes = votes.masked_fill(~mask[:, :, None, None], 0)
    return vector_output(squash(sharpness * torch.einsum("bij,bijd->bjd", coupling, votes)), coupling)


@pytest.fixture
def registered():
    register_routing("test-mean")(mean_routing)
    yield
    unregister_routing("test-mean")


def test_known_names():
    assert {"dynamic", "optimized", "kmeans", "em", "uniform", "random", "frozen"} <= set(list_routings())


def test_name_mapping_and_instance_resolve():
    assert isinstance(resolve_routing("dynamic"), DynamicRouting)
    assert resolve_routing({"name": "em", "iterations": 5}).iterations == 5
    instance = EMRouting(iterations=2)
    assert resolve_routing(instance) is instance


def test_one_decorator_makes_a_function_a_routing(registered):
    layer = CapsuleLinear(6, 4, 3, 5, routing={"name": "test-mean", "sharpness": 2.0})
    from torchcaps import Capsules

    assert layer(Capsules.from_pose(torch.rand(2, 6, 4))).pose.shape == (2, 3, 5)
    assert_routing("test-mean", skip=("trace",))
    assert_routing(mean_routing, skip=("trace",))
    assert "mean_routing, sharpness=2.0" in repr(layer)


def test_a_wrong_routing_is_caught():
    def wrong_axis(votes, *, activation=None, mask=None, trace=False):
        coupling = votes.sum(-1).softmax(dim=1)  # over the children
        return vector_output(squash(torch.einsum("bij,bijd->bjd", coupling, votes)), coupling)

    def mixes_the_batch(votes, *, activation=None, mask=None, trace=False):
        coupling = votes.sum(-1).mean(dim=0, keepdim=True).softmax(dim=-1).expand(votes.shape[:3])
        return vector_output(squash(torch.einsum("bij,bijd->bjd", coupling, votes)), coupling)

    with pytest.raises(AssertionError, match="Σ_j c_ij must be 1"):
        assert_routing(wrong_axis)
    with pytest.raises(AssertionError, match="differs alone and in a batch"):
        assert_routing(mixes_the_batch)
    with pytest.raises(ValueError, match="no such check: traces"):
        assert_routing("dynamic", skip=("traces",))


def test_a_state_outside_the_state_dict_is_caught():
    class Forgetful(Routing):
        def make_parameters(self, children, parents, size):
            self.table = torch.rand(children, parents, dtype=torch.float64).softmax(dim=-1)

        permutation_invariant = False

        def forward(self, votes, activation=None, mask=None, trace=False):
            return frozen_routing(votes, self.table.to(votes), mask=mask, trace=trace)

    with pytest.raises(AssertionError, match="the state dict lacks a part"):
        assert_routing(Forgetful)


def test_functions_may_take_any_options():
    def anything(votes, *, activation, mask, trace, **options):
        return mean_routing(votes, mask=mask, sharpness=options["sharpness"])

    register_routing("test-anything")(anything)
    try:
        assert_routing({"name": "test-anything", "sharpness": 2.0}, skip=("trace",))
    finally:
        unregister_routing("test-anything")


def test_registering_badly_is_refused():
    with pytest.raises(ValueError, match="already registered"):
        register_routing("dynamic")(mean_routing)
    with pytest.raises(TypeError, match="lacks activation, mask, trace"):
        register_routing("x")(lambda votes: votes)
    with pytest.raises(TypeError, match="must be a subclass"):
        register_routing("x")(dict)
    assert "x" not in list_routings()


def test_unknown_names_and_options_teach():
    with pytest.raises(ValueError, match=r"unknown routing 'dynamc'. Did you mean 'dynamic'"):
        resolve_routing("dynamc")
    with pytest.raises(TypeError, match=r"routing 'uniform' cannot be made with .*iterations"):
        resolve_routing({"name": "uniform", "iterations": 3})
    with pytest.raises(ValueError, match="needs a 'name'"):
        resolve_routing({"iterations": 3})
    with pytest.raises(TypeError, match="a name, a mapping with a name, or a Routing"):
        resolve_routing(3)


def test_unknown_option_of_a_function_names_the_nearest(registered):
    with pytest.raises(ValueError, match="unknown option of routing mean_routing 'sharpnes'. Did you mean 'sharpness'"):
        resolve_routing({"name": "test-mean", "sharpnes": 2})


def test_a_routing_without_forward_says_so():
    with pytest.raises(TypeError, match="must implement forward"):
        Routing()(torch.zeros(1, 1, 1, 1))


def test_a_routing_without_a_coupling_is_told_so():
    def silent(votes, *, activation=None, mask=None, trace=False):
        return vector_output(squash(votes.sum(dim=1)), votes[..., 0])._replace(coupling=None)

    with pytest.raises(AssertionError, match=r"a routing gives its coupling \[B, I, J\], got None"):
        assert_routing(silent)
