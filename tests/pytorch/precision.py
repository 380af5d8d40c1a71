"""Numbers with fewer digits: bfloat16, half, and torch's automatic mixture."""

from typing import NamedTuple

import torch
from comparing import Function, WrongValueError, gradient, loss, plain
from torch.utils import _pytree as pytree


class Tolerance(NamedTuple):
    """Of outputs and of gradients."""

    outputs: float
    gradients: float


LAYERS = {torch.bfloat16: Tolerance(1e-2, 4e-2), torch.float16: Tolerance(2e-3, 2e-2)}
"""One step of rounding is 2^-8 = 4e-3, or 2^-11 = 5e-4."""
MODELS = {torch.bfloat16: Tolerance(2e-2, 0.15), torch.float16: Tolerance(4e-3, 3e-2)}
"""Every convolution rounds its result, and what rounds to the other side of a ReLU has another gradient."""


def autocast_bf16(subject):
    """Parameters and inputs stay float32; what comes out is finite and near."""
    function = Function(subject, torch.float32)

    def mixed(point):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(point)

    outputs, found = mixed(function.point), gradient(function, lambda point: loss(mixed(point)))
    _require_near_exact(function, outputs, found, torch.bfloat16)


def bf16(subject):
    _rounded(subject, torch.bfloat16)


def half(subject):
    _rounded(subject, torch.float16)


def _rounded(subject, dtype):
    """The reference starts from the rounded parameters and inputs, so that only the computation rounds."""
    function = Function(subject, dtype)
    outputs = function(function.point)
    for output in outputs:
        if output.dtype != dtype:
            raise WrongValueError(f"an output is {output.dtype}, expected {dtype}")
    _require_near_exact(function, outputs, gradient(function), dtype)


def _require_near_exact(function, outputs, found, dtype):
    exact = function.exact()
    tolerance = (LAYERS if function.subject.is_layer else MODELS)[dtype]
    with plain():
        _require_near(outputs, exact(exact.point), tolerance.outputs, "outputs")
        _require_near(found, gradient(exact), tolerance.gradients, "gradients")


def _require_near(actual, expected, tolerance, what):
    """By the length of the difference to that of the tensor, or of a hundredth of the longest one."""
    actual, expected = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    lengths = [float(tensor.norm()) for tensor in expected]
    for number, (got, wanted, length) in enumerate(zip(actual, expected, lengths, strict=True)):
        error = float((got.double() - wanted).norm())
        scale = max(length, 0.01 * max(lengths))
        if not error <= tolerance * scale:
            raise WrongValueError(
                f"{what}: tensor {number} is off by {error:.2g} of {scale:.2g}, allowed {tolerance:.2g}"
            )
