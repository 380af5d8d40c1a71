"""The kernel library: found, loaded and called through plain C, with every shape checked before a pointer is taken."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.ops.squash import SQUASH_KINDS

_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
VARIANTS = ("portable", "AVX2", "AVX-512")


class _Problem(ctypes.Structure):
    """The struct of csrc/problem.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("B", "I", "J", "d", "D")),
        *((name, ctypes.c_int32) for name in ("shared", "leaky", "threads")),
    )


class _Plan(ctypes.Structure):
    """The struct of that name."""

    _fields_ = (("iterations", ctypes.c_int64), ("squash", ctypes.c_int32), ("replace", ctypes.c_int32))


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


def tensor_pointer(name: str, tensor: Tensor | None, like: Tensor, *shape: int) -> ctypes.c_void_p:
    """The address of a tensor, after making sure that the kernel reads and writes inside it."""
    if tensor is None:
        return ctypes.c_void_p(None)
    if tuple(tensor.shape) != shape or tensor.dtype != like.dtype or not tensor.is_contiguous():
        raise ValueError(
            f"the kernel needs {name} contiguous, {like.dtype}, of shape {shape}; "
            f"got {tensor.dtype} {tuple(tensor.shape)}."
        )
    return ctypes.c_void_p(tensor.data_ptr())


def run_kernel(kernel: str, dtype: torch.dtype, *arguments: object) -> None:
    """Call a function of the library, of the variant for this type."""
    library, reason = load()
    if library is None:
        raise RuntimeError(f"the kernel is not available: {reason}")
    getattr(library, f"torchcaps_{kernel}_{_SUFFIX[dtype]}")(*arguments)


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
        return tensor_pointer(name, tensor, self.poses, *shape)

    def sums(self, name: str, tensor: Tensor | None) -> ctypes.c_void_p:
        return self.tensor(name, tensor, self.batch, self.parents, self.size)

    def child(self, name: str, tensor: Tensor | None) -> ctypes.c_void_p:
        return self.tensor(name, tensor, self.batch, self.children)

    def run(self, kernel: str, *arguments: object) -> None:
        run_kernel(kernel, self.poses.dtype, ctypes.byref(self.problem), *arguments)


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


def route(
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    bias: Tensor | None,
    iterations: int,
    squash: str,
    replace: bool,
    leaky: bool,
    alphas: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """All passes of a forward pass and the steps between them: pose [B, J, D] and the sums [r, B, J, D].

    For fewer than eight images the kernel stores their votes (up to 16 MB), which are smaller than the weights. For
    many images of a small problem it keeps those of a block of images in the cache; see :func:`small`.
    """
    call = _Call(poses, weight, leaky)
    bias = None if bias is None else bias.contiguous()
    table = poses.new_tensor(alphas) if alphas else None
    pose = poses.new_empty(call.batch, call.parents, call.size)
    sums = poses.new_empty(iterations, call.batch, call.parents, call.size)
    call.run(
        "route",
        ctypes.byref(_Plan(iterations, SQUASH_KINDS.index(squash), replace)),
        *call.inputs,
        call.child("child_weight", child_weight),
        call.tensor("bias", bias, call.parents, call.size),
        call.tensor("alphas", table, iterations),
        call.sums("pose", pose),
        call.tensor("sums", sums, *sums.shape),
    )
    return pose, sums


def small(poses: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes block after block of these images from start to end, with their votes in the cache.

    It does so for many images of a small problem; ``ops/dynamic/README.md`` says when.
    """
    library, _ = load()
    if library is None or not serves(poses, weight):
        return False
    problem = _Call(poses, weight, leaky=False).problem
    return bool(getattr(library, f"torchcaps_small_{_SUFFIX[poses.dtype]}")(ctypes.byref(problem)))


def small_gradients(
    grad: Tensor,
    sums: Tensor,
    poses: Tensor,
    weight: Tensor,
    child_weight: Tensor | None,
    bias: Tensor | None,
    squash: str,
    replace: bool,
    leaky: bool,
    last_only: bool,
    alphas: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The whole backward pass where :func:`small` holds: gradients of poses, weight, child_weight and bias.

    Those of a child_weight or bias that is not given are zeros.
    """
    call = _Call(poses, weight, leaky)
    iterations = len(sums)
    bias = None if bias is None else bias.contiguous()
    table = poses.new_tensor(alphas) if alphas else None
    dposes, dweight = torch.empty_like(call.poses), torch.empty_like(call.weight)
    dchild, dbias = poses.new_zeros(call.batch, call.children), poses.new_zeros(call.parents, call.size)
    call.run(
        "small_gradients",
        ctypes.byref(_Plan(iterations, SQUASH_KINDS.index(squash), replace)),
        ctypes.c_int(last_only),
        *call.inputs,
        call.child("child_weight", child_weight),
        call.tensor("bias", bias, call.parents, call.size),
        call.tensor("alphas", table, iterations),
        call.tensor("sums", sums, iterations, call.batch, call.parents, call.size),
        call.sums("grad", grad),
        call.tensor("dposes", dposes, *call.poses.shape),
        call.tensor("dweight", dweight, *call.shape),
        call.child("dchild", None if child_weight is None else dchild),
        call.tensor("dbias", None if bias is None else dbias, call.parents, call.size),
    )
    return dposes, dweight, dchild, dbias


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
