"""Which children a parent on a grid sees: the windows of a convolution."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchcaps.ops.constants import constant
from torchcaps.ops.precision import cast, compute_type, exact

CPU = torch.device("cpu")


class Windows(NamedTuple):
    """The windows that slide over a grid of children; there is one position of parents per window.

    Positions are counted row by row. Q positions of children, P of parents, W places in a window.

    Attributes:
        size: of the grid of children, one number per dimension.
        kernel: of a window.
        stride: from one window to the next.
        padding: positions without children around the grid.
        shared: all places in a window use the same weights, so that W = Q may be any number.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    shared: bool = False

    @classmethod
    def whole(cls, size: tuple[int, ...]) -> Windows:
        """One window over everything, with shared weights."""
        return cls(size, size, (1,) * len(size), (0,) * len(size), shared=True)

    def out(self) -> tuple[int, ...]:
        """Size of the grid of parents. No property: torch 2.8 cannot compile those of a NamedTuple."""
        sizes = zip(self.size, self.kernel, self.stride, self.padding, strict=True)
        return tuple((size + 2 * padding - kernel) // stride + 1 for size, kernel, stride, padding in sizes)

    def table(self, device: torch.device = CPU) -> Tensor:
        """The child position at every place of every window, int64 ``[P, W]``; −1 in the padding."""
        return constant(_table, self, device)

    def seen_from(self, device: torch.device = CPU) -> Tensor:
        """Where a child is seen: places of windows, counted through all P·W, int64 ``[Q, L]``; −1 for no place.

        L is the number of windows that see a child, at most.
        """
        return constant(_seen_from, self, device)

    def links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same from the children's side, for the kernel: int32 lists.

        ``first`` ``[Q + 1]`` says where the links of a child position begin, ``parent`` and ``slice`` where each of
        them leads and which weights it uses.
        """
        return _links(self)


def _outer(grid: Tensor, size: int, along: Tensor) -> Tensor:
    """Positions on a grid of one dimension more: ``[A, B]``, along which they are ``[a, b]``, → ``[A·a, B·b]``."""
    return (grid[:, None, :, None] * size + along[None, :, None, :]).flatten(2).flatten(0, 1)


def _table(windows: Windows, device: torch.device) -> Tensor:
    table = outside = torch.zeros(1, 1, dtype=torch.int64, device=device)
    sizes = zip(windows.size, windows.kernel, windows.stride, windows.padding, windows.out(), strict=True)
    for size, kernel, stride, padding, out in sizes:
        places = torch.arange(kernel, device=device) - padding
        along = torch.arange(out, device=device)[:, None] * stride + places  # [out, kernel]
        table = _outer(table, size, along)
        outside = _outer(outside, 1, ((along < 0) | (along >= size)).long())
    return table.masked_fill(outside > 0, -1)


def _seen_from(windows: Windows, device: torch.device) -> Tensor:
    window = place = outside = torch.zeros(1, 1, dtype=torch.int64, device=device)
    sizes = zip(windows.size, windows.kernel, windows.stride, windows.padding, windows.out(), strict=True)
    for size, kernel, stride, padding, out in sizes:
        child = torch.arange(size, device=device)[:, None] + padding
        last = child // stride  # the last window that may see it; so many before it may, too
        at = last - torch.arange((kernel + stride - 1) // stride, device=device)  # [size, L]
        inner = child - at * stride
        window, place = _outer(window, out, at), _outer(place, kernel, inner)
        outside = _outer(outside, 1, ((at < 0) | (at >= out) | (inner >= kernel)).long())
    return (window * math.prod(windows.kernel) + place).masked_fill(outside > 0, -1)


@functools.lru_cache(maxsize=64)
def _links(windows: Windows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = windows.table().numpy()
    child = table.ravel()
    order = np.argsort(child, kind="stable")
    order = order[child[order] >= 0]
    parent, place = np.divmod(order, table.shape[1])
    counts = np.bincount(child[order], minlength=math.prod(windows.size))
    first = np.concatenate([[0], counts.cumsum()])
    slices = np.zeros_like(place) if windows.shared else place
    return first.astype(np.int32), parent.astype(np.int32), slices.astype(np.int32)


def window_votes(poses: Tensor, weight: Tensor, windows: Windows, shift: Tensor | None = None) -> Tensor:
    """V = M W + shift for every place of every window; anything in the padding.

    Shapes:
        poses ``[B, Q, T, R, d]``, weight ``[W, T, J, d, C]`` (one place if shared), shift ``[Q, R, C]`` →
        ``[B, P, W, T, J, R, C]``.
    """
    table = windows.table(poses.device).clamp_min(0)
    dtype = compute_type(poses, weight)
    weight = cast(weight, dtype).expand(table.shape[1], *weight.shape[1:])
    with exact(poses):
        votes = torch.einsum("bpwtrd,wtjdc->bpwtjrc", cast(poses, dtype)[:, table], weight)
    return votes if shift is None else votes + shift[table][:, :, None, None]


def windows_present(mask: Tensor, windows: Windows) -> Tensor:
    """Which windows hold no position where all children are masked: ``[B, Q, T]`` → ``[B, P]``.

    The windows' own padding does not count: whoever asked for it wants those parents. A window over everything, whose
    weights are shared, is there however few the children are.
    """
    if windows.shared:
        return mask.new_ones(mask.shape[0], 1)
    table = windows.table(mask.device)
    here = mask.any(dim=-1)[:, table.clamp_min(0)]  # [B, P, W]
    return (here | (table < 0)).all(dim=-1)
