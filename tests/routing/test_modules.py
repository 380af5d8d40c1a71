import pytest
import torch

from torchcaps import Capsules
from torchcaps.layers import CapsuleConv2d, CapsuleLinear
from torchcaps.ops import dynamic_routing, squash, vector_output
from torchcaps.routing import (
    DynamicRouting,
    EMRouting,
    FrozenRouting,
    KMeansRouting,
    OptimizedRouting,
    RandomRouting,
    Routing,
    list_routings,
    register_routing,
    resolve_routing,
    unregister_routing,
)

VOTES = torch.randn(3, 6, 4, 5, generator=torch.Generator().manual_seed(0))


def test_learned_parameters_have_the_papers_start():
    routing = DynamicRouting(bias=True, prior=True)
    routing.build(6, 4, 5)
    assert routing.bias.shape == (4, 5)
    assert (routing.bias == 0.1).all()
    assert routing.prior.shape == (6, 4)
    assert (routing.prior == 0).all()
    any_number = DynamicRouting(prior=True)
    any_number.build(None, 4, 5)
    assert any_number.prior.shape == (4,)
    assert not list(DynamicRouting().parameters())


def test_parameters_need_sizes_first():
    for routing in (EMRouting(), DynamicRouting(bias=True), FrozenRouting()):
        with pytest.raises(RuntimeError, match=r"call build\(children, parents, size\)"):
            routing(VOTES, torch.rand(3, 6))


def test_one_instance_serves_layers_of_one_size_only():
    routing = EMRouting()
    CapsuleLinear(6, 4, 3, 5, routing)
    CapsuleLinear(6, 4, 3, 5, routing)  # shared on purpose
    with pytest.raises(ValueError, match="needs its own instance"):
        CapsuleLinear(6, 4, 2, 5, routing)


def test_partial_sampling_is_for_training_only_and_seeded():
    routing = DynamicRouting(partial_sampling=0.5)
    torch.testing.assert_close(routing.eval()(VOTES).pose, dynamic_routing(VOTES).pose)
    routing.train()
    torch.manual_seed(3)
    first = routing(VOTES).coupling
    torch.manual_seed(3)
    assert torch.equal(first, routing(VOTES).coupling)
    assert ((first > 0).any(dim=1).sum(dim=-1) == 2).all()


def test_frozen_keeps_the_first_training_batch_and_saves_it():
    routing = FrozenRouting(source={"name": "dynamic", "iterations": 2})
    routing.build(6, 4, 5)
    uniform = routing.eval()(VOTES).coupling
    torch.testing.assert_close(uniform, torch.full((3, 6, 4), 0.25))
    routing.train()(VOTES)
    expected = dynamic_routing(VOTES, 2).coupling.mean(dim=0)
    torch.testing.assert_close(routing.coupling, expected)
    routing(torch.randn_like(VOTES))
    torch.testing.assert_close(routing.coupling, expected)

    resumed = FrozenRouting()
    resumed.build(6, 4, 5)
    resumed.load_state_dict(routing.state_dict())
    resumed.train()(torch.randn_like(VOTES))  # loaded as frozen: does not start anew
    torch.testing.assert_close(resumed.coupling, expected)


def test_frozen_averages_over_the_images_that_have_the_child():
    routing = FrozenRouting()
    routing.build(6, 4, 5)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1:, 5] = False
    routing.freeze(VOTES, mask=mask)
    torch.testing.assert_close(routing.coupling.sum(dim=1), torch.ones(6))


def test_frozen_never_freezes_nothing():
    routing = FrozenRouting(source="em")
    routing.build(6, 4, 5)
    routing.train()(VOTES[:0], torch.rand(0, 6))
    torch.testing.assert_close(routing.coupling, torch.full((6, 4), 0.25))
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[:, 5] = False
    routing(VOTES, torch.rand(3, 6), mask)
    torch.testing.assert_close(routing.coupling[5], torch.full((4,), 0.25))
    assert (routing.coupling[:5] != 0.25).any()
    assert not any(parameter.requires_grad for parameter in routing.parameters())


def test_a_refused_build_leaves_the_routing_free():
    routing = FrozenRouting()
    with pytest.raises(ValueError, match="must be fixed"):
        routing.build(None, 4, 5)
    routing.build(6, 4, 5)


def test_frozen_needs_a_fixed_number_of_children():
    with pytest.raises(ValueError, match="number of children must be fixed"):
        CapsuleLinear(None, 4, 3, 5, "frozen", shared=True)


