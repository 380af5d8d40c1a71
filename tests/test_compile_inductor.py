"""torch.compile with its default backend, where there is a C++ compiler for it."""

import shutil

import pytest
import torch

from torchcaps import create_model
from torchcaps.ops import SQUASH_KINDS, dynamic_routing, squash
from torchcaps.testing.models import check_model_compile

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None,
    reason="torch.compile's default backend needs a C++ compiler; the tests with backend aot_eager still ran",
)


@needs_compiler
def test_dynamic_routing_value_and_gradient():
    torch._dynamo.reset()
    votes = torch.randn(2, 7, 3, 5, requires_grad=True)
    outs = [function(votes, 3) for function in (dynamic_routing, torch.compile(dynamic_routing, fullgraph=True))]
    torch.testing.assert_close(outs[1].pose, outs[0].pose)
    gradients = [torch.autograd.grad(out.pose.square().sum(), votes)[0] for out in outs]
    torch.testing.assert_close(gradients[1], gradients[0])


@needs_compiler
@pytest.mark.parametrize("kind", SQUASH_KINDS)
def test_squash_at_zero_stays_exact(kind):
    torch._dynamo.reset()
    pose = torch.zeros(2, 4, requires_grad=True)
    out = torch.compile(squash, fullgraph=True)(pose, kind)
    (gradient,) = torch.autograd.grad(out.sum(), pose)
    assert (out == 0).all()
    assert (gradient == 0).all()


@needs_compiler
def test_capsnet_small():
    check_model_compile(create_model("capsnet-small", (1, 17, 17), 3), torch.rand(2, 1, 17, 17), backend="inductor")
