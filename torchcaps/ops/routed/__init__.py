"""Votes and routing in one op that never stores a vote."""

from torchcaps.ops.routed.linear import RoutedOutput, routed_linear, routed_path

__all__ = ["RoutedOutput", "routed_linear", "routed_path"]
