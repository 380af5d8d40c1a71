"""Optimised routing (Wang & Liu 2018)."""

from torchcaps.ops.optimized.reference import optimized_routing_reference
from torchcaps.ops.optimized.routing import optimized_routing

__all__ = ["optimized_routing", "optimized_routing_reference"]
