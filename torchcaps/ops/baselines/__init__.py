"""Uniform, random and frozen coupling."""

from torchcaps.ops.baselines.reference import frozen_routing_reference
from torchcaps.ops.baselines.routing import frozen_routing, random_coupling, random_routing, uniform_routing

__all__ = [
    "frozen_routing",
    "frozen_routing_reference",
    "random_coupling",
    "random_routing",
    "uniform_routing",
]
