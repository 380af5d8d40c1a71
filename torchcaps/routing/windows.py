"""Any routing between capsules on a grid: every window is routed as an image of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.ops.result import RoutingOutput, RoutingTrace
from torchcaps.ops.transforms import can_be_read
from torchcaps.ops.windows import Windows, window_votes, windows_present

if TYPE_CHECKING:
    from torchcaps.routing.base import Routing


def route_each_window(
    routing: Routing,
    poses: Tensor,
    weight: Tensor,
    activation: Tensor,
    windows: Windows,
    *,
    shift: Tensor | None,
    mask: Tensor | None,
    coupling: bool,
    trace: bool,
) -> RoutingOutput:
    """Route windows one by one; :meth:`torchcaps.routing.Routing.route_windows` has the shapes.

    Votes are not stored by routings that are fused.
    """
    seen = _Seen(windows, mask, poses)
    if mask is not None:
        poses = poses.masked_fill(~mask[..., None, None], 0)
    present = seen.children_of(activation)  # [N, W·T]
    if routing.fused and shift is None and not trace:
        flat = seen.children_of(poses.flatten(-2))  # [N, W·T, R·d]
        matrix = _on_vectors(weight.expand(seen.places, *weight.shape[1:]), poses.shape[3]).flatten(0, 1)
        return _of_images(routing.route_linear(flat, matrix, present, seen.mask, coupling), seen)
    votes = window_votes(poses, weight, windows, shift).flatten(-2).flatten(2, 3).flatten(0, 1)
    flat = seen.children_of(poses.flatten(-2)) if routing.needs_poses else present
    return _of_images(routing.route_votes(seen.choose(votes), flat, present, seen.mask, trace), seen)


class _Seen:
    """Which windows are routed and which children each of them sees.

    Windows that hold padding are left out where their number may depend on the data: not while a model is compiled,
    exported or transformed, and not on devices that would be waited for. There they are routed and hidden by their
    mask, with the same result.

    Attributes:
        kept: the windows to route, counted through all images ``[N]``; None for all B·P.
        mask: of the children ``[N, W·T]``, None if all are there.
    """

    def __init__(self, windows: Windows, mask: Tensor | None, poses: Tensor) -> None:
        (batch, positions, types), device = poses.shape[:3], poses.device
        table = windows.table(device)
        self.batch, (self.windows, self.places) = batch, table.shape
        self.rows = torch.arange(batch, device=device)[:, None, None] * positions + table.clamp_min(0)  # [B, P, W]
        self.rows = self.rows.flatten(0, 1)
        self.kept = None
        if mask is not None and not windows.shared and can_be_read(mask):
            self.kept = windows_present(mask, windows).flatten().nonzero()[:, 0]
            self.rows = self.rows[self.kept]
        self.mask = None
        if mask is not None:
            self.mask = self.children_of(mask)
        if any(windows.padding):
            inside = (table >= 0)[None, :, :, None].expand(batch, -1, -1, types).flatten(2).flatten(0, 1)
            self.mask = inside if self.mask is None else self.mask & self.choose(inside)

    def children_of(self, values: Tensor) -> Tensor:
        """What children have ``[B, Q, T, *]`` for each window that is routed: ``[N, W·T, *]``."""
        rows = values.flatten(0, 1).index_select(0, self.rows.flatten())  # its gradient is much faster than x[rows]'s
        return rows.view(self.rows.shape[0], self.places * values.shape[2], *values.shape[3:])

    def choose(self, of_windows: Tensor) -> Tensor:
        """The windows that are routed: ``[B·P, *]`` → ``[N, *]``."""
        return of_windows if self.kept is None else of_windows[self.kept]

    def restore(self, routed: Tensor, dim: int = 0) -> Tensor:
        """All windows again, zeros for those left out: ``[N, *]`` → ``[B, P, *]``."""
        if self.kept is not None:
            shape = [*routed.shape]
            shape[dim] = self.batch * self.windows
            routed = routed.new_zeros(shape).index_copy(dim, self.kept, routed)
        return torch.unflatten(routed, dim, (self.batch, self.windows))


def _on_vectors(weight: Tensor, rows: int) -> Tensor:
    """The matrices ``[..., R·d, R·C]`` that do to a pose read as a vector what ``[..., d, C]`` does to all its rows."""
    if rows == 1:
        return weight
    eye = torch.eye(rows, dtype=weight.dtype, device=weight.device)
    spread = eye[:, None, :, None] * weight[..., None, :, None, :]  # [..., R, d, R, C]
    return spread.flatten(-4, -3).flatten(-2)


def _of_images(output: RoutingOutput, seen: _Seen) -> RoutingOutput:
    """Windows back to images: ``[N, ...]`` → ``[B, P, ...]``, children ``[W·T]`` → ``[W, T]``."""
    shares = None
    if output.coupling is not None:
        shares = torch.unflatten(seen.restore(output.coupling), 2, (seen.places, -1))
    trace = None
    if output.trace is not None:
        inner, pose, activation, objective = output.trace
        trace = RoutingTrace(
            seen.restore(torch.unflatten(inner, 2, (seen.places, -1)), 1),
            seen.restore(pose, 1),
            seen.restore(activation, 1),
            seen.restore(objective, 1).sum(dim=2),
        )
    return RoutingOutput(seen.restore(output.pose), seen.restore(output.activation), shares, trace)
