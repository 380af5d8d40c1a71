"""NaN, infinities and what overflows: the rule of ``torchcaps/ops/finite.py``, on every path with the same inputs."""

import math

import numpy as np
import pytest
import torch
from paths import PATHS, on_path

from torchcaps.ops import (
    SQUASH_KINDS,
    dynamic_routing,
    em_routing,
    frozen_routing,
    kmeans_routing,
    optimized_routing,
    routed_linear,
    squash,
)
from torchcaps.ops.dynamic import dynamic_routing_reference
from torchcaps.ops.dynamic.backend import Inputs
from torchcaps.ops.dynamic.cpu import KernelRouting
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.dynamic.torch import CHUNK_BYTES
from torchcaps.ops.optimized import optimized_routing_reference
from torchcaps.ops.squash import squash_gradient, squash_reference

NAN, INF = math.nan, math.inf
DTYPES = [torch.float32, torch.float64]
OPTIONS = {
    **{kind: {"squash": kind} for kind in SQUASH_KINDS},
    **{f"{kind}-one": {"squash": kind, "iterations": 1} for kind in SQUASH_KINDS},
    "mask": {"mask": True},
    "replace": {"update": "replace"},
    "last": {"gradient": "last"},
    "all": {"bias": True, "mask": True, "leaky": True, "amend": True},
    "optimized": {"routing": "optimized"},
    "optimized-one": {"routing": "optimized", "iterations": 1},
}


def hostile(dtype):
    """Numbers that are not finite, that overflow when squared, that are denormal, and zero."""
    limits = torch.finfo(dtype)
    return [NAN, INF, -INF, limits.max / 4, -limits.max / 4, limits.smallest_normal / 8, 0.0]


def same(actual, expected, tolerance, name):
    """NaN and infinities at the same places, and the same numbers elsewhere."""
    actual, expected = actual.detach(), expected.detach()
    for what in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(what(actual), what(expected)), f"{name}: {what.__name__} at other places"
    finite = expected.isfinite()
    actual, expected = actual[finite].double(), expected[finite].double()
    scale = max(1e-3, float(expected.abs().max())) if len(expected) else 1.0
    torch.testing.assert_close(actual / scale, expected / scale, rtol=tolerance, atol=tolerance, msg=lambda m: name + m)


def odd_nan(bits, dtype):
    """A NaN whose first bits are those given."""
    if dtype == torch.float32:
        return torch.from_numpy(np.array([bits], np.uint32).view(np.float32))
    return torch.from_numpy(np.array([((bits & 0xFFF00000) | 0x00080000) << 32 | bits], np.uint64).view(np.float64))


# ---- squash


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SQUASH_KINDS)
def test_squash_hides_nothing(kind, dtype):
    bad = [NAN, INF, -INF, torch.finfo(dtype).max / 4]
    for at in range(3):
        for value in bad:
            pose = torch.tensor([1.0, 0.0, -2.0], dtype=dtype).index_fill(0, torch.tensor([at]), value)
            pose.requires_grad_()
            out = squash(pose, kind)
            same(out, squash_reference(pose, kind), 0, kind)
            seed = torch.tensor([0.3, -1.0, 2.0], dtype=dtype)
            (gradient,) = torch.autograd.grad((out * seed).sum(), pose)
            if kind == "none":  # every number as it is
                same(out.detach(), pose.detach(), 0, kind)
                assert torch.equal(gradient, seed)
            else:
                assert out.isnan().all()
                assert gradient.isnan().all()
            same(squash_gradient(pose.detach(), seed, kind), gradient, 0, f"{kind}, gradient")


def test_the_case_that_was_reported():
    assert squash(torch.tensor([[NAN, 1.0]]), "none")[0, 0].isnan()
    assert (squash(torch.tensor([[1e20, 1e20]])) != 0).all(), "its square overflows; zero would pass for a short vector"


