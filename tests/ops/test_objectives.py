"""What the theory promises of the objectives, and what a trace must be."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.ops import dynamic_routing, em_routing, kmeans_routing, optimized_routing, uniform_routing
from torchcaps.routing import list_routings
from torchcaps.testing import prepared_routing, routing_case

seeds = st.integers(0, 10_000)
scales = st.floats(0.05, 5.0)


def never_rises(objective):
    steps = objective[1:] - objective[:-1]
    slack = 1e-9 * (1 + objective.abs().max())
    assert (steps <= slack).all(), objective


@given(seeds, scales, st.floats(0.05, 5.0))
def test_optimized_routing_never_raises_its_objective(seed, scale, alpha):
    votes = routing_case(seed=seed, scale=scale).votes
    never_rises(optimized_routing(votes, 8, alpha=alpha, trace=True).trace.objective)


@given(seeds, scales, st.floats(0.05, 5.0), st.sampled_from(["euclid", "inner"]))
def test_kmeans_routing_never_raises_its_objective(seed, scale, sharpness, distance):
    votes = routing_case(seed=seed, scale=scale).votes
    never_rises(kmeans_routing(votes, 8, sharpness=sharpness, distance=distance, trace=True).trace.objective)


@given(seeds, st.floats(0.1, 3.0))
def test_kmeans_with_inner_product_is_optimized_routing(seed, sharpness):
    votes = routing_case(seed=seed).votes
    kmeans = kmeans_routing(votes, 5, sharpness=sharpness, distance="inner")
    optimized = optimized_routing(votes, 5, alpha=1 / sharpness)
    torch.testing.assert_close(kmeans.coupling, optimized.coupling)


@pytest.mark.parametrize("name", list_routings())
def test_trace_entry_t_is_the_result_of_t_iterations(name):
    case = routing_case()
    routing = prepared_routing(name, case)
    if not hasattr(routing, "iterations"):
        return  # nothing iterates in the controls; their single entry is checked with all routings
    routing.iterations = 5
    trace = routing(case.votes, case.activation, trace=True).trace
    for t in range(1, 6):
        routing.iterations = t
        out = routing(case.votes, case.activation)
        torch.testing.assert_close(trace.pose[t - 1], out.pose)
        torch.testing.assert_close(trace.activation[t - 1], out.activation)
        torch.testing.assert_close(trace.coupling[t - 1], out.coupling)


def test_dynamic_objective_is_equation_15():
    votes = routing_case(batch=1).votes
    trace = dynamic_routing(votes, 3, trace=True).trace
    for t in range(3):
        c, v = trace.coupling[t, 0], trace.pose[t, 0]
        expected = 0.0
        for i in range(c.shape[0]):
            for j in range(c.shape[1]):
                expected -= float(c[i, j] * (votes[0, i, j] @ v[j]))
                if t > 0:
                    expected += float(c[i, j] * (c[i, j] / trace.coupling[t - 1, 0, i, j]).log())
        assert math.isclose(float(trace.objective[t, 0]), expected, rel_tol=1e-9)


def test_replacing_descends_the_entropy_objective_in_its_coupling():
    """With v fixed, softmax(⟨û, v⟩) is the minimum of −Σ c⟨û, v⟩ + Σ c log c over couplings: moving away raises it."""
    votes = routing_case(batch=1).votes
    trace = dynamic_routing(votes, 3, update="replace", trace=True).trace
    c, v = trace.coupling[2, 0], trace.pose[2, 0]
    agreement = torch.einsum("ijd,jd->ij", votes[0], v)
    torch.testing.assert_close(trace.objective[2, 0], (c * c.log()).sum() - (c * agreement).sum())
    before = torch.einsum("ijd,jd->ij", votes[0], trace.pose[1, 0])
    other = (before + 0.1 * torch.randn_like(before)).softmax(dim=-1)
    assert (c * c.log() - c * before).sum() < (other * other.log() - other * before).sum()


def test_dynamic_objective_counts_what_leaks_as_one_more_parent():
    votes = routing_case(batch=1).votes
    trace = dynamic_routing(votes, 2, leaky=True, trace=True).trace
    full = [torch.cat([c, 1 - c.sum(-1, keepdim=True)], dim=-1) for c in trace.coupling[:, 0]]
    divergence = (full[1] * (full[1] / full[0]).log()).sum()
    agreement = (trace.coupling[1, 0] * torch.einsum("ijd,jd->ij", votes[0], trace.pose[1, 0])).sum()
    torch.testing.assert_close(trace.objective[1, 0], divergence - agreement)


def test_optimized_objective_is_equation_38():
    votes = routing_case(batch=1).votes
    trace = optimized_routing(votes, 3, alpha=0.7, trace=True).trace
    c = trace.coupling[2, 0]
    total = torch.einsum("ij,ijd->jd", c, votes[0])
    s = total / total.norm(dim=-1, keepdim=True)
    agreement = (c * torch.einsum("ijd,jd->ij", votes[0], s)).sum()
    torch.testing.assert_close(trace.objective[2, 0], -agreement + 0.7 * (c * c.log()).sum())


def test_em_objective_is_the_cost():
    case = routing_case(batch=1)
    zero = torch.zeros(4, dtype=torch.float64)
    out = em_routing(case.votes, case.activation, zero + 0.3, zero, 1, mass=None, trace=True)
    weights = case.activation[0, :, None] / 4  # [I, J]
    mass = weights.sum(0).expand(4)
    mean = out.pose[0]
    variance = (weights[..., None] * (case.votes[0] - mean) ** 2).sum(0) / mass[:, None]
    cost = ((0.3 + variance.sqrt().log()) * mass[:, None]).sum()
    torch.testing.assert_close(out.trace.objective[0, 0], cost)


def test_trace_is_detached_and_uniform_has_one_entry():
    votes = routing_case().votes.requires_grad_()
    trace = uniform_routing(votes, trace=True).trace
    assert len(trace.pose) == 1
    assert not any(tensor.requires_grad for tensor in trace)