def test_bad_options_are_refused_when_made():
    for make, message in (
        (lambda: DynamicRouting(0), "iterations must be at least 1"),
        (lambda: DynamicRouting(partial_sampling=1.5), "partial_sampling must be in"),
        (lambda: DynamicRouting(squash="smash"), "unknown squash kind"),
        (lambda: DynamicRouting(prior=True, update="replace", gradient="last"), "learns nothing"),
        (lambda: OptimizedRouting(alpha=0), "alpha must be positive"),
        (lambda: KMeansRouting(sharpness=-1), "sharpness must be positive"),
        (lambda: KMeansRouting(distance="x"), "unknown distance"),
        (lambda: EMRouting(inverse_temperature=[1.0]), "gives 1 values for 3 iterations"),
        (lambda: RandomRouting(squash="x"), "unknown squash kind"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_routings_show_their_options():
    assert "iterations=3" in repr(DynamicRouting())
    assert "alpha=0.5" in repr(OptimizedRouting(alpha=0.5))
    assert "inverse_temperature='counting'" in repr(EMRouting(inverse_temperature="counting"))
    assert "seed=4" in repr(RandomRouting(seed=4))


def test_mixed_precision_keeps_the_table_in_the_votes_type():
    layer = CapsuleLinear(6, 4, 3, 5, "random").double()
    assert layer(Capsules.from_pose(torch.rand(2, 6, 4, dtype=torch.float64))).pose.dtype == torch.float64


def test_frozen_after_a_while_keeps_what_the_source_found():
    torch.manual_seed(0)
    layer = CapsuleLinear(12, 4, 3, 5, routing={"name": "frozen", "after": 3})
    with torch.no_grad():
        layer.weight.mul_(8)  # votes long enough for a coupling that is not uniform
    frozen, dynamic = layer.routing, DynamicRouting()
    parts = Capsules.from_pose(torch.rand(6, 12, 4))
    expected = dynamic(layer.votes(parts))
    for _ in range(3):
        torch.testing.assert_close(layer.train()(parts).pose, expected.pose)
    assert not bool(frozen.is_frozen)
    torch.testing.assert_close(layer.eval()(parts).pose, expected.pose)
    layer.train()(parts)
    assert bool(frozen.is_frozen)
    torch.testing.assert_close(frozen.coupling, expected.coupling.mean(dim=0))
    assert float(frozen.coupling.std()) > 0.05, "another uniform coupling would be no control"
    kept = frozen.coupling.clone()
    layer.train()(Capsules.from_pose(torch.rand(6, 12, 4)))
    assert torch.equal(frozen.coupling, kept)
    again = CapsuleLinear(12, 4, 3, 5, routing={"name": "frozen", "after": 3})
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again.eval()(parts).pose, layer.eval()(parts).pose)
    with pytest.raises(ValueError, match="after is a number of training batches"):
        FrozenRouting(after=-1)


ITERATING = [name for name in list_routings() if hasattr(resolve_routing(name), "iterations")]


@pytest.mark.parametrize("name", ITERATING)
def test_more_iterations_begin_as_fewer_do(name):
    layer = CapsuleLinear(in_capsules=7, in_dim=3, out_capsules=4, out_dim=5, routing=name).double()
    children = Capsules.from_pose(torch.randn(2, 7, 3, dtype=torch.float64))
    trace = layer.route(children, trace=True, iterations=6).trace
    for count in range(1, 7):
        found = layer.route(children, iterations=count)
        for field in ("pose", "activation", "coupling"):
            torch.testing.assert_close(getattr(found, field), getattr(trace, field)[count - 1])
    torch.testing.assert_close(layer(children).pose, trace.pose[2])  # as it was made
    assert layer.routing.iterations == 3


def test_another_number_of_iterations_shares_the_parameters():
    routing = EMRouting()
    routing.build(7, 4, 5)
    other = routing.with_iterations(5)
    assert other.beta_u is routing.beta_u
    assert (routing.iterations, other.iterations) == (3, 5)


def test_another_number_of_iterations_is_refused_where_there_are_none():
    with pytest.raises(ValueError, match="UniformRouting has no iterations"):
        resolve_routing("uniform").with_iterations(2)
    with pytest.raises(ValueError, match="iterations"):
        resolve_routing("dynamic").with_iterations(0)


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_a_routing_may_look_at_the_childrens_poses(kind):
    """As self-routing does: by the one interface that all routings have."""
    seen = []

    class ByPose(Routing):
        needs_poses = True

        def forward(self, votes, activation=None, mask=None, trace=False, poses=None):
            seen.append(tuple(poses.shape))
            share = poses.mean(dim=-1, keepdim=True).expand(votes.shape[:3]).softmax(dim=-1)
            return vector_output(squash(torch.einsum("bij,bijd->bjd", share, votes)), share)

    if kind == "linear":
        layer, children = CapsuleLinear(6, 4, 3, 5, ByPose()), Capsules.from_pose(torch.rand(2, 6, 4))
        assert layer(children).pose.shape == (2, 3, 5)
        assert layer.route(children).coupling.shape == (2, 6, 3)
        assert seen == [(2, 6, 4)] * 2
    else:
        layer, children = (
            CapsuleConv2d(2, 3, 2, in_pose=4, routing=ByPose()),
            Capsules.from_pose(torch.rand(2, 3, 3, 2, 4)),
        )
        assert layer(children).pose.shape == (2, 2, 2, 3, 4)
        assert seen == [(2 * 4, 4 * 2, 4)]


def test_a_function_may_look_at_the_childrens_poses():
    def by_pose(votes, *, activation=None, mask=None, trace=False, poses):
        return vector_output(squash(votes.mean(dim=1)) * poses.mean(), votes.new_ones(votes.shape[:3]))

    register_routing("by-pose")(by_pose)
    try:
        assert CapsuleLinear(6, 4, 3, 5, "by-pose")(Capsules.from_pose(torch.rand(2, 6, 4))).pose.shape == (2, 3, 5)
    finally:
        unregister_routing("by-pose")


def test_options_are_attributes_of_the_module_and_of_its_plan():
    routing = DynamicRouting(4, leaky=True)
    assert (routing.iterations, routing.leaky, routing.plan.iterations) == (4, True, 4)
    routing.iterations = 2
    assert routing.plan.iterations == 2
    with pytest.raises(ValueError, match="at least 1"):
        routing.iterations = 0
    with pytest.raises(TypeError, match="has no option 'leeky'. Did you mean 'leaky'"):
        DynamicRouting(leeky=True)


def test_no_coupling_is_none():
    layer, children = (
        CapsuleConv2d(2, 3, 2, routing="em"),
        Capsules(torch.rand(1, 3, 3, 2, 4, 4), torch.rand(1, 3, 3, 2)),
    )
    assert layer.route(children, coupling=False).coupling is None
    linear = CapsuleLinear(6, 4, 3, 5)
    poses = torch.rand(2, 6, 4)
    assert linear.routing.route_linear(poses, linear.weight, poses.norm(dim=-1)).coupling is None
