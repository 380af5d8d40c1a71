"""Bad input gets an exception that names what was expected, what came and the fix."""

import pytest
import torch

import torchcaps
from torchcaps.ops import (
    dynamic_routing,
    em_routing,
    frozen_routing,
    kmeans_routing,
    optimized_routing,
    random_routing,
    sample_parents,
    squash,
    uniform_routing,
)

VOTES = torch.randn(2, 5, 3, 4)
ACTIVATION = torch.rand(2, 5)


def em(votes, **options):
    return em_routing(votes, ACTIVATION, 0.0, 0.0, **options)


def frozen(votes, **options):
    return frozen_routing(votes, torch.full((5, 3), 1 / 3), **options)


ALL = [dynamic_routing, optimized_routing, kmeans_routing, em, frozen, uniform_routing, random_routing]
ITERATING = [dynamic_routing, optimized_routing, kmeans_routing, em]


@pytest.mark.parametrize("routing", ALL)
def test_wrong_rank(routing):
    with pytest.raises(ValueError, match=r"four dimensions .* got shape \(5, 3, 4\).*unsqueeze"):
        routing(VOTES[0])


@pytest.mark.parametrize("routing", ALL)
def test_integer_votes(routing):
    with pytest.raises(TypeError, match=r"votes must be a floating point tensor, got torch.int64.*votes.float\(\)"):
        routing(VOTES.long())


@pytest.mark.parametrize("routing", ALL)
def test_not_a_tensor(routing):
    with pytest.raises(TypeError, match=r"votes must be a torch.Tensor, got list"):
        routing([1.0])


@pytest.mark.parametrize("routing", ALL)
def test_no_parents(routing):
    with pytest.raises(ValueError, match="at least one parent"):
        routing(VOTES[:, :, :0])


@pytest.mark.parametrize("routing", ALL)
def test_wrong_mask(routing):
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 5\) \(\[batch, children\]\), got \(2, 4\)"):
        routing(VOTES, mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"mask must be a bool tensor.*got torch.float32.*mask.bool\(\)"):
        routing(VOTES, mask=torch.ones(2, 5))


@pytest.mark.parametrize("routing", ITERATING)
@pytest.mark.parametrize("iterations", [0, -1])
def test_too_few_iterations(routing, iterations):
    with pytest.raises(ValueError, match=f"iterations must be at least 1, got {iterations}"):
        routing(VOTES, iterations=iterations)


@pytest.mark.parametrize("routing", ITERATING)
@pytest.mark.parametrize("iterations", [2.0, True, "3"])
def test_iterations_must_be_an_integer(routing, iterations):
    with pytest.raises(TypeError, match="iterations must be an integer"):
        routing(VOTES, iterations=iterations)


