"""Dynamic routing by agreement (Sabour et al. 2017), with its votes and without; so also optimised routing."""

from torchcaps.ops.dynamic import cpu, torch  # noqa: F401 - the backends; the last registered is asked first
from torchcaps.ops.dynamic.linear import RoutedOutput, routed_linear, routed_path
from torchcaps.ops.dynamic.reference import dynamic_routing_reference
from torchcaps.ops.dynamic.routing import dynamic_routing, sample_parents

__all__ = [
    "RoutedOutput",
    "dynamic_routing",
    "dynamic_routing_reference",
    "routed_linear",
    "routed_path",
    "sample_parents",
]
