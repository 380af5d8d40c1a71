"""Every routing op equals its line-by-line reference: values and every gradient, r = 1..5, odd shapes, float64."""

import pytest
import torch

from torchcaps.ops import (
    dynamic_routing,
    em_routing,
    frozen_routing,
    kmeans_routing,
    optimized_routing,
    random_coupling,
    random_routing,
    uniform_routing,
)
from torchcaps.ops.baselines import frozen_routing_reference
from torchcaps.ops.dynamic import dynamic_routing_reference
from torchcaps.ops.em import em_routing_reference
from torchcaps.ops.kmeans import kmeans_routing_reference
from torchcaps.ops.optimized import optimized_routing_reference

SHAPES = [(1, 1, 1, 1), (2, 7, 3, 5), (3, 5, 2, 9), (2, 1, 4, 3), (1, 6, 1, 2)]


def tensors(shape, **kinds):
    """Random float64 leaves by name, all requiring gradients."""
    batch, children, parents, size = shape
    shapes = {
        "votes": shape,
        "activation": (batch, children),
        "logits": (batch, children, parents),
        "bias": (parents, size),
        "beta_u": (parents,),
        "beta_a": (parents,),
    }
    leaves = {}
    for name, make in kinds.items():
        leaves[name] = make(*shapes[name], dtype=torch.float64).requires_grad_()
    return leaves


def some_mask(shape):
    mask = torch.rand(shape[:2]) < 0.7
    mask[:, 0] = True
    return mask