@pytest.mark.parametrize("routing", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_when_checking_is_on(routing, bad):
    votes = VOTES.clone()
    votes[1, 2, 0, 3] = bad
    routing(votes)  # off by default
    with (
        torchcaps.check_finite(),
        pytest.raises(ValueError, match=r"votes holds 1 NaN or .* at \(1, 2, 0, 3\)"),
    ):
        routing(votes)
    routing(votes)  # and off again


@pytest.mark.parametrize("alpha", [0, -0.5, float("nan"), float("inf"), [1.0, 0.0, 1.0]])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(ValueError, match="alpha must be positive and finite"):
        optimized_routing(VOTES, 3, alpha=alpha)


def test_a_schedule_needs_a_value_per_iteration():
    with pytest.raises(ValueError, match="sharpness gives 2 values for 3 iterations"):
        kmeans_routing(VOTES, 3, sharpness=[1.0, 2.0])


def test_unknown_choices_name_the_nearest():
    with pytest.raises(ValueError, match=r"unknown update 'acumulate'. Did you mean 'accumulate'"):
        dynamic_routing(VOTES, update="acumulate")
    with pytest.raises(ValueError, match=r"unknown gradient 'first'.*Known: all, last"):
        dynamic_routing(VOTES, gradient="first")
    with pytest.raises(ValueError, match=r"unknown distance 'euclidean'. Did you mean 'euclid'"):
        kmeans_routing(VOTES, distance="euclidean")
    with pytest.raises(ValueError, match=r"schedule 'author'. Did you mean 'authors'"):
        em_routing(VOTES, ACTIVATION, 0.0, 0.0, inverse_temperature="author")


def test_dynamic_extras():
    with pytest.raises(ValueError, match="amend=True scales each coupling by the child's activation"):
        dynamic_routing(VOTES, amend=True)
    with pytest.raises(ValueError, match=r"activation must have shape \(2, 5\)"):
        dynamic_routing(VOTES, amend=True, activation=torch.rand(2, 4))
    with pytest.raises(ValueError, match=r"bias must have shape \(3, 4\)"):
        dynamic_routing(VOTES, bias=torch.zeros(4))
    with pytest.raises(ValueError, match=r"logits must have shape \(3,\) or \(5, 3\) or \(2, 5, 3\)"):
        dynamic_routing(VOTES, logits=torch.zeros(5))
    with pytest.raises(ValueError, match=r"parent_mask must have shape \(3,\) or \(2, 3\)"):
        dynamic_routing(VOTES, parent_mask=torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="fraction of parents to keep must be in"):
        sample_parents(2, 3, 0.0)


def test_em_extras():
    with pytest.raises(ValueError, match="EM routing weighs every vote by the child's activation"):
        em_routing(VOTES, None, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"beta_u must have shape \(\) or \(1,\) or \(3,\)"):
        em_routing(VOTES, ACTIVATION, torch.zeros(2), 0.0)
    with pytest.raises(ValueError, match="compete_within must divide the 3 parents, got 2"):
        em(VOTES, compete_within=2)
    with pytest.raises(ValueError, match="variance_floor must not be negative"):
        em(VOTES, variance_floor=-1.0)
    with pytest.raises(ValueError, match="mass must be positive"):
        em(VOTES, mass=0.0)


def test_frozen_coupling_must_fit():
    with pytest.raises(ValueError, match=r"coupling must have shape \(5, 3\) or \(2, 5, 3\)"):
        frozen_routing(VOTES, torch.zeros(3, 5))


def test_mixed_types_are_named():
    double = torch.float64
    for call in (
        lambda: dynamic_routing(VOTES, bias=torch.zeros(3, 4, dtype=double)),
        lambda: dynamic_routing(VOTES, logits=torch.zeros(3, dtype=double)),
        lambda: dynamic_routing(VOTES, amend=True, activation=ACTIVATION.double()),
        lambda: em_routing(VOTES, ACTIVATION.double(), 0.0, 0.0),
        lambda: em_routing(VOTES, ACTIVATION, torch.zeros(3, dtype=double), 0.0),
    ):
        with pytest.raises(TypeError, match="must be torch.float32 on cpu like the votes, got torch.float64"):
            call()


@pytest.mark.parametrize("alpha", [None, "low", torch.tensor(1.0), True, [1.0, None, 1.0]])
def test_a_schedule_is_made_of_numbers(alpha):
    with pytest.raises(TypeError, match="alpha must be a number, one number per iteration"):
        optimized_routing(VOTES, 3, alpha=alpha)


def test_nan_behind_a_mask_is_harmless_even_when_checking():
    votes, activation = VOTES.clone(), ACTIVATION.clone()
    votes[:, 4], activation[:, 4] = float("nan"), float("nan")
    mask = torch.arange(5).expand(2, 5) < 4
    with torchcaps.check_finite():
        out = dynamic_routing(votes, activation=activation, mask=mask, amend=True)
    assert out.pose.isfinite().all()


def test_checking_covers_what_is_not_a_vote():
    nan = float("nan")
    with torchcaps.check_finite():
        for call in (
            lambda: dynamic_routing(VOTES, bias=torch.full((3, 4), nan)),
            lambda: dynamic_routing(VOTES, logits=torch.full((3,), nan)),
            lambda: em_routing(VOTES, ACTIVATION, torch.full((3,), nan), 0.0),
            lambda: frozen_routing(VOTES, torch.full((5, 3), nan)),
            lambda: squash(torch.full((3,), nan)),
        ):
            with pytest.raises(ValueError, match="NaN or infinite"):
                call()