@pytest.mark.parametrize("kind", ["sabour", "half", "unit"])
def test_long_vectors_have_the_right_gradient(kind):
    """The square of the square of 1e12 overflows in float32: the radial part must not vanish with it."""
    pose, seed = 1e12 * torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0]])
    exact = pose.double().requires_grad_()
    (right,) = torch.autograd.grad((squash(exact, kind) * seed).sum(), exact)
    torch.testing.assert_close(squash_gradient(pose, seed, kind).double(), right, rtol=1e-5, atol=0)
    for batch in (1, 9):  # the kernel: for one child, one parent and the weight 1 the pose is the squashed child
        child = pose.repeat(batch, 1)[:, None].requires_grad_()
        out = routed_linear(child, torch.eye(2)[None, None], iterations=1, squash=kind).pose
        (found,) = torch.autograd.grad((out * seed).sum(), child)
        torch.testing.assert_close(found[:, 0].double(), right.expand(batch, 2), rtol=1e-5, atol=0)


# ---- logits and masks of the ops on votes

LOGITS = {
    "one": ([-INF, 0.5, 1.0], False),
    "all": ([-INF, -INF, -INF], True),
    "infinite": ([INF, 0.5, 1.0], True),
    "nan": ([NAN, 0.5, 1.0], True),
    "nan and -inf": ([NAN, -INF, -INF], True),
}


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("name", LOGITS)
def test_infinite_logits(name, leaky):
    """−∞ is the logarithm of zero; the others have no softmax. A leaky one has: nothing is left but to go nowhere."""
    row, bad = LOGITS[name]
    votes, logits = torch.randn(2, 4, 3, 5), torch.zeros(2, 4, 3)
    logits[1, 2] = torch.tensor(row)
    options = {"logits": logits, "leaky": leaky}
    out = dynamic_routing(votes, **options)
    for actual, right in zip(out[::2], dynamic_routing_reference(votes, **options), strict=False):
        same(actual, right, 1e-5, name)
    bad = bad and not (leaky and name == "all")
    assert bool(out.pose[1].isnan().all()) == bad
    assert out.pose[0].isfinite().all()
    if name == "one":
        assert (out.coupling[1, 2, 0] == 0).all()
    if leaky and name == "all":
        assert (out.coupling[1, 2] == 0).all()


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e38])
def test_masks_hide_logits_votes_couplings_and_activations(value):
    g = torch.Generator().manual_seed(1)
    votes, activation = torch.randn(2, 4, 3, 5, generator=g), torch.rand(2, 4, generator=g)
    mask = torch.tensor([[True, True, False, True], [True, False, False, True]])
    open_to = torch.tensor([[True, False, True], [True, True, False]])
    logits, table = torch.randn(2, 4, 3, generator=g), torch.rand(2, 4, 3, generator=g)

    def all_of_them(votes, activation, logits, table, hidden):
        votes.requires_grad_()
        by_mask = votes.masked_fill(~mask[:, :, None, None] & hidden, value)
        by_parents = by_mask.masked_fill(~open_to[:, None, :, None] & hidden, value)
        outs = [
            dynamic_routing(
                by_parents, logits=logits, mask=mask, parent_mask=open_to, amend=True, activation=activation
            ),
            optimized_routing(by_mask, mask=mask),
            kmeans_routing(by_mask, mask=mask),
            kmeans_routing(by_mask, mask=mask, distance="inner", squash="none"),
            em_routing(by_mask, activation, 0.1, 0.2, mask=mask),
            frozen_routing(by_mask, table, mask=mask),
        ]
        results = [part for out in outs for part in out[:3]]
        return [*results, *torch.autograd.grad(sum(out.pose.square().sum() for out in outs), votes)]

    expected = all_of_them(votes.clone(), activation, logits, table, torch.tensor(False))
    junk = ~mask[:, :, None].expand(2, 4, 3)
    closed = ~open_to[:, None].expand(2, 4, 3)
    found = all_of_them(
        votes.clone(),
        activation.masked_fill(~mask, value),
        logits.masked_fill(junk | closed, value),
        table.masked_fill(junk, value),
        torch.tensor(True),
    )
    assert all(part.isfinite().all() for part in expected)
    torch.testing.assert_close(found[:-1], expected[:-1])
    torch.testing.assert_close(found[-1], expected[-1])


