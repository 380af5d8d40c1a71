"""One iteration of EM routing on a grid by the kernel in ``csrc/em``, for float32 and float64 on the CPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.errors import InputError
from torchcaps.ops.backends import register_backend
from torchcaps.ops.backends.kernel import KernelBackend, KernelCall
from torchcaps.ops.em.backend import Children, GridPlan, MomentGradients, Moments, MomentsBackend, Parents

CALL = "em"
_NUMBERS = ("B", "Q", "P", "K", "T", "J", "rows", "inner", "cols", "everywhere", "threads", "first", "parent", "slice")
_TENSORS = ("poses", "weight", "activation", "shift", "log_p", "mean", "precision", "present", "amount", "new_mean",
            "variance", "log_mass", "grad_amount", "grad_mean", "grad_variance", "dposes", "dweight", "dactivation",
            "dlog_p", "dmean", "dprecision")  # fmt: skip
FIELDS = frozenset((*_NUMBERS, *_TENSORS))
_NOTHING = dict.fromkeys(_TENSORS, 0)


class _Call(KernelCall):
    """Of one iteration."""

    def __init__(self, plan: GridPlan, children: Children, parents: Parents | None, present: Tensor | None) -> None:
        poses = children.poses.contiguous()
        batch, positions, types, rows, inner = poses.shape
        slices, _, out_types, _, cols = children.weight.shape
        windows, links = plan.windows, plan.windows.links()
        at, places = math.prod(windows.out()), math.prod(windows.kernel)
        if positions + 1 != len(links[0]) or slices != (1 if windows.shared else places):
            given = f"poses {tuple(poses.shape)} and weight {tuple(children.weight.shape)}"
            raise InputError(f"{windows} does not fit {given}.")
        first, parent, slice_of = (part.ctypes.data for part in links)
        numbers = {
            "B": batch, "Q": positions, "P": at, "K": slices, "T": types, "J": out_types, "rows": rows, "inner": inner,
            "cols": cols, "everywhere": plan.everywhere, "threads": torch.get_num_threads(), "first": first,
            "parent": parent, "slice": slice_of,
        }  # fmt: skip
        super().__init__(CALL, poses, {**_NOTHING, **numbers})
        self.kept.append(links)
        self.sums, self.votes = (batch, at, out_types), (batch, at, out_types, rows * cols)
        self.put("poses", poses, tuple(poses.shape))
        self.put("weight", children.weight, (slices, types, out_types, inner, cols))
        self.put("activation", children.activation, (batch, positions, types))
        self.put("shift", children.shift, (positions, rows, cols))
        if parents is not None:
            for name, tensor, shape in zip(parents._fields, parents, (self.sums, self.votes, self.votes), strict=True):
                self.put(name, tensor, shape)
        if present is not None:
            if tuple(present.shape) != (batch, at):
                raise InputError(f"present must have shape {(batch, at)}, got {tuple(present.shape)}.")
            there = present.to(torch.uint8).contiguous()
            self.kept.append(there)
            self.values["present"] = there.data_ptr()

    def put(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
        """Contiguous or not."""
        super().put(name, None if tensor is None else tensor.contiguous(), shape)


@register_backend("em", "cpu")
class KernelMoments(KernelBackend, MomentsBackend):
    """The kernel."""

    call, fields = CALL, FIELDS

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
            call.like.new_empty(0) if parents is None else call.new(name, shape)
            for name, shape in zip(("dlog_p", "dmean", "dprecision"), shapes, strict=True)
        ]
        call.run("em_gradients")
        return MomentGradients(*own, *of_parents)
