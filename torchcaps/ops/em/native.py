"""The kernel of :mod:`torchcaps.ops.em.moments`, called through plain C."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from torchcaps.ops.em.moments import Children, MomentGradients, Moments, Parents
from torchcaps.ops.routed.native import run_kernel, tensor_pointer
from torchcaps.ops.windows import Windows


class _Grid(ctypes.Structure):
    """The struct of csrc/problem.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("B", "Q", "P", "K", "T", "J", "rows", "inner", "cols")),
        *((name, ctypes.c_int32) for name in ("everywhere", "threads")),
        *((name, ctypes.c_void_p) for name in ("first", "parent", "slice")),
    )


class _Call:
    """Sizes and checked addresses of one call."""

    def __init__(
        self, children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
    ) -> None:
        poses, weight, activation = (tensor.contiguous() for tensor in children[:3])
        batch, positions, types, rows, inner = poses.shape
        slices, _, out_types, _, cols = weight.shape
        self.links = windows.links()
        at = len(windows.table())
        self.like, self.sums, self.votes = poses, (batch, at, out_types), (batch, at, out_types, rows * cols)
        self.grid = _Grid(
            *(batch, positions, at, slices, types, out_types, rows, inner, cols),
            everywhere,
            torch.get_num_threads(),
            *(part.ctypes.data for part in self.links),
        )
        if positions + 1 != len(self.links[0]) or slices != (1 if windows.shared else windows.table().shape[1]):
            raise ValueError(f"{windows} does not fit poses {tuple(poses.shape)} and weight {tuple(weight.shape)}.")
        self.there = None if present is None else present.to(torch.uint8).contiguous()
        if self.there is not None and tuple(self.there.shape) != (batch, at):
            raise ValueError(f"present must have shape {(batch, at)}, got {tuple(self.there.shape)}.")
        self.kept = [poses, weight, activation, self.there]  # alive while the kernel runs
        self.inputs = [
            self.address("poses", poses, *poses.shape),
            self.address("weight", weight, slices, types, out_types, inner, cols),
            self.address("activation", activation, batch, positions, types),
            self.address("shift", children.shift, positions, rows, cols),
            *(self.address("parents", part, *shape) for part, shape in self._parents(parents)),
            None if self.there is None else self.there.data_ptr(),
        ]

    def _parents(self, parents: Parents | None) -> list[tuple[Tensor | None, tuple[int, ...]]]:
        shapes = (self.sums, self.votes, self.votes)
        if parents is None:
            return [(None, shape) for shape in shapes]
        return list(zip(parents, shapes, strict=True))

    def address(self, name: str, tensor: Tensor | None, *shape: int) -> int | None:
        if tensor is not None:
            tensor = tensor.contiguous()
            self.kept.append(tensor)
        return tensor_pointer(name, tensor, self.like, *shape).value

    def run(self, kernel: str, *addresses: int | None) -> None:
        given = [*self.inputs, *addresses]
        table = (ctypes.c_void_p * len(given))(*given)
        run_kernel(kernel, self.like.dtype, ctypes.byref(self.grid), table)


def moments(
    children: Children, parents: Parents | None, windows: Windows, present: Tensor | None, everywhere: bool
) -> Moments:
    """:func:`torchcaps.ops.em.moments.moments` by the kernel."""
    call = _Call(children, parents, windows, present, everywhere)
    new = children.poses.new_empty
    out = Moments(new(call.sums), new(call.votes), new(call.votes), new(call.sums))
    call.run("em_moments", *(tensor.data_ptr() for tensor in out))
    return out


def moment_gradients(
    children: Children,
    parents: Parents | None,
    windows: Windows,
    present: Tensor | None,
    everywhere: bool,
    found: Moments,
    grads: tuple[Tensor, Tensor, Tensor],
) -> MomentGradients:
    """:func:`torchcaps.ops.em.moments.moment_gradients` by the kernel."""
    call = _Call(children, parents, windows, present, everywhere)
    new = children.poses.new_empty
    shapes = (call.sums, call.votes, call.votes) if parents is not None else ((0,),) * 3
    out = MomentGradients(*(new(tensor.shape) for tensor in children[:3]), *(new(shape) for shape in shapes))
    given = [
        call.address("mean", found.mean, *call.votes),
        call.address("variance", found.variance, *call.votes),
        call.address("log_mass", found.log_mass, *call.sums),
        *(
            call.address("grads", grad, *shape)
            for grad, shape in zip(grads, (call.sums, *[call.votes] * 2), strict=True)
        ),
    ]
    call.run("em_gradients", *given, *(tensor.data_ptr() for tensor in out))
    return out
