"""Derivatives of first and second order, forwards and backwards, by torch.func and by torch.autograd."""

import torch
from comparing import (
    STEP,
    TOLERANCE,
    Function,
    WrongValueError,
    dot,
    finite_differences,
    gradient,
    loss,
    plain,
    reference_gradient,
    require_close,
)
from torch.autograd import forward_ad

DTYPES = (torch.float32, torch.float64)
SLOPE_TOLERANCE = 1e-5
"""Of finite differences in float64."""
SIZE = 3
"""Numbers that a window on a subject takes and gives."""


class Window:
    """A subject seen through a few numbers: ``SIZE`` of them move the point, ``SIZE`` are read off the outputs.

    All inputs and all parameters take part, and yet a Jacobian or a Hessian has nine entries.
    """

    def __init__(self, function):
        self.function = function
        self.directions = [function.direction(seed) for seed in range(SIZE)]
        self.start = torch.zeros(SIZE, dtype=next(iter(function.point.values())).dtype)

    def outputs(self, numbers):
        point = dict(self.function.point)
        for number, direction in zip(numbers, self.directions, strict=True):
            point = {name: value + number * direction[name] for name, value in point.items()}
        return self.function(point)

    def __call__(self, numbers):
        outputs = self.outputs(numbers)
        return torch.stack([loss(outputs, number) for number in range(SIZE)])

    def scalar(self, numbers):
        return loss(self.outputs(numbers))


def func_grad(subject):
    for dtype in DTYPES:
        function = Function(subject, dtype)
        found = torch.func.grad(function.loss)(function.point)
        require_close(found, reference_gradient(subject.name), TOLERANCE[dtype], f"gradient in {dtype}")


def _jacobian(subject, of):
    """``of(function, at)`` is a Jacobian: through a window, and for layers also all of it."""
    name = subject.name
    for dtype in DTYPES:
        window = Window(Function(subject, dtype))
        rows = [reference_gradient(name, number) for number in range(SIZE)]
        directions = [{key: part.double() for key, part in one.items()} for one in window.directions]
        expected = torch.stack([torch.stack([dot(row, direction) for direction in directions]) for row in rows])
        require_close(of(window, window.start), expected, TOLERANCE[dtype], f"Jacobian in {dtype}")
    if subject.is_layer:
        _whole_jacobian(subject, of)


def _whole_jacobian(subject, of):
    function = Function(subject)
    names, values = [*function.point], [*function.point.values()]
    sizes = [value.numel() for value in values]

    def flat(numbers):
        parts = [part.view_as(like) for part, like in zip(numbers.split(sizes), values, strict=True)]
        return torch.cat([output.flatten() for output in function(dict(zip(names, parts, strict=True)))])

    numbers = torch.cat([value.flatten() for value in values])
    with plain():
        expected = torch.autograd.functional.jacobian(flat, numbers)
    require_close(of(flat, numbers), expected, TOLERANCE[torch.float64], "whole Jacobian")


def jacrev(subject):
    _jacobian(subject, lambda function, at: torch.func.jacrev(function)(at))


def jacfwd(subject):
    _jacobian(subject, lambda function, at: torch.func.jacfwd(function)(at))


def vectorized_jacobian(subject):
    """By reverse and by forward mode, as torch.autograd has it."""
    jacobian = torch.autograd.functional.jacobian
    for strategy in ("reverse-mode", "forward-mode"):
        _jacobian(subject, lambda function, at, by=strategy: jacobian(function, at, vectorize=True, strategy=by))


def _slopes(subject, of):
    """``of(function, direction)`` gives the outputs and their slopes in that direction."""
    exact = Function(subject)
    for dtype in DTYPES:
        function = Function(subject, dtype)
        for seed in range(2):
            outputs, slopes = of(function, function.direction(seed))
            direction = exact.direction(seed)
            expected = finite_differences(exact, exact, direction)
            tolerance = max(SLOPE_TOLERANCE, TOLERANCE[dtype])
            require_close(slopes, expected, tolerance, f"slopes in {dtype} by finite differences")
            values = [output.detach().double().requires_grad_() for output in outputs]
            by_outputs = torch.autograd.grad(loss(values), values)
            along = sum((one * slope).sum() for one, slope in zip(by_outputs, slopes, strict=True))
            reverse = dot(reference_gradient(subject.name), direction)
            require_close(along, reverse, TOLERANCE[dtype], f"slopes in {dtype} by reverse mode")


def jvp(subject):
    _slopes(subject, lambda function, direction: torch.func.jvp(function, (function.point,), (direction,)))


def dual_numbers(subject):
    def of(function, direction):
        with forward_ad.dual_level():
            duals = {name: forward_ad.make_dual(value, direction[name]) for name, value in function.point.items()}
            found = [forward_ad.unpack_dual(output) for output in function(duals)]
            slopes = [torch.zeros_like(one.primal) if one.tangent is None else one.tangent for one in found]
            return [one.primal for one in found], slopes

    _slopes(subject, of)


def double_backward(subject):
    """The gradient of the squared length of the gradient; for layers also torch's own check."""
    with plain():
        exact = _second(Function(subject))
    for dtype in DTYPES:
        found = _second(Function(subject, dtype))
        require_close(found, exact, 10 * TOLERANCE[dtype], f"second gradient in {dtype}")
    if subject.is_layer:
        function = Function(subject)
        names, values = zip(*function.leaves().items(), strict=True)
        try:
            torch.autograd.gradgradcheck(
                lambda *point: function(dict(zip(names, point, strict=True))), values, fast_mode=True
            )
        except torch.autograd.gradcheck.GradcheckError as error:
            raise WrongValueError(str(error)) from error


def _second(function):
    def squared_length(leaves):
        found = torch.autograd.grad(
            function.loss(leaves), [*leaves.values()], create_graph=True, allow_unused=True, materialize_grads=True
        )
        return sum(part.double().square().sum() for part in found)

    return gradient(function, squared_length)


def hessian(subject):
    """Forward over reverse, reverse over forward and reverse over reverse, against slopes of plain gradients."""
    window = Window(Function(subject))
    exact = _slopes_of_gradients(window)
    with plain():
        require_close(
            torch.autograd.functional.hessian(window.scalar, window.start), exact, SLOPE_TOLERANCE, "the reference"
        )
    for what, found in {
        "forward over reverse": torch.func.hessian(window.scalar)(window.start),
        "reverse over forward": torch.func.jacrev(torch.func.jacfwd(window.scalar))(window.start),
        "reverse over reverse": torch.autograd.functional.hessian(window.scalar, window.start),
        "forward over forward": torch.func.jacfwd(torch.func.jacfwd(window.scalar))(window.start),
    }.items():
        require_close(found, exact, SLOPE_TOLERANCE, what)


def _slopes_of_gradients(window):
    """The Hessian through a window, by finite differences of plain gradients."""
    function, rows = window.function, []
    for direction in window.directions:
        found = []
        for step in (STEP, -STEP):
            shifted = Function(function.subject)
            shifted.point = function.moved(direction, step)
            with plain():
                found.append(gradient(shifted))
        slope = {name: (found[0][name] - found[1][name]) / (2 * STEP) for name in found[0]}
        rows.append(torch.stack([dot(slope, other) for other in window.directions]))
    return torch.stack(rows)
