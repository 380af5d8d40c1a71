"""What results are compared with: float64, plain torch, reverse mode and finite differences."""

import copy
import functools
import math

import torch
from subjects import BATCH, SUBJECTS, OnTensors, zero_padding
from torch.func import functional_call
from torch.utils import _pytree as pytree

from torchcaps.ops.backends import use_backend

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
STEP = 1e-6
"""Of finite differences: in float64 both their errors, of rounding and of the slope's own slope, are far below 1e-5."""


class WrongValueError(AssertionError):
    """A transform went through and gave something else than plain torch does."""


def plain():
    """Within this context no custom op is called: everything is plain, differentiable torch."""
    return use_backend("plain")


def require_close(actual, expected, tolerance, what):
    """Raise unless all tensors of two structures agree.

    An error counts relative to the largest number of its tensor; where that is tiny beside the other tensors', as a
    gradient of zeros but for rounding is, to a hundredth of theirs.
    """
    if isinstance(expected, dict):
        if set(actual) != set(expected):
            raise WrongValueError(f"{what}: of {sorted(actual)}, expected of {sorted(expected)}")
        actual = {name: actual[name] for name in expected}  # in the same order
    actual, expected = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    if [tensor.shape for tensor in actual] != [tensor.shape for tensor in expected]:
        raise WrongValueError(f"{what}: shapes {[*map(_shape, actual)]}, expected {[*map(_shape, expected)]}")
    sizes = [float(tensor.detach().double().abs().max()) if tensor.numel() else 0.0 for tensor in expected]
    for number, (got, wanted, size) in enumerate(zip(actual, expected, sizes, strict=True)):
        if not wanted.numel():
            continue
        error = float((got.detach().double() - wanted.detach().double()).abs().max())
        scale = max(size, 0.01 * max(sizes))
        if not error <= tolerance * scale:
            raise WrongValueError(
                f"{what}: tensor {number} is off by {error:.2g} of {scale:.2g}, allowed {tolerance:.2g}"
            )


def _shape(tensor):
    return tuple(tensor.shape)


class Function:
    """A subject as a function of all that it can be differentiated by: floating inputs and parameters.

    Attributes:
        point: those tensors by name, where the function is looked at.
    """

    def __init__(self, subject, dtype=torch.float64, batch=BATCH, module=None, inputs=None):
        self.subject = subject
        self.module = OnTensors(subject, subject.module(dtype) if module is None else module)
        self.inputs = subject.inputs(batch, dtype) if inputs is None else inputs
        self.point = {f"input {k}": x for k, x in enumerate(self.inputs) if x.is_floating_point()}
        self.point |= {name: p.detach() for name, p in self.module.named_parameters() if p.requires_grad}

    def __call__(self, point):
        """The outputs, a tuple."""
        parameters = {name: value for name, value in point.items() if not name.startswith("input ")}
        inputs = tuple(point.get(f"input {k}", x) for k, x in enumerate(self.inputs))
        return functional_call(self.module, parameters, inputs)

    def loss(self, point):
        return loss(self(point))

    def leaves(self):
        """The point as leaves of an autograd graph."""
        return {name: value.clone().requires_grad_() for name, value in self.point.items()}

    def exact(self):
        """The same function at the same point, in float64."""
        inputs = tuple(x.double() if x.is_floating_point() else x for x in self.inputs)
        module = copy.deepcopy(self.module.module).double()
        return Function(self.subject, module=module, inputs=inputs)

    def direction(self, seed=0):
        """A random direction in which to move the point: short, so that differences do not step over a ReLU's kink."""
        generator = torch.Generator().manual_seed(seed)
        drawn = {name: torch.randn(value.shape, generator=generator) for name, value in self.point.items()}
        zero_padding(self.module, drawn)
        return {name: (part / part.norm()).to(self.point[name]) for name, part in drawn.items()}

    def moved(self, direction, step):
        return {name: value + step * direction[name] for name, value in self.point.items()}


def loss(outputs, number=0):
    """A scalar that looks at every output, differently for every ``number``; a sum over the batch."""
    total = 0
    for output in outputs:
        output = output.double()
        each = output.shape[1:]
        weights = torch.cos((number + 1) * torch.arange(math.prod(each), device=output.device, dtype=output.dtype))
        total = total + (weights.view(each) * output + output.square()).sum()
    return total


def gradient(function, value=None):
    """Reverse mode of a scalar of the point, the loss if not given: by name."""
    leaves = function.leaves()
    result = (function.loss if value is None else value)(leaves)
    found = torch.autograd.grad(result, [*leaves.values()], allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def parameter_gradients(module):
    """What a backward pass has left in a module's parameters, zeros where it left nothing: by name."""
    learned = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in learned.items()}


def require_gradients(found, name, tolerance, what):
    """Raise unless gradients of parameters, by the names of :class:`OnTensors`, are those of a subject's loss."""
    expected = reference_gradient(name)
    require_close(found, {key: expected[key] for key in found}, tolerance, what)


def dot(one, other):
    return sum((one[name] * other[name]).sum() for name in one)


@functools.cache
def reference_values(name, batch=BATCH, seed=0):
    """Outputs of a subject in float64."""
    subject = SUBJECTS[name]
    with plain(), torch.no_grad():
        return subject.run(subject.module(torch.float64), *subject.inputs(batch, torch.float64, seed))


@functools.cache
def reference_gradient(name, number=0):
    """Gradient of a subject's loss in float64."""
    function = Function(SUBJECTS[name])
    with plain():
        return gradient(function, lambda point: loss(function(point), number))


def finite_differences(function, value, direction):
    """The slope of ``value(point)`` in a direction, by two points of the plain path in float64."""
    with plain(), torch.no_grad():
        ahead, behind = (value(function.moved(direction, step)) for step in (STEP, -STEP))
    return pytree.tree_map(lambda a, b: (a - b) / (2 * STEP), ahead, behind)
