"""Any routing between capsules on a grid: every window is routed as an image of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.ops.result import RoutingOutput, RoutingTrace
from torchcaps.ops.routed import routed_linear
from torchcaps.ops.windows import Windows, window_votes

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

    Votes are not stored where :func:`torchcaps.ops.routed_linear` can serve.
    """
    table = windows.table(poses.device)
    places, here = table.shape[1], table.clamp_min(0)
    if mask is not None:
        poses = poses.masked_fill(~mask[..., None, None], 0)
    seen = _children_seen(table, len(poses), poses.shape[2], mask, any(windows.padding))
    present = activation[:, here].flatten(2).flatten(0, 1)  # [B·P, W·T]
    options = routing.fused_options()
    if options is None or shift is not None or trace:
        votes = window_votes(poses, weight, windows, shift)
        votes = votes.flatten(-2).flatten(2, 3).flatten(0, 1)  # [B·P, W·T, J, D]
        output: RoutingOutput = routing(votes, present, seen, trace)
    else:
        flat = poses[:, here].flatten(-2).flatten(2, 3).flatten(0, 1)  # [B·P, W·T, R·d]
        matrix = _on_vectors(weight.expand(places, *weight.shape[1:]), poses.shape[3]).flatten(0, 1)
        amended = present if options.get("amend") else None
        routed = routed_linear(flat, matrix, activation=amended, mask=seen, coupling=coupling, **options)
        shares = flat.new_empty(len(flat), 0) if routed.coupling is None else routed.coupling
        output = RoutingOutput(routed.pose, routed.activation, shares)
    return _of_images(output, len(poses), len(table), places)


def _children_seen(table: Tensor, batch: int, types: int, mask: Tensor | None, padded: bool) -> Tensor | None:
    """The mask of every window's children ``[B·P, W·T]``: those in the padding are not there."""
    if mask is None and not padded:
        return None
    seen = (table >= 0)[None, :, :, None].expand(batch, -1, -1, types)
    if mask is not None:
        seen = seen & mask[:, table.clamp_min(0)]
    return seen.flatten(2).flatten(0, 1)


def _on_vectors(weight: Tensor, rows: int) -> Tensor:
    """The matrices ``[..., R·d, R·C]`` that do to a pose read as a vector what ``[..., d, C]`` does to all its rows."""
    if rows == 1:
        return weight
    eye = torch.eye(rows, dtype=weight.dtype, device=weight.device)
    return torch.einsum("rs,...dc->...rdsc", eye, weight).flatten(-4, -3).flatten(-2)


def _of_images(output: RoutingOutput, batch: int, positions: int, places: int) -> RoutingOutput:
    """Windows back to images: ``[B·P, ...]`` → ``[B, P, ...]``, children ``[W·T]`` → ``[W, T]``."""
    grid = (batch, positions)
    shares = torch.unflatten(output.coupling, 0, grid)
    if shares.dim() > 3:
        shares = torch.unflatten(shares, 2, (places, -1))
    trace = None
    if output.trace is not None:
        inner, pose, activation, objective = output.trace
        trace = RoutingTrace(
            torch.unflatten(torch.unflatten(inner, 2, (places, -1)), 1, grid),
            torch.unflatten(pose, 1, grid),
            torch.unflatten(activation, 1, grid),
            torch.unflatten(objective, 1, grid).sum(dim=2),
        )
    pose, activation = torch.unflatten(output.pose, 0, grid), torch.unflatten(output.activation, 0, grid)
    return RoutingOutput(pose, activation, shares, trace)
