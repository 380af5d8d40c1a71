"""Backends plug in, say why they do not serve, and a library of another version is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from paths import HAS_KERNEL, REASON

from torchcaps.ops import dynamic_routing, routed_linear
from torchcaps.ops.backends import (
    BackendError,
    list_backends,
    passed_over,
    register_backend,
    unregister_backend,
    use_backend,
)
from torchcaps.ops.backends.library import ABI, load_library, open_library
from torchcaps.ops.dynamic.backend import RoutedBackend
from torchcaps.ops.dynamic.cpu import FIELDS, KernelRouting
from torchcaps.ops.dynamic.op import serving
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.dynamic.torch import TorchRouting
from torchcaps.ops.plan import make_plan, read_plan

needs_kernel = pytest.mark.skipif(not HAS_KERNEL, reason=f"no kernel: {REASON}")
POSES, WEIGHT = torch.rand(2, 6, 4), torch.rand(6, 3, 4, 5)


@pytest.fixture
def outside():
    """A backend from outside of the package, which counts its calls and serves three iterations only."""

    @register_backend("dynamic", "cpu")
    class Counting(TorchRouting):
        name = "counting"
        calls = 0

        def supports(self, plan, tensors):
            return None if plan.iterations == 3 else "it knows three iterations only"

        def sum_pass(self, *arguments, **options):
            type(self).calls += 1
            return super().sum_pass(*arguments, **options)

    yield Counting
    unregister_backend("dynamic", "counting")


def test_a_backend_from_outside_is_used(outside):
    weight = WEIGHT.clone().requires_grad_()
    out = routed_linear(POSES, weight)
    assert outside.calls == 3
    votes = torch.einsum("bid,ijdk->bijk", POSES, weight)
    torch.testing.assert_close(out.pose, dynamic_routing(votes).pose)
    out.pose.sum().backward()  # by its other passes
    assert weight.grad.isfinite().all()


def test_one_that_cannot_serve_is_passed_over_and_says_why(outside):
    routed_linear(POSES, WEIGHT, iterations=2)
    assert outside.calls == 0
    inputs = (POSES, WEIGHT, None, None)
    assert passed_over("dynamic", DynamicPlan(iterations=2), inputs) == {"counting": "it knows three iterations only"}
    with use_backend("counting"), pytest.raises(BackendError, match="counting.*three iterations only"):
        routed_linear(POSES, WEIGHT, iterations=2)


def test_a_backend_that_was_asked_for_serves_or_says_that_it_cannot():
    with use_backend("torch"):
        routed_linear(POSES, WEIGHT)
    with pytest.raises(ValueError, match="Did you mean 'torch'"), use_backend("troch"):
        pass
    with use_backend("cpu"), pytest.raises(BackendError, match="no backend 'cpu' for meta"):
        serving(DynamicPlan(), (POSES.to("meta"), WEIGHT.to("meta"), None, None))


def test_the_environment_asks_for_a_backend():
    code = "from torchcaps.ops import routed_path; print(routed_path())"
    environment = {**os.environ, "TORCHCAPS_BACKEND": "torch"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).startswith("torch")


def test_every_algorithm_has_torch_for_every_device():
    everywhere = {(one.algorithm, one.backend.name) for one in list_backends() if one.device is None}
    assert everywhere == {("convolution", "torch"), ("dynamic", "torch"), ("em", "torch")}
    assert all(isinstance(one.backend, RoutedBackend) for one in list_backends() if one.algorithm == "dynamic")


def test_no_two_of_a_name():
    with pytest.raises(ValueError, match="already has a backend named 'torch'"):
        register_backend("dynamic")(TorchRouting)


@needs_kernel
def test_a_struct_with_other_fields_is_refused():
    library, _ = load_library()
    assert library.mismatch("dynamic", FIELDS) is None
    told = library.mismatch("dynamic", FIELDS | {"sharpness"})
    assert "lacks ['sharpness']" in told
    assert "pip install" in told
    assert "too many" in library.mismatch("dynamic", FIELDS - {"leaky"})
    assert library.fields("nothing") == ()
    with pytest.raises(RuntimeError, match="does not know the option 'sigmoid'"):
        library.option("sigmoid")


@needs_kernel
def test_a_kernel_of_other_fields_leaves_the_call_to_torch(monkeypatch):
    monkeypatch.setattr(KernelRouting, "unavailable", lambda self: "of another version")
    assert "cpu" in passed_over("dynamic", DynamicPlan(), (POSES, WEIGHT, None, None))
    assert routed_linear(POSES, WEIGHT).pose.isfinite().all()


def test_a_library_of_another_version_is_refused(tmp_path):
    library, told = open_library(Path(torch.__file__).parent / "lib" / "libtorch_global_deps.so")
    assert library is None
    assert f"expected {ABI}" in told
    assert "pip install" in told
    (tmp_path / "_native.so").write_bytes(b"no library")
    library, told = open_library(tmp_path / "_native.so")
    assert library is None
    assert "cannot be loaded" in told


def test_plans_check_themselves_and_cross_as_a_text():
    plan = make_plan(DynamicPlan, kind="optimized", iterations=2, alpha=[1.0, 0.5, 0.25])
    assert plan.alphas == (1.0, 0.5)
    again = read_plan(DynamicPlan, plan.text)
    assert (again.alphas, again.text) == (plan.alphas, plan.text)
    assert make_plan(DynamicPlan, iterations=4, squash="half") is make_plan(DynamicPlan, iterations=4, squash="half")
    with pytest.raises(TypeError, match="has no option 'sqush'. Did you mean 'squash'"):
        make_plan(DynamicPlan, sqush="none")
    with pytest.raises(ValueError, match="options of dynamic routing"):
        DynamicPlan("optimized", leaky=True)