def test_a_child_without_any_parent_goes_nowhere():
    votes = torch.randn(1, 4, 3, 5, requires_grad=True)
    logits = torch.full((1, 4, 3), NAN, requires_grad=True)
    out = dynamic_routing(votes, logits=logits, parent_mask=torch.zeros(3, dtype=torch.bool))
    assert (out.coupling == 0).all()
    assert (out.pose == 0).all()
    for gradient in torch.autograd.grad(out.pose.sum(), [votes, logits]):
        assert (gradient == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_ops_on_votes_equal_their_references(dtype):
    for value in hostile(dtype):
        votes = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
        votes[1, 2, 0, 3] = value
        for kind in SQUASH_KINDS:
            for iterations in (1, 3):
                out = dynamic_routing(votes, iterations, squash=kind)
                right = dynamic_routing_reference(votes, iterations, squash=kind)
                for actual, expected in zip((out.pose, out.coupling), right, strict=True):
                    same(actual, expected, 1e-4, f"{kind} {value} ")
        for alphas in ([1.0], [1.0, 0.5, 2.0]):
            out = optimized_routing(votes, len(alphas), alpha=alphas)
            right = optimized_routing_reference(votes, alphas)
            for actual, expected in zip((out.pose, out.coupling), right, strict=True):
                same(actual, expected, 1e-4, f"optimized {value} ")


# ---- routing without votes


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Each path that this machine has, in turn."""
    threads = torch.get_num_threads()
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 512)  # several chunks
    with on_path(request.param):
        yield request.param
    torch.set_num_threads(threads)


def case(batch, shared, dtype, children=5, parents=3):
    g = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    leaves = {
        "poses": draw(batch, children, 4),
        "weight": 0.5 * draw(*(() if shared else (children,)), parents, 4, 7),
        "bias": 0.1 * draw(parents, 7),
        "activation": draw(batch, children).sigmoid(),
    }
    mask = torch.rand(batch, children, generator=g) < 0.7
    mask[:, :1] = True
    return leaves, mask


def results(leaves, mask, options, votes):
    """Pose, activation, coupling and all gradients, with stored votes or without."""
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
    options = {**options, "mask": mask if options.get("mask") else None}
    optimized = options.pop("routing", "dynamic") == "optimized"
    if options.pop("bias", False):
        options["bias"] = leaves["bias"]
    if options.get("amend"):
        options["activation"] = leaves["activation"]
    if votes:
        equation = "bid,jdk->bijk" if leaves["weight"].dim() == 3 else "bid,ijdk->bijk"
        stored = torch.einsum(equation, leaves["poses"], leaves["weight"])
        out = (optimized_routing if optimized else dynamic_routing)(stored, **options)
    else:
        routing = "optimized" if optimized else "dynamic"
        out = routed_linear(leaves["poses"], leaves["weight"], routing, **options, coupling=True)
    seed = torch.randn(out.pose.shape, generator=torch.Generator().manual_seed(5)).to(out.pose)
    found = torch.autograd.grad(
        (out.pose * seed).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    named = {"pose": out.pose, "activation": out.activation, "coupling": out.coupling}
    return {**{k: v.detach() for k, v in named.items()}, **{f"d{k}": v for k, v in zip(leaves, found, strict=True)}}


def compare(leaves, mask, options, tolerance, name):
    expected, actual = (results(leaves, mask, options, votes) for votes in (True, False))
    for key, right in expected.items():
        if options.get("mask") and key == "dweight":
            continue  # zero times NaN: a masked child's weights in an image that is NaN
        same(actual[key], right, tolerance, f"{name}, {key}: ")


SIZES = {"few": (3, 1), "small": (9, 1), "passes": (9, 4)}  # images and threads


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("option", OPTIONS)
def test_without_votes_as_with_them(path, option, size, dtype):
    batch, threads = SIZES[size]
    torch.set_num_threads(threads)
    tolerance = 3e-4 if dtype == torch.float32 else 1e-9
    for shared in (False, True)[: 2 if option in ("sabour", "all", "optimized") else 1]:
        base, mask = case(batch, shared, dtype)
        if path != "torch":
            assert KernelRouting().is_small(DynamicPlan(), Inputs(base["poses"], base["weight"], None, None)) == (
                size == "small"
            )
        for where in ("poses", "weight", "bias", "activation"):
            if where in ("bias", "activation") and option != "all":
                continue
            if where == "weight" and OPTIONS[option].get("mask"):
                continue  # weights are not behind the mask: see the rule
            for value in hostile(dtype):
                leaves = {name: leaf.clone() for name, leaf in base.items()}
                leaves[where][(-1 if where in ("poses", "activation") else 0, *[0] * (leaves[where].dim() - 1))] = value
                compare(leaves, mask, OPTIONS[option], tolerance, f"{where} {value}, shared {shared}")


@pytest.mark.parametrize("batch", [0, 1, 9])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (5, 1), (0, 3)])
def test_empty_batches_only_children_and_only_parents(path, batch, sizes):
    for option in ("sabour", "none", "all", "optimized"):
        for value in hostile(torch.float32):
            leaves, mask = case(batch, False, torch.float32, *sizes)
            leaves["poses"][-1:, :1, 1:2] = value
            compare(leaves, mask, OPTIONS[option], 3e-4, f"{option}, {value}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00001, 0xFFC12345, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF])
def test_nan_stays_nan_whatever_its_bits(path, bits, dtype):
    """The base-2 exponential works on bits: no payload may turn into a number."""
    for batch in (3, 9):
        leaves, _ = case(batch, False, dtype)
        leaves["poses"][-1, 2, 3:] = odd_nan(bits, dtype)
        out = routed_linear(leaves["poses"], leaves["weight"], coupling=True)
        assert out.pose[-1].isnan().all()
        assert out.coupling[-1].isnan().all()
        assert out.pose[:-1].isfinite().all()


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e38])
def test_masked_poses_and_activations_stay_hidden(path, value):
    for batch in (3, 9):
        leaves, mask = case(batch, False, torch.float32)
        expected = results(leaves, mask, OPTIONS["all"], votes=False)
        leaves["poses"] = leaves["poses"].masked_fill(~mask[..., None], value)
        leaves["activation"] = leaves["activation"].masked_fill(~mask, value)
        found = results(leaves, mask, OPTIONS["all"], votes=False)
        for name, right in expected.items():
            assert right.isfinite().all()
            torch.testing.assert_close(found[name], right)


def test_an_activation_of_zero_is_no_mask(path):
    for batch in (3, 9):
        leaves, _ = case(batch, False, torch.float32)
        leaves["poses"][0, 1, 2], leaves["activation"][0, 1] = NAN, 0
        out = routed_linear(leaves["poses"], leaves["weight"], activation=leaves["activation"], amend=True)
        assert out.pose[0].isnan().all()
        assert out.pose[1:].isfinite().all()


def test_logits_that_overflow_are_not_even_shares(path):
    """Finite votes whose agreement with their parents is beyond float32: no share, not an even one."""
    for batch in (3, 9):
        poses = torch.ones(batch, 2, 1)
        poses[0] *= 2e19
        weight = torch.tensor([1.0, 2.0])[None, :, None, None].expand(2, 2, 1, 3).contiguous()
        out = routed_linear(poses, weight, squash="none", coupling=True)
        assert out.coupling[0].isnan().all()
        assert out.pose[0].isnan().all()
        assert out.pose[1:].isfinite().all()
