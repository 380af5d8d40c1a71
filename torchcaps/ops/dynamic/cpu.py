"""The passes by the kernel in ``csrc/dynamic``, for float32 and float64 on the CPU."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from torchcaps.ops.backends import register_backend
from torchcaps.ops.backends.kernel import KernelBackend, KernelCall
from torchcaps.ops.backends.library import load_library
from torchcaps.ops.dynamic.backend import Gradients, Inputs, RoutedBackend
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.plan import option_names

CALL = "dynamic"
_SIZES = ("B", "I", "J", "d", "D", "shared", "threads", "first_even")
_TENSORS = ("poses", "weight", "child_weight", "bias", "alphas", "agree", "grad", "sums", "pose", "coupling", "dposes",
            "dweight", "dchild", "dbias")  # fmt: skip
_OPTIONS = tuple(name for name in option_names(DynamicPlan) if name != "alpha")  # which is a tensor there
FIELDS = frozenset((*_SIZES, *_OPTIONS, *_TENSORS))
_NOTHING = dict.fromkeys((*_TENSORS, "first_even"), 0)


@functools.lru_cache(maxsize=1024)
def _options(plan: DynamicPlan) -> dict[str, int]:
    """The plan as the kernel reads it, names as the numbers that the library gives them."""
    library, _ = load_library()
    assert library is not None
    values = {name: getattr(plan, name) for name in _OPTIONS}
    return {name: library.option(value) if isinstance(value, str) else int(value) for name, value in values.items()}


class _Call(KernelCall):
    """Of a plan on its inputs."""

    def __init__(self, plan: DynamicPlan, inputs: Inputs) -> None:
        poses, weight, child_weight, bias = inputs
        self.batch, self.children, inner = poses.shape
        self.parents, _, self.size = weight.shape[-3:]
        self.sums = (self.batch, self.parents, self.size)
        matrices = (self.parents, inner, self.size)
        sizes = {
            "B": self.batch, "I": self.children, "J": self.parents, "d": inner, "D": self.size,
            "shared": weight.dim() == 3, "threads": torch.get_num_threads(),
        }  # fmt: skip
        poses = poses.contiguous()
        super().__init__(CALL, poses, {**_NOTHING, **_options(plan), **sizes})
        self.put("poses", poses, poses.shape)
        self.put("weight", weight.contiguous(), matrices if weight.dim() == 3 else (self.children, *matrices))
        self.put("child_weight", child_weight, (self.batch, self.children))
        self.put("bias", None if bias is None else bias.contiguous(), (self.parents, self.size))
        if plan.alphas:
            self.put("alphas", poses.new_tensor(plan.alphas), (plan.iterations,))


@register_backend("dynamic", "cpu")
class KernelRouting(KernelBackend, RoutedBackend):
    """The kernel. A forward pass, and for many images of a small problem the backward pass too, is one call."""

    call, fields = CALL, FIELDS

    def forward(self, plan: DynamicPlan, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """All passes and the steps between them.

        For fewer than eight images the kernel stores their votes (up to 16 MB), which are smaller than the weights. For
        many images of a small problem it keeps those of a block of images in the cache; see :meth:`is_small`.
        """
        call = _Call(plan, inputs)
        pose, sums = call.new("pose", call.sums), call.new("sums", (plan.iterations, *call.sums))
        call.run("route")
        return pose, sums

    def is_small(self, plan: DynamicPlan, inputs: Inputs) -> bool:
        """Whether block after block of these images is taken from start to end, with their votes in the cache.

        That is so for many images of a small problem; ``ops/dynamic/README.md`` says when.
        """
        return bool(_Call(plan, inputs).run("small"))

    def backward(self, plan: DynamicPlan, inputs: Inputs, sums: Tensor, grad: Tensor) -> Gradients:
        """In one call where the problem is small."""
        call = _Call(plan, inputs)
        if not call.run("small"):
            return super().backward(plan, inputs, sums, grad)
        call.put("sums", sums, (plan.iterations, *call.sums))
        call.put("grad", grad, call.sums)
        dposes, dweight = call.new("dposes", inputs.poses.shape), call.new("dweight", inputs.weight.shape)
        dchild, dbias = inputs.poses.new_zeros(inputs.poses.shape[:2]), inputs.poses.new_zeros(call.sums[1:])
        call.put("dchild", None if inputs.child_weight is None else dchild, tuple(dchild.shape))
        call.put("dbias", None if inputs.bias is None else dbias, call.sums[1:])
        call.run("small_gradients")
        return Gradients(dposes, dweight, dchild, dbias)

    def sum_pass(
        self, plan: DynamicPlan, inputs: Inputs, agree: Tensor | None, coupling: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """See :class:`RoutedBackend`."""
        call = _Call(plan, inputs)
        call.put("agree", agree, call.sums)
        total = call.new("sums", call.sums)
        table = call.new("coupling", (call.batch, call.children, call.parents)) if coupling else None
        call.run("sum")
        return total, table

    def agreement_pass(self, plan: DynamicPlan, inputs: Inputs, agree: Tensor, grad: Tensor) -> Tensor:
        """See :class:`RoutedBackend`."""
        call = _Call(plan, inputs)
        call.put("agree", agree, call.sums)
        call.put("grad", grad, call.sums)
        out = call.new("sums", call.sums)
        call.run("agreement")
        return out

    def parameter_pass(
        self, plan: DynamicPlan, inputs: Inputs, agrees: Tensor, grads: Tensor, first_even: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`RoutedBackend`."""
        call = _Call(plan, inputs)
        call.values |= {"iterations": len(grads), "first_even": first_even}
        call.put("agree", agrees, (len(grads), *call.sums))
        call.put("grad", grads, (len(grads), *call.sums))
        dposes, dweight = call.new("dposes", inputs.poses.shape), call.new("dweight", inputs.weight.shape)
        dchild = call.new("dchild", (call.batch, call.children))
        call.run("parameters")
        return dposes, dweight, dchild