def same_values_and_gradients(actual, expected, leaves):
    weights = [torch.randn_like(tensor) for tensor in expected]
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-10, atol=1e-12)
    inputs = list(leaves.values())
    total = [sum((t * w).sum() for t, w in zip(side, weights, strict=True)) for side in (actual, expected)]
    got = torch.autograd.grad(total[0], inputs, allow_unused=True, materialize_grads=True)
    want = torch.autograd.grad(total[1], inputs, allow_unused=True, materialize_grads=True)
    for name, g, w in zip(leaves, got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-8, atol=1e-10, msg=lambda m, name=name: f"gradient of {name}: {m}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("iterations", range(1, 6))
def test_dynamic(shape, iterations):
    leaves = tensors(shape, votes=torch.randn)
    out = dynamic_routing(leaves["votes"], iterations)
    same_values_and_gradients((out.pose, out.coupling), dynamic_routing_reference(leaves["votes"], iterations), leaves)


DYNAMIC_OPTIONS = {
    "replace": {"update": "replace"},
    "last": {"gradient": "last"},
    "leaky": {"leaky": True},
    "amend": {"amend": True},
    "bias": {"bias": True},
    "logits": {"logits": True},
    "mask": {"mask": True},
    "parent_mask": {"parent_mask": True},
    "unit": {"squash": "unit"},
    "none": {"squash": "none"},
    "exponential": {"squash": "exponential"},
    "half": {"squash": "half"},
    "all_together": {
        "update": "accumulate",
        "leaky": True,
        "amend": True,
        "bias": True,
        "logits": True,
        "mask": True,
        "parent_mask": True,
    },
    "last_with_all": {
        "gradient": "last",
        "leaky": True,
        "amend": True,
        "bias": True,
        "logits": True,
        "mask": True,
    },
    "replace_with_all": {"update": "replace", "leaky": True, "amend": True, "bias": True, "logits": True},
}


@pytest.mark.parametrize("option", DYNAMIC_OPTIONS)
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_dynamic_options(option, iterations):
    shape = (2, 7, 3, 5)
    options = dict(DYNAMIC_OPTIONS[option])
    leaves = tensors(shape, votes=torch.randn, activation=torch.rand, logits=torch.randn, bias=torch.randn)
    options["activation"] = leaves["activation"]
    for name in ("logits", "bias"):
        if options.get(name):
            options[name] = leaves[name]
    if options.get("mask"):
        options["mask"] = some_mask(shape)
    if options.get("parent_mask"):
        options["parent_mask"] = torch.tensor([[True, False, True], [True, True, False]])
    out = dynamic_routing(leaves["votes"], iterations, **options)
    same_values_and_gradients(
        (out.pose, out.coupling), dynamic_routing_reference(leaves["votes"], iterations, **options), leaves
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("alphas", [[1.0], [0.5] * 2, [2.0, 1.0, 0.5], [0.3] * 4, [1.0] * 5], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_optimized(shape, alphas, masked):
    mask = some_mask(shape) if masked else None
    leaves = tensors(shape, votes=torch.randn)
    out = optimized_routing(leaves["votes"], len(alphas), alpha=alphas, mask=mask)
    expected = optimized_routing_reference(leaves["votes"], alphas, mask)
    same_values_and_gradients((out.pose, out.coupling), expected, leaves)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sharpness", [[1.0], [0.5, 1.0], [0.2] * 3, [1.0] * 4, [0.1, 0.2, 0.3, 0.4, 0.5]], ids=str)
@pytest.mark.parametrize("distance", ["euclid", "inner"])
@pytest.mark.parametrize("masked", [False, True])
def test_kmeans(shape, sharpness, distance, masked):
    mask = some_mask(shape) if masked else None
    leaves = tensors(shape, votes=torch.randn)
    out = kmeans_routing(leaves["votes"], len(sharpness), sharpness=sharpness, distance=distance, mask=mask)
    expected = kmeans_routing_reference(leaves["votes"], sharpness, distance, mask=mask)
    same_values_and_gradients((out.pose, out.coupling), expected, leaves)


@pytest.mark.parametrize("shape", [(2, 7, 3, 5), (3, 5, 2, 9), (1, 6, 1, 2), (2, 4, 4, 3)], ids=str)
@pytest.mark.parametrize("iterations", range(1, 6))
@pytest.mark.parametrize(
    "options",
    [{}, {"mass": None}, {"variance_floor": 0.5}, {"compete_within": 1}, {"mask": True}],
    ids=lambda o: "-".join(o) or "default",
)
def test_em(shape, iterations, options):
    options = dict(options)
    if "mask" in options:
        options["mask"] = some_mask(shape)
        options["mask"][:, :2] = True
    leaves = tensors(shape, votes=torch.randn, activation=torch.rand, beta_u=torch.randn, beta_a=torch.randn)
    lambdas = [0.01 * (1 + t) for t in range(iterations)]
    inputs = [leaves[name] for name in ("votes", "activation", "beta_u", "beta_a")]
    out = em_routing(*inputs, iterations, inverse_temperature=lambdas, **options)
    expected = em_routing_reference(*inputs, lambdas, **options)
    same_values_and_gradients((out.pose, out.activation, out.coupling), expected, leaves)


def test_em_children_may_compete_within_positions_only():
    leaves = tensors((2, 5, 6, 3), votes=torch.randn, activation=torch.rand, beta_u=torch.randn, beta_a=torch.randn)
    out = em_routing(*leaves.values(), 3, inverse_temperature=0.01, compete_within=2)
    expected = em_routing_reference(*leaves.values(), [0.01] * 3, compete_within=2)
    same_values_and_gradients((out.pose, out.activation, out.coupling), expected, leaves)
    torch.testing.assert_close(out.coupling.sum(-1), torch.full((2, 5), 3.0, dtype=torch.float64))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_fixed_couplings(shape, masked):
    mask = some_mask(shape) if masked else None
    _, children, parents, _ = shape
    leaves = tensors(shape, votes=torch.randn)
    votes = leaves["votes"]
    tables = {
        "uniform": (
            uniform_routing(votes, mask=mask),
            torch.full((children, parents), 1 / parents, dtype=torch.float64),
        ),
        "random": (random_routing(votes, seed=3, mask=mask), random_coupling(children, parents, 3)),
    }
    given = torch.rand(children, parents, dtype=torch.float64)
    tables["frozen"] = (frozen_routing(votes, given, mask=mask), given)
    for out, table in tables.values():
        expected = frozen_routing_reference(votes, table.double(), mask=mask)
        for a, e in zip((out.pose, out.coupling), expected, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-6, atol=1e-8)
        same_values_and_gradients((out.pose,), expected[:1], leaves)


@pytest.mark.parametrize("name", ["dynamic", "optimized", "kmeans", "em", "uniform"])
def test_float32_values_and_gradients_are_those_of_the_float64_reference(name):
    leaves = tensors((2, 11, 4, 6), votes=torch.randn, activation=torch.rand)
    votes, activation, zero = leaves["votes"], leaves["activation"], torch.zeros(4, dtype=torch.float64)
    table = torch.full((11, 4), 0.25, dtype=torch.float64)
    run = {
        "dynamic": lambda v, a: dynamic_routing(v, 3),
        "optimized": lambda v, a: optimized_routing(v, 3),
        "kmeans": lambda v, a: kmeans_routing(v, 3),
        "em": lambda v, a: em_routing(v, a, zero.to(v), zero.to(v), 3, inverse_temperature=0.01),
        "uniform": lambda v, a: uniform_routing(v),
    }[name]
    expected = {
        "dynamic": lambda: dynamic_routing_reference(votes, 3),
        "optimized": lambda: optimized_routing_reference(votes, [1.0] * 3),
        "kmeans": lambda: kmeans_routing_reference(votes, [1.0] * 3),
        "em": lambda: em_routing_reference(votes, activation, zero, zero, [0.01] * 3),
        "uniform": lambda: frozen_routing_reference(votes, table),
    }[name]()[0]
    single = [leaf.detach().float().requires_grad_() for leaf in leaves.values()]
    pose = run(*single).pose
    torch.testing.assert_close(pose.double(), expected, rtol=1e-4, atol=1e-5)
    weight = torch.randn_like(expected)
    options = {"allow_unused": True, "materialize_grads": True}
    got = torch.autograd.grad((pose * weight.float()).sum(), single, **options)
    want = torch.autograd.grad((expected * weight).sum(), list(leaves.values()), **options)
    for g, w in zip(got, want, strict=True):
        assert (g.double() - w).norm() <= 1e-4 * (1 + w.norm())


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e-30])
def test_em_is_exact_for_hardly_active_children(scale):
    leaves = tensors((2, 7, 3, 5), votes=torch.randn, activation=torch.rand)
    votes, activation, zero = leaves["votes"], leaves["activation"].detach(), torch.zeros(3, dtype=torch.float64)
    expected = em_routing_reference(votes, activation, zero, zero, [1e-9] * 3)[0]  # a common factor of a cancels
    out = em_routing(votes.float(), scale * activation.float(), zero.float(), zero.float(), 3, inverse_temperature=1e-9)
    torch.testing.assert_close(out.pose.double(), expected, rtol=1e-4, atol=1e-5)


def test_em_an_absent_child_is_like_no_child():
    generator = torch.Generator().manual_seed(198)
    votes = 3 * torch.randn(1, 4, 3, 6, generator=generator)
    activation = torch.tensor([[0.0, 0.5, 0.9, 0.3]], requires_grad=True)
    zero = torch.zeros(3)
    out = em_routing(votes, activation, zero, zero, 4, mass=None)
    without = em_routing(votes[:, 1:], activation[:, 1:], zero, zero, 4, mass=None)
    torch.testing.assert_close(out.pose, without.pose, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(out.pose.sum() + out.activation.sum(), activation)
    assert gradient.isfinite().all()
