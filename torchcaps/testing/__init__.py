"""Checks that ship, so that your own routing or model can be held to the library's standard in one call."""

from torchcaps.testing.models import MODEL_CHECKS, TEXT_CHECKS, assert_model, random_texts
from torchcaps.testing.routing import (
    ROUTING_CHECKS,
    RoutingCase,
    assert_routing,
    prepared_routing,
    routing_case,
)

__all__ = [
    "MODEL_CHECKS",
    "ROUTING_CHECKS",
    "TEXT_CHECKS",
    "RoutingCase",
    "assert_model",
    "assert_routing",
    "prepared_routing",
    "random_texts",
    "routing_case",
]
