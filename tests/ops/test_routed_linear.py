"""Routing without votes equals votes and then routing: values and every gradient, every option, odd sizes."""

import subprocess
import sys

import pytest
import torch
from paths import HAS_KERNEL, PATHS, REASON, VARIANTS, on_path

from torchcaps import Capsules
from torchcaps.layers import CapsuleLinear
from torchcaps.ops import dynamic_routing, optimized_routing, routed_linear, routed_path
from torchcaps.ops.dynamic.backend import Inputs
from torchcaps.ops.dynamic.cpu import KernelRouting
from torchcaps.ops.dynamic.op import routed_linear_op
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.dynamic.torch import CHUNK_BYTES

OPTIMIZED = DynamicPlan("optimized", iterations=2, alpha=[1.0, 0.5])
SIZES = {"I": 7, "J": 3, "d": 5, "D": 9}
BATCHES = [1, 3, 8, 17, 130]
OPTIONS = {
    "dynamic": {},
    "one": {"iterations": 1},
    "five": {"iterations": 5},
    "bias": {"bias": True},
    "mask": {"mask": True},
    "leaky": {"leaky": True},
    "amend": {"amend": True},
    "last": {"gradient": "last"},
    "last-one": {"gradient": "last", "iterations": 1},
    "replace": {"update": "replace"},
    "half": {"squash": "half"},
    "exponential": {"squash": "exponential"},
    "unit": {"squash": "unit"},
    "none": {"squash": "none"},
    "all": {"bias": True, "mask": True, "leaky": True, "amend": True},
    "all-last": {"bias": True, "mask": True, "leaky": True, "amend": True, "gradient": "last"},
    "all-replace": {"bias": True, "mask": True, "leaky": True, "amend": True, "update": "replace"},
    "optimized": {"routing": "optimized"},
    "optimized-mask": {"routing": "optimized", "mask": True, "alpha": [2.0, 1.0, 0.5]},
    "optimized-four": {"routing": "optimized", "iterations": 4, "alpha": 0.3},
}


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Each path that this machine has, in turn."""
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 4096)  # so that small cases have several chunks
    with on_path(request.param):
        yield request.param


def is_small(leaves, images=slice(None)):
    return KernelRouting().is_small(DynamicPlan(), Inputs(leaves["poses"][images], leaves["weight"], None, None))


def test_the_kernel_is_there_or_says_why():
    assert routed_path().startswith("kernel" if HAS_KERNEL else "torch")


def case(batch, shared, options, dtype=torch.float64, children=SIZES["I"], seed=0, sizes=None):
    generator = torch.Generator().manual_seed(seed)
    parents, inner, size = sizes or (SIZES["J"], SIZES["d"], SIZES["D"])

    def randn(*shape, scale=1.0):
        return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()

    leaves = {
        "poses": randn(batch, children, inner),
        "weight": randn(*(() if shared else (children,)), parents, inner, size, scale=inner**-0.5 if sizes else 1.0),
        "bias": randn(parents, size),
        "activation": torch.rand(batch, children, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(),
    }
    options = dict(options)
    if options.get("mask"):
        options["mask"] = torch.rand(batch, children, generator=generator) < 0.7
    options["bias"] = leaves["bias"] if options.get("bias") else None
    options["activation"] = leaves["activation"]
    return leaves, options


def reference(leaves, options):
    equation = "bid,jdk->bijk" if leaves["weight"].dim() == 3 else "bid,ijdk->bijk"
    votes = torch.einsum(equation, leaves["poses"], leaves["weight"])
    options = dict(options)
    if options.pop("routing", "dynamic") == "optimized":
        options = {name: options[name] for name in ("iterations", "alpha", "mask") if name in options}
        return optimized_routing(votes, **options)
    return dynamic_routing(votes, **options)


def gradients(pose, activation, leaves, weights):
    loss = (pose * weights[0]).sum() + (activation * weights[1]).sum()
    return torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)


def assert_equals_reference(batch, shared, option, **sizes):
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        leaves, options = case(batch, shared, OPTIONS[option], dtype, **sizes)
        exact_leaves, exact_options = case(batch, shared, OPTIONS[option], torch.float64, **sizes)
        out, expected = routed_linear(leaves["poses"], leaves["weight"], **options, coupling=True), None
        expected = reference(exact_leaves, exact_options)
        weights = [torch.randn_like(expected.pose), torch.randn_like(expected.activation)]
        got = gradients(out.pose, out.activation, leaves, [w.to(dtype) for w in weights])
        want = gradients(expected.pose, expected.activation, exact_leaves, weights)
        for name, a, e in (
            ("pose", out.pose, expected.pose),
            ("activation", out.activation, expected.activation),
            ("coupling", out.coupling, expected.coupling),
            *zip(leaves, got, want, strict=True),
        ):
            scale = max(1e-3, float(e.detach().abs().max()))
            error = float((a.detach().double() - e.detach()).abs().max()) / scale
            assert error < tolerance, f"{name} differs by {error:.1e} in {dtype}"


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("batch", BATCHES)
def test_equals_votes_and_routing(path, batch, option, shared):
    assert_equals_reference(batch, shared, option)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


MANY_SMALL = {"odd": (17, 5, (3, 7, 5)), "window": (40, 24, (16, 16, 16))}


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("problem", MANY_SMALL)
def test_many_images_of_a_small_problem(path, problem, option, shared):
    batch, children, sizes = MANY_SMALL[problem]
    if path != "torch":
        leaves, _ = case(batch, shared, {}, torch.float32, children, sizes=sizes)
        assert is_small(leaves)
    assert_equals_reference(batch, shared, option, children=children, sizes=sizes)


@pytest.mark.parametrize("path", VARIANTS, indirect=True)
@pytest.mark.parametrize("option", ["dynamic", "all", "all-last", "all-replace", "optimized-mask"])
def test_many_images_with_too_many_votes_to_keep(path, option):
    leaves, _ = case(33, True, {}, torch.float32, children=1300)
    assert not is_small(leaves)
    assert_equals_reference(33, True, option, children=1300)
    assert_equals_reference(20, False, option, children=1300)


@pytest.mark.skipif(not HAS_KERNEL, reason=f"the kernel is not built here: {REASON}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_problems_repeat_and_do_not_see_each_other(two_threads, dtype):
    batch, children, sizes = 75, 24, (16, 16, 16)
    leaves, options = case(batch, False, {"bias": True, "amend": True, "leaky": True}, dtype, children, sizes=sizes)
    assert is_small(leaves, slice(40))

    def run(images):
        given = {**options, "activation": leaves["activation"][images]}
        out = routed_linear(leaves["poses"][images], leaves["weight"], **given).pose
        return (out, *torch.autograd.grad(out.square().sum(), list(leaves.values())))

    everything = run(slice(batch))
    for a, b in zip(everything, run(slice(batch)), strict=True):
        assert torch.equal(a, b)
    some = run(slice(21, 61))
    assert torch.equal(some[0], everything[0][21:61])
    assert torch.equal(some[1][21:61], everything[1][21:61])
    assert torch.equal(some[4][21:61], everything[4][21:61])


@pytest.mark.parametrize("squash", ["sabour", "exponential", "half", "unit", "none"])
def test_absent_images_among_small_problems(path, squash):
    leaves, _ = case(20, False, {}, torch.float32)
    poses, present = leaves["poses"].detach().clone(), torch.ones(20, 7)
    poses[3:6], poses[19], present[7], present[:, 2] = 0, 0, 0, 0
    inputs = [poses.requires_grad_(), leaves["weight"], present.requires_grad_()]
    out = routed_linear(*inputs[:2], activation=present, amend=True, squash=squash)
    assert (out.pose[[3, 4, 5, 7, 19]] == 0).all()
    found = torch.autograd.grad(out.pose.sum() + out.activation.sum(), inputs)
    assert all(gradient.isfinite().all() for gradient in found)
    assert (found[0][:, 2] == 0).all()


@pytest.mark.skipif(not HAS_KERNEL, reason=f"the kernel is not built here: {REASON}")
def test_opcheck():
    leaves, _ = case(5, False, {})
    arguments = (
        leaves["poses"],
        leaves["weight"],
        leaves["activation"],
        leaves["bias"],
        DynamicPlan(leaky=True).text,
    )
    torch.library.opcheck(routed_linear_op, arguments)
    torch.library.opcheck(
        torch.ops.torchcaps.routed_forward.default,
        [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments],
    )
    torch.library.opcheck(routed_linear_op, (*arguments[:2], None, None, OPTIMIZED.text))


def test_gradcheck(path):
    leaves, options = case(3, False, {"bias": True, "leaky": True, "amend": True})
    options.pop("bias"), options.pop("activation")

    def function(poses, weight, bias, activation):
        return routed_linear(poses, weight, bias=bias, activation=activation, **options)[:2]

    torch.autograd.gradcheck(function, tuple(leaves.values()), fast_mode=True)


def test_compile_and_export(path):
    leaves, _ = case(4, False, {})
    plain = routed_linear(leaves["poses"], leaves["weight"])
    torch._dynamo.reset()
    compiled = torch.compile(routed_linear, fullgraph=True, backend="aot_eager")(leaves["poses"], leaves["weight"])
    torch.testing.assert_close(compiled.pose, plain.pose)
    for a, b in zip(
        *(torch.autograd.grad(o.pose.sum(), list(leaves.values())[:2]) for o in (compiled, plain)), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("side", ["poses", "weight"])
def test_gradient_on_one_side_only(path, side):
    leaves, _ = case(3, False, {})
    both = torch.autograd.grad(
        routed_linear(leaves["poses"], leaves["weight"]).pose.sum(), [leaves["poses"], leaves["weight"]]
    )
    one = {name: leaf if name == side else leaf.detach() for name, leaf in leaves.items()}
    (alone,) = torch.autograd.grad(routed_linear(one["poses"], one["weight"]).pose.sum(), one[side])
    torch.testing.assert_close(alone, both[["poses", "weight"].index(side)])


def test_non_contiguous_inputs(path):
    leaves, _ = case(4, False, {})
    poses = leaves["poses"].detach().transpose(0, 1).contiguous().transpose(0, 1)
    weight = leaves["weight"].detach().permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0)
    assert not poses.is_contiguous()
    assert not weight.is_contiguous()
    torch.testing.assert_close(
        routed_linear(poses, weight).pose, routed_linear(poses.contiguous(), weight.contiguous()).pose
    )


@pytest.mark.parametrize("shared", [False, True])
def test_empty_batches_and_zero_children(path, shared):
    for batch, children in ((0, 7), (2, 0), (0, 0)):
        leaves, _ = case(batch, shared, {}, children=children)
        out = routed_linear(leaves["poses"], leaves["weight"], coupling=True)
        assert out.pose.shape == (batch, 3, 9)
        assert out.coupling.shape == (batch, children, 3)
        assert (out.pose == 0).all()
        for name, gradient in zip(
            ("poses", "weight"),
            torch.autograd.grad(out.pose.sum(), [leaves["poses"], leaves["weight"]]),
            strict=True,
        ):
            assert gradient.shape == leaves[name].shape
            assert (gradient == 0).all()


def test_an_image_is_independent_of_its_batch_and_runs_repeat(path):
    leaves, _ = case(37, False, {}, torch.float32)
    poses, weight = leaves["poses"].detach(), leaves["weight"].detach()
    together = routed_linear(poses, weight).pose
    assert torch.equal(together, routed_linear(poses, weight).pose)
    for image in (0, 20, 36):
        alone = routed_linear(poses[image : image + 1], weight).pose[0]
        torch.testing.assert_close(alone, together[image], rtol=1e-6, atol=1e-6)


def test_threads_change_rounding_only():
    leaves, _ = case(20, True, {}, children=200)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = routed_linear(leaves["poses"], leaves["weight"]).pose
            results.append((out, *torch.autograd.grad(out.sum(), [leaves["poses"], leaves["weight"]])))
        for other in results[1:]:
            for a, b in zip(other, results[0], strict=True):
                torch.testing.assert_close(a, b)
    finally:
        torch.set_num_threads(before)


def test_masked_children_may_hold_nan(path):
    leaves, _ = case(3, False, {})
    poses = leaves["poses"].detach().clone()
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[:, 4:] = False
    expected = routed_linear(poses, leaves["weight"], mask=mask)
    poses[:, 4:] = float("nan")
    poses.requires_grad_()
    out = routed_linear(poses, leaves["weight"], mask=mask)
    torch.testing.assert_close(out.pose, expected.pose)
    (gradient,) = torch.autograd.grad(out.pose.sum(), poses)
    assert (gradient[:, 4:] == 0).all()


def test_zero_poses_have_finite_gradients(path):
    poses = torch.zeros(3, 7, 5, requires_grad=True)
    weight = torch.randn(7, 3, 5, 9, requires_grad=True)
    out = routed_linear(poses, weight)
    for gradient in torch.autograd.grad(out.pose.sum() + out.activation.sum(), [poses, weight]):
        assert gradient.isfinite().all()


def test_large_logits_do_not_overflow(path):
    leaves, _ = case(9, False, {}, torch.float32)
    out = routed_linear(100 * leaves["poses"], 100 * leaves["weight"])
    assert out.pose.isfinite().all()


def test_half_precision_and_autocast_compute_in_float32(path):
    leaves, _ = case(3, False, {}, torch.float32)
    exact = routed_linear(leaves["poses"], leaves["weight"]).pose
    half = routed_linear(leaves["poses"].bfloat16(), leaves["weight"].bfloat16())
    assert half.pose.dtype == torch.bfloat16
    torch.testing.assert_close(half.pose.float(), exact, atol=0.05, rtol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(routed_linear(leaves["poses"], leaves["weight"]).pose, exact)


def test_bad_input():
    poses, weight = torch.rand(2, 7, 5), torch.rand(7, 3, 5, 9)
    with pytest.raises(ValueError, match=r"got \(7, 5\) and \(7, 3, 5, 9\)"):
        routed_linear(poses[0], weight)
    with pytest.raises(ValueError, match=r"poses of shape \(2, 7, 5\) do not fit weight of shape \(6, 3, 5, 9\)"):
        routed_linear(poses, weight[:6])
    with pytest.raises(ValueError, match="do not fit"):
        routed_linear(poses[..., :4], weight)
    with pytest.raises(TypeError, match="poses must be a floating point tensor"):
        routed_linear(poses.long(), weight)
    with pytest.raises(ValueError, match=r"unknown fused routing 'em'. .*Known: dynamic, optimized"):
        routed_linear(poses, weight, "em")
    with pytest.raises(ValueError, match="iterations must be at least 1"):
        routed_linear(poses, weight, iterations=0)
    with pytest.raises(ValueError, match="are options of dynamic routing"):
        routed_linear(poses, weight, "optimized", leaky=True)
    with pytest.raises(ValueError, match="alpha must be positive"):
        routed_linear(poses, weight, "optimized", alpha=0.0)
    with pytest.raises(ValueError, match="amend=True scales"):
        routed_linear(poses, weight, amend=True)
    with pytest.raises(ValueError, match=r"bias must have shape \(3, 9\)"):
        routed_linear(poses, weight, bias=torch.zeros(9))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 7\)"):
        routed_linear(poses, weight, mask=torch.ones(2, 6, dtype=torch.bool))


def test_one_hundred_thousand_children_run_in_bounded_memory():
    """100,000 children, 100 parents: votes of eight images would take 5 GB; a fresh process may not grow by 300 MB."""
    code = """
