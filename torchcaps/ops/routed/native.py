"""The kernel library: found, loaded and called through plain C, with every shape checked before a pointer is taken."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

import torch
from torch import Tensor

_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
VARIANTS = ("portable", "AVX2", "AVX-512")


class _Problem(ctypes.Structure):
    """The struct of csrc/problem.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("B", "I", "J", "d", "D")),
        *((name, ctypes.c_int32) for name in ("shared", "leaky", "threads")),
    )


def _share_openmp() -> None:
    """Make the OpenMP runtime that torch brings visible to the kernel, or else the system's."""
    bundled = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    for candidate in (*map(str, bundled), "libgomp.so.1"):
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
            return
        except OSError:
            continue


@functools.cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """The library and which variant it uses, or None and why not."""
    if os.environ.get("TORCHCAPS_NATIVE", "1") == "0":
        return None, "switched off by TORCHCAPS_NATIVE=0"
    found = sorted(Path(__file__).parents[2].glob("_native*.so"))
    if not found:
        return None, "the package was installed without a C++ compiler; install one and reinstall torchcaps"
    _share_openmp()
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        return None, f"{found[0].name} cannot be loaded: {error}"
    return library, VARIANTS[library.torchcaps_variant()]


def use_variant(name: str) -> str:
    """Use another instruction set, if the processor has it; returns the one in use. For tests and benchmarks."""
    library, _ = load()
    return "" if library is None else VARIANTS[library.torchcaps_use_variant(VARIANTS.index(name))]


def serves(poses: Tensor, weight: Tensor) -> bool:
    """Whether the kernel can take these tensors."""
    return (
        poses.device.type == "cpu"
        and weight.device.type == "cpu"
        and poses.dtype in _SUFFIX
        and weight.dtype == poses.dtype
        and load()[0] is not None
    )


def _pointer(name: str, tensor: Tensor | None, like: Tensor, *shape: int) -> ctypes.c_void_p:
    """The address of a tensor, after making sure that the kernel reads and writes inside it."""
    if tensor is None:
        return ctypes.c_void_p(None)
    if tuple(tensor.shape) != shape or tensor.dtype != like.dtype or not tensor.is_contiguous():
        raise ValueError(
            f"the kernel needs {name} contiguous, {like.dtype}, of shape {shape}; "
            f"got {tensor.dtype} {tuple(tensor.shape)}."
        )
    return ctypes.c_void_p(tensor.data_ptr())


class _Call:
    """Sizes and checked addresses of one call."""

    def __init__(self, poses: Tensor, weight: Tensor, leaky: bool) -> None:
        self.poses, self.weight = poses.contiguous(), weight.contiguous()  # kept alive while the kernel runs
        self.batch, self.children, inner = poses.shape
        self.parents, _, self.size = weight.shape[-3:]
        matrices = (self.parents, inner, self.size)
        self.shape = matrices if weight.dim() == 3 else (self.children, *matrices)
        self.problem = _Problem(
            self.batch, self.children, self.parents, inner, self.size, weight.dim() == 3, leaky, torch.get_num_threads()
        )
        self.inputs = (
            self.tensor("poses", self.poses, self.batch, self.children, inner),
            self.tensor("weight", self.weight, *self.shape),
        )

    def tensor(self, name: str, tensor: Tensor | None, *shape: int) -> ctypes.c_void_p:
        return _pointer(name, tensor, self.poses, *shape)

    def sums(self, name: str, tensor: Tensor | None) -> ctypes.c_void_p:
        return self.tensor(name, tensor, self.batch, self.parents, self.size)

    def child(self, name: str, tensor: Tensor | None) -> ctypes.c_void_p:
        return self.tensor(name, tensor, self.batch, self.children)

    def run(self, kernel: str, *arguments: object) -> None:
        library, reason = load()
        if library is None:
            raise RuntimeError(f"the kernel is not available: {reason}")
        getattr(library, f"torchcaps_{kernel}_{_SUFFIX[self.poses.dtype]}")(ctypes.byref(self.problem), *arguments)


