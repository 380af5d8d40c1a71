"""Dynamic routing by agreement (Sabour et al. 2017)."""

from torchcaps.ops.dynamic.reference import dynamic_routing_reference
from torchcaps.ops.dynamic.routing import dynamic_routing, sample_parents

__all__ = ["dynamic_routing", "dynamic_routing_reference", "sample_parents"]
