"""Routing algorithms as modules, and the resolver: a name, a mapping or an instance."""

from torchcaps.routing.base import Routing
from torchcaps.routing.controls import FrozenRouting, RandomRouting, UniformRouting
from torchcaps.routing.em import EMRouting
from torchcaps.routing.registry import (
    FunctionRouting,
    RoutingLike,
    list_routings,
    register_routing,
    resolve_routing,
    unregister_routing,
)
from torchcaps.routing.vector import DynamicRouting, KMeansRouting, OptimizedRouting

__all__ = [
    "DynamicRouting",
    "EMRouting",
    "FrozenRouting",
    "FunctionRouting",
    "KMeansRouting",
    "OptimizedRouting",
    "RandomRouting",
    "Routing",
    "RoutingLike",
    "UniformRouting",
    "list_routings",
    "register_routing",
    "resolve_routing",
    "unregister_routing",
]