def sum_pass(
    poses: Tensor,
    weight: Tensor,
    agree: Tensor | None,
    child_weight: Tensor | None,
    leaky: bool,
    coupling: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """:func:`torchcaps.ops.routed.passes.sum_pass` by the kernel."""
    call = _Call(poses, weight, leaky)
    total = poses.new_empty(call.batch, call.parents, call.size)
    table = poses.new_empty(call.batch, call.children, call.parents) if coupling else None
    call.run(
        "sum",
        *call.inputs,
        call.sums("agree", agree),
        call.child("child_weight", child_weight),
        call.sums("sum", total),
        call.tensor("coupling", table, call.batch, call.children, call.parents),
    )
    return total, table


class FewImages:
    """Forward passes for fewer images than lanes: their votes are smaller than the weights, so they are computed once.

    Usable while the votes take at most ``LIMIT`` bytes; the backward passes are those of any batch.
    """

    IMAGES = 8
    LIMIT = 16 << 20

    @classmethod
    def serves(cls, poses: Tensor, weight: Tensor) -> bool:
        """Whether the batch is small enough."""
        size = poses.shape[0] * poses.shape[1] * weight.shape[-3] * weight.shape[-1] * poses.element_size()
        return poses.shape[0] < cls.IMAGES and size <= cls.LIMIT

    def __init__(self, poses: Tensor, weight: Tensor) -> None:
        self.call = call = _Call(poses, weight, leaky=False)
        self.shape = (call.batch, call.children, call.parents, call.size)
        self.votes = poses.new_empty(self.shape)

    def sum_pass(
        self, poses: Tensor, weight: Tensor, agree: Tensor | None, child_weight: Tensor | None, leaky: bool
    ) -> tuple[Tensor, None]:
        """:func:`sum_pass`; the first one, without ``agree``, makes the votes that the others read."""
        call = self.call
        call.problem.leaky = leaky
        total = poses.new_empty(call.batch, call.parents, call.size)
        votes, weights = call.tensor("votes", self.votes, *self.shape), call.child("child_weight", child_weight)
        if agree is None:
            call.run("votes", *call.inputs, weights, votes, call.sums("sum", total))
        else:
            call.run("votes_sum", votes, call.sums("agree", agree), weights, call.sums("sum", total))
        return total, None


def agreement_pass(
    poses: Tensor, weight: Tensor, agree: Tensor, grad: Tensor, child_weight: Tensor | None, leaky: bool
) -> Tensor:
    """:func:`torchcaps.ops.routed.passes.agreement_pass` by the kernel."""
    call = _Call(poses, weight, leaky)
    out = torch.empty_like(agree)
    call.run(
        "agreement",
        *call.inputs,
        call.sums("agree", agree),
        call.sums("grad", grad),
        call.child("child_weight", child_weight),
        call.sums("out", out),
    )
    return out


def parameter_pass(
    poses: Tensor,
    weight: Tensor,
    agrees: Tensor,
    grads: Tensor,
    child_weight: Tensor | None,
    leaky: bool,
    first_even: bool,
    through: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`torchcaps.ops.routed.passes.parameter_pass` by the kernel."""
    call = _Call(poses, weight, leaky)
    iterations = len(grads)
    dposes, dweight = torch.empty_like(call.poses), torch.empty_like(call.weight)
    dchild = poses.new_empty(call.batch, call.children)
    all_sums = (iterations, call.batch, call.parents, call.size)
    call.run(
        "parameters",
        ctypes.c_int64(iterations),
        ctypes.c_int(first_even),
        ctypes.c_int(through),
        *call.inputs,
        call.tensor("agrees", agrees, *all_sums),
        call.tensor("grads", grads, *all_sums),
        call.child("child_weight", child_weight),
        call.tensor("dposes", dposes, *call.poses.shape),
        call.tensor("dweight", dweight, *call.shape),
        call.child("dchild", dchild),
    )
    return dposes, dweight, dchild
