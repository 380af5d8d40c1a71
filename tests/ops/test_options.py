"""What single options mean, beyond being equal to the reference."""

import pickle

import torch

from torchcaps.ops import (
    annealed,
    counting,
    dynamic_routing,
    em_routing,
    random_coupling,
    sample_parents,
)
from torchcaps.ops.schedules import INVERSE_TEMPERATURES, resolve_schedule

VOTES = torch.randn(3, 6, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_without_bias_minus_x_gives_minus_v_and_a_bias_breaks_that():
    torch.testing.assert_close(dynamic_routing(-VOTES).pose, -dynamic_routing(VOTES).pose)
    bias = torch.full((4, 5), 0.1, dtype=torch.float64)
    plus, minus = dynamic_routing(VOTES, bias=bias).pose, dynamic_routing(-VOTES, bias=bias).pose
    assert (plus + minus).abs().max() > 1e-3


def test_gradient_of_the_last_iteration_only_has_the_same_value_and_another_gradient():
    votes = VOTES.clone().requires_grad_()
    results = {}
    for gradient in ("all", "last"):
        out = dynamic_routing(votes, 3, gradient=gradient)
        results[gradient] = (out.pose, torch.autograd.grad(out.pose.square().sum(), votes)[0])
    torch.testing.assert_close(results["all"][0], results["last"][0])
    assert (results["all"][1] - results["last"][1]).abs().max() > 1e-4


def test_leaky_children_keep_a_part_of_themselves():
    sums = dynamic_routing(VOTES, leaky=True).coupling.sum(dim=-1)
    assert ((sums > 0) & (sums < 1)).all()


def test_amended_couplings_sum_to_the_activation():
    activation = torch.rand(3, 6, dtype=torch.float64)
    coupling = dynamic_routing(VOTES, activation=activation, amend=True).coupling
    torch.testing.assert_close(coupling.sum(dim=-1), activation)


def test_initial_logits_broadcast():
    for shape in ((4,), (6, 4)):
        logits = torch.randn(shape, dtype=torch.float64)
        full = logits.expand(3, 6, 4)
        torch.testing.assert_close(dynamic_routing(VOTES, logits=logits).pose, dynamic_routing(VOTES, logits=full).pose)


def test_partial_sampling_keeps_the_fraction_is_seeded_and_closes_the_rest():
    def draw(seed):
        return sample_parents(100, 10, 0.3, generator=torch.Generator().manual_seed(seed))

    kept = draw(1)
    assert (kept.sum(dim=1) == 3).all()
    assert (kept == draw(1)).all()
    assert (kept != draw(2)).any()
    assert kept.any(dim=0).all()  # every parent is drawn sometimes
    assert sample_parents(5, 4, 0.01).sum(dim=1).eq(1).all()
    out = dynamic_routing(VOTES, parent_mask=torch.tensor([True, False, True, False]))
    assert (out.coupling[..., [1, 3]] == 0).all()
    assert (out.activation[:, [1, 3]] == 0).all()
    torch.testing.assert_close(out.coupling.sum(dim=-1), torch.ones(3, 6, dtype=torch.float64))
    everything_closed = dynamic_routing(VOTES, parent_mask=torch.zeros(4, dtype=torch.bool))
    assert (everything_closed.pose == 0).all()


def test_schedules():
    values = resolve_schedule("λ", annealed(), 3)
    torch.testing.assert_close(values, [0.01 * (1 - 0.95), 0.01 * (1 - 0.95**2), 0.01 * (1 - 0.95**3)])
    assert resolve_schedule("λ", counting(), 3) == [1.0, 2.0, 3.0]
    assert resolve_schedule("λ", pickle.loads(pickle.dumps(annealed(0.02))), 1) == [0.02 * (1 - 0.95)]
    torch.testing.assert_close(
        resolve_schedule("λ", INVERSE_TEMPERATURES["authors-class"], 2), [v / 4 for v in values[:2]]
    )


def em(votes, activation, **options):
    zero = votes.new_zeros(votes.shape[2])
    return em_routing(votes, activation, zero, zero, 3, **options)


def test_em_pitfall_one_child_needs_the_variance_floor():
    votes, activation = VOTES[:, :1].clone().requires_grad_(), torch.ones(3, 1, dtype=torch.float64)
    with_floor = em(votes, activation)
    (gradient,) = torch.autograd.grad(with_floor.pose.sum() + with_floor.activation.sum(), votes)
    assert with_floor.activation.isfinite().all()
    assert gradient.isfinite().all()
    assert not em(votes, activation, variance_floor=0.0).pose.isfinite().all()  # the pitfall itself


def test_em_pitfall_mass_is_the_same_in_layers_of_any_size():
    activation = torch.rand(3, 6, dtype=torch.float64)
    twice = (VOTES.repeat(1, 2, 1, 1), activation.repeat(1, 2))
    same = em(VOTES, activation).activation
    torch.testing.assert_close(em(*twice).activation, same)
    raw = em(VOTES, activation, mass=None).activation
    assert (em(*twice, mass=None).activation - raw).abs().max() > 1e-6  # the pitfall itself


def test_em_pitfall_children_compete_over_all_parents():
    activation = torch.rand(3, 6, dtype=torch.float64)
    one = torch.ones(3, 6, dtype=torch.float64)
    torch.testing.assert_close(em(VOTES, activation).coupling.sum(-1), one)
    torch.testing.assert_close(em(VOTES, activation, compete_within=2).coupling.sum(-1), 2 * one)  # the pitfall


def test_em_far_votes_stay_finite_in_float32():
    votes = (100 * VOTES).float().requires_grad_()
    out = em(votes, torch.rand(3, 6), variance_floor=1e-6)
    (gradient,) = torch.autograd.grad(out.pose.sum() + out.activation.sum(), votes)
    assert out.pose.isfinite().all()
    assert gradient.isfinite().all()


def test_random_coupling_is_uniform_on_the_simplex_and_fixed_by_its_seed():
    table = random_coupling(20_000, 3, seed=7)
    assert torch.equal(table, random_coupling(20_000, 3, seed=7))
    assert torch.equal(table[:10], random_coupling(10, 3, seed=7))  # the same for every number of children
    assert not torch.equal(table, random_coupling(20_000, 3, seed=8))
    torch.testing.assert_close(table.sum(dim=1), torch.ones(20_000))
    torch.testing.assert_close(table.mean(dim=0), torch.full((3,), 1 / 3), atol=0.01, rtol=0)
    assert random_coupling(1, 1, seed=3992508019).isfinite().all()  # the largest hash
    # One coordinate of a uniform point on the triangle has P(c > x) = (1 − x)².
    torch.testing.assert_close((table > 0.5).float().mean(dim=0), torch.full((3,), 0.25), atol=0.015, rtol=0)


def test_type_checkers_know_every_option():
    from torchcaps.ops.dynamic.plan import DynamicPlan, RoutedOptions
    from torchcaps.ops.em.plan import EMOptions, EMPlan
    from torchcaps.ops.plan import option_names

    assert {*RoutedOptions.__annotations__, "kind", "iterations"} == set(option_names(DynamicPlan))
    assert {*EMOptions.__annotations__, "iterations"} == set(option_names(EMPlan))
