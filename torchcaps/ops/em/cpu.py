"""One iteration of EM routing on a grid by the kernel in ``csrc/em``, for float32 and float64 on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.errors import InputError, StateError
from torchcaps.ops.backends import register_backend
from torchcaps.ops.backends.library import SUFFIXES, Function, address, load_library
from torchcaps.ops.em.backend import Children, GridPlan, MomentGradients, Moments, MomentsBackend, Parents

CALL = "em"
_NUMBERS = ("B", "Q", "P", "K", "T", "J", "rows", "inner", "cols", "everywhere", "threads", "first", "parent", "slice")
_TENSORS = ("poses", "weight", "activation", "shift", "log_p", "mean", "precision", "present", "amount", "new_mean",
            "variance", "log_mass", "grad_amount", "grad_mean", "grad_variance", "dposes", "dweight", "dactivation",
            "dlog_p", "dmean", "dprecision")  # fmt: skip
FIELDS = frozenset((*_NUMBERS, *_TENSORS))


@functools.cache
def _function(name: str) -> Function:
    library, reason = load_library()
    if library is None:
        raise StateError(f"the kernel is not available: {reason}")
    return library.function(name, CALL)


class _Call:
    """One call: sizes, and addresses of tensors whose shapes were checked."""

    def __init__(self, plan: GridPlan, children: Children, parents: Parents | None, present: Tensor | None) -> None:
        self.poses = children.poses.contiguous()
        batch, positions, types, rows, inner = self.poses.shape
        slices, _, out_types, _, cols = children.weight.shape
        windows, self.links = plan.windows, plan.windows.links()  # alive while the kernel runs
        at, places = windows.table().shape
        if positions + 1 != len(self.links[0]) or slices != (1 if windows.shared else places):
            given = f"poses {tuple(self.poses.shape)} and weight {tuple(children.weight.shape)}"
            raise InputError(f"{windows} does not fit {given}.")
        self.sums, self.votes = (batch, at, out_types), (batch, at, out_types, rows * cols)
        first, parent, slice_of = (part.ctypes.data for part in self.links)
        self.values = {
            **dict.fromkeys(_TENSORS, 0), "B": batch, "Q": positions, "P": at, "K": slices, "T": types, "J": out_types,
            "rows": rows, "inner": inner, "cols": cols, "everywhere": plan.everywhere,
            "threads": torch.get_num_threads(), "first": first, "parent": parent, "slice": slice_of,
        }  # fmt: skip
        self.kept: list[Tensor] = []
        self.put("poses", self.poses, tuple(self.poses.shape))
        self.put("weight", children.weight, (slices, types, out_types, inner, cols))
        self.put("activation", children.activation, (batch, positions, types))
        self.put("shift", children.shift, (positions, rows, cols))
        if parents is not None:
            for name, tensor, shape in zip(parents._fields, parents, (self.sums, self.votes, self.votes), strict=True):
                self.put(name, tensor, shape)
        if present is not None:
            if tuple(present.shape) != (batch, at):
                raise InputError(f"present must have shape {(batch, at)}, got {tuple(present.shape)}.")
            self.kept.append(present.to(torch.uint8).contiguous())
            self.values["present"] = self.kept[-1].data_ptr()

    def put(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
        """Let the kernel have a tensor, or none."""
        if tensor is not None:
            self.kept.append(tensor.contiguous())
            self.values[name] = address(name, self.kept[-1], self.poses, shape)

    def new(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor for the kernel to write to."""
        tensor = self.poses.new_empty(shape)
        self.put(name, tensor, shape)
        return tensor

    def run(self, function: str) -> None:
        _function(function)(self.poses.dtype, self.values)


@register_backend("em", "cpu")
class KernelMoments(MomentsBackend):
    """The kernel."""

    name = "cpu"

    @functools.cache  # noqa: B019 - there is one of it
    def unavailable(self) -> str | None:
        """The library is not there, or of another version."""
        library, reason = load_library()
        return reason if library is None else library.mismatch(CALL, FIELDS)

    def supports(self, plan: GridPlan, tensors: Sequence[Tensor | None]) -> str | None:
        """Two types of numbers, the same in poses and weights."""
        poses, weight = tensors[:2]
        assert poses is not None
        assert weight is not None
        if poses.dtype not in SUFFIXES or weight.dtype != poses.dtype:
            return f"it computes in float32 or float64, got {poses.dtype} and {weight.dtype}"
        return self.unavailable()

    def describe(self) -> str:
        """With the instruction set in use."""
        library, _ = load_library()
        return "kernel" if library is None else f"kernel, {library.variant}"

    def moments(self, plan: GridPlan, children: Children, parents: Parents | None, present: Tensor | None) -> Moments:
        """See :class:`MomentsBackend`."""
        call = _Call(plan, children, parents, present)
        names = {"amount": call.sums, "new_mean": call.votes, "variance": call.votes, "log_mass": call.sums}
        out = Moments(*(call.new(name, shape) for name, shape in names.items()))
        call.run("em_moments")
        return out

    def moment_gradients(
        self,
        plan: GridPlan,
        children: Children,
        parents: Parents | None,
        present: Tensor | None,
        found: Moments,
        grads: tuple[Tensor, Tensor, Tensor],
    ) -> MomentGradients:
        """See :class:`MomentsBackend`."""
        call = _Call(plan, children, parents, present)
        call.put("new_mean", found.mean, call.votes)
        call.put("variance", found.variance, call.votes)
        call.put("log_mass", found.log_mass, call.sums)
        shapes = (call.sums, call.votes, call.votes)
        for name, grad, shape in zip(("grad_amount", "grad_mean", "grad_variance"), grads, shapes, strict=True):
            call.put(name, grad, shape)
        own = [call.new(f"d{name}", tuple(getattr(children, name).shape)) for name in ("poses", "weight", "activation")]
        of_parents = [
            call.poses.new_empty(0) if parents is None else call.new(name, shape)
            for name, shape in zip(("dlog_p", "dmean", "dprecision"), shapes, strict=True)
        ]
        call.run("em_gradients")
        return MomentGradients(*own, *of_parents)
