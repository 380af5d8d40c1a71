"""Every op compiles whole, without graph breaks, with its options and with a trace."""

import pytest
import torch

from torchcaps.ops import (
    SQUASH_KINDS,
    dynamic_routing,
    em_routing,
    frozen_routing,
    gaussian_mixture,
    kmeans_routing,
    optimized_routing,
    random_routing,
    soft_kmeans,
    squash,
    uniform_routing,
)

VOTES = torch.randn(2, 7, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
ACTIVATION = torch.rand(2, 7, dtype=torch.float64)
MASK = torch.arange(7).expand(2, 7) < torch.tensor([[5], [7]])
ZERO = torch.zeros(3, dtype=torch.float64)
OPEN = torch.tensor([True, False, True])
EVERYTHING = {"leaky": True, "amend": True, "bias": torch.ones(3, 5).double(), "logits": ZERO, "parent_mask": OPEN}

OPS = {
    "dynamic": lambda v: dynamic_routing(v, 3, activation=ACTIVATION, mask=MASK, trace=True, **EVERYTHING),
    "optimized": lambda v: optimized_routing(v, 3, alpha=[2.0, 1.0, 0.5], mask=MASK, trace=True),
    "kmeans": lambda v: kmeans_routing(v, 3, mask=MASK, trace=True),
    "kmeans-inner": lambda v: kmeans_routing(v, 3, distance="inner", mask=MASK, trace=True),
    "em": lambda v: em_routing(v, ACTIVATION, ZERO, ZERO, 3, mask=MASK, trace=True),
    "uniform": lambda v: uniform_routing(v, mask=MASK, trace=True),
    "random": lambda v: random_routing(v, seed=3, mask=MASK, trace=True),
    "frozen": lambda v: frozen_routing(v, ZERO.expand(7, 3), mask=MASK, trace=True),
    "soft_kmeans": lambda v: soft_kmeans(v.view(-1, 5), v[0, :3, 0], 3),
    "gaussian_mixture": lambda v: gaussian_mixture(v.view(-1, 5), v[0, :2, 0], 3),
} | {f"squash-{kind}": lambda v, kind=kind: (squash(v, kind),) for kind in SQUASH_KINDS}


def leaves(result):
    return [t for part in result for t in (part if isinstance(part, tuple) else (part,)) if t is not None]


@pytest.mark.parametrize("name", OPS)
def test_fullgraph(name):
    torch._dynamo.reset()
    compiled = torch.compile(OPS[name], fullgraph=True, backend="aot_eager")
    for fast, plain in zip(leaves(compiled(VOTES)), leaves(OPS[name](VOTES)), strict=True):
        torch.testing.assert_close(fast, plain)
