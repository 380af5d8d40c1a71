"""What every routing returns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.squash import length


class RoutingTrace(NamedTuple):
    """What happened in each of the r iterations; detached from the graph.

    ``trace.pose[t]`` is the pose the routing would have returned after t+1 iterations.

    Attributes:
        coupling: ``[r, B, I, J]``.
        pose: ``[r, B, J, D]``.
        activation: ``[r, B, J]``.
        objective: ``[r, B]``, what the algorithm descends; each routing's docstring names it.
    """

    coupling: Tensor
    pose: Tensor
    activation: Tensor
    objective: Tensor


class RoutingOutput(NamedTuple):
    """The parents that a routing found, and who sent to whom.

    Attributes:
        pose: ``[B, J, D]``.
        activation: ``[B, J]``.
        coupling: ``[B, I, J]``: the share of child i that went to parent j in the last iteration; None if it was not
            asked for, or no routing took place that could say.
        trace: the iterations one by one, if they were asked for.
    """

    pose: Tensor
    activation: Tensor
    coupling: Tensor | None = None
    trace: RoutingTrace | None = None


class Iterations:
    """Collects a trace if asked to; otherwise keeps nothing."""

    def __init__(self, trace: bool) -> None:
        self.wanted = trace
        self._steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def add(self, coupling: Tensor, pose: Tensor, activation: Tensor, objective: Tensor) -> None:
        """Record one iteration."""
        self._steps.append((coupling.detach(), pose.detach(), activation.detach(), objective.detach()))

    def stack(self) -> RoutingTrace | None:
        """The iterations so far as one trace."""
        if not self.wanted:
            return None
        coupling, pose, activation, objective = zip(*self._steps, strict=True)
        return RoutingTrace(torch.stack(coupling), torch.stack(pose), torch.stack(activation), torch.stack(objective))


def vector_output(pose: Tensor, coupling: Tensor, trace: RoutingTrace | None = None) -> RoutingOutput:
    """The output of a routing between vector capsules, whose activation is the length of the pose."""
    return RoutingOutput(pose, length(pose), coupling, trace)