import resource, torch
from torchcaps.ops import routed_linear
torch.set_num_threads(2)
poses = torch.randn(8, 100_000, 4, requires_grad=True)
weight = (0.01 * torch.randn(100, 4, 16)).requires_grad_()
routed_linear(poses[:, :100], weight).pose.sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
routed_linear(poses, weight, iterations=2).pose.sum().backward()
assert poses.grad.isfinite().all() and weight.grad.isfinite().all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    grown = float(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert grown < 300, f"{grown:.0f} MB"


def test_a_layer_uses_it_and_gives_the_numbers_of_the_votes():
    for options in ("dynamic", {"name": "dynamic", "bias": True, "leaky": True, "amend": True}, "optimized"):
        layer = CapsuleLinear(6, 4, 3, 5, options).double()
        children = Capsules.from_pose(torch.rand(9, 6, 4, dtype=torch.float64), torch.rand(9, 6) < 0.8)
        assert layer.routing.fused
        torch.testing.assert_close(layer(children).pose, layer.route(children).pose)
    for options in ({"name": "dynamic", "prior": True}, "kmeans", {"name": "em", "compete_within": 3}):
        assert not CapsuleLinear(6, 4, 3, 5, options).routing.fused


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"leaky": True, "amend": True}])
def test_partial_sampling_without_stored_votes_is_that_on_votes(options):
    layer = CapsuleLinear(6, 4, 5, 3, {"name": "dynamic", "partial_sampling": 0.6, **options}).double()
    children = Capsules.from_pose(torch.rand(9, 6, 4, dtype=torch.float64), torch.rand(9, 6) < 0.8)
    found = []
    for run in (layer, layer.route):
        torch.manual_seed(5)
        out = run(children)
        layer.zero_grad()
        out.pose.square().sum().backward()
        found.append((out.pose, out.activation, layer.weight.grad.clone()))
    torch.testing.assert_close(found[0], found[1])
    closed = found[0][2].flatten(2).abs().sum(dim=2).sum(dim=0) == 0
    assert closed.sum() == 2, "three of five parents take part"
    layer.eval()
    torch.testing.assert_close(layer(children).pose, layer.route(children).pose)


def test_sampled_parents_are_of_dynamic_routing():
    with pytest.raises(ValueError, match="dynamic"):
        routed_linear(torch.rand(2, 3, 4), torch.rand(3, 5, 4, 2), "optimized", parents=torch.tensor([0, 2]))


def test_the_kernel_checks_before_it_takes_a_pointer():
    if not HAS_KERNEL:
        assert "compiler" in REASON
        return
    poses, weight = torch.rand(2, 7, 5), torch.rand(7, 3, 5, 9)
    for agree, child in ((torch.rand(2, 3, 8), None), (None, torch.rand(2, 6)), (torch.rand(2, 3, 9).double(), None)):
        with pytest.raises(ValueError, match="the kernel needs"):
            KernelRouting().sum_pass(DynamicPlan(), Inputs(poses, weight, child, None), agree)
