"""Batches of batches, gradients image by image, and batches of one and of none."""

import copy
import os
import re
import tempfile
from contextlib import contextmanager

import torch
from comparing import TOLERANCE, Function, WrongValueError, gradient, loss, plain, reference_values, require_close
from subjects import BATCH, OnTensors
from torch.func import functional_call, stack_module_state, vmap

COPIES = 2
"""Modules in an ensemble, and batches along the extra dimension."""


@contextmanager
def _no_slow_path():
    """Raise if an op of torchcaps is called once per element: torch warns of that, if asked to, in C++ on stderr."""
    torch._C._debug_only_display_vmap_fallback_warnings(True)
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            torch._C._debug_only_display_vmap_fallback_warnings(False)
        file.seek(0)
        slow = sorted(set(re.findall(r"batching rule for (torchcaps::\w+)", file.read().decode())))
    if slow:
        raise AssertionError(f"no batching rule, called once per element: {slow}")


def vmap_inputs_and_parameters(subject):
    """An extra dimension of the inputs, of the parameters (an ensemble), and of both, against a loop."""
    dtype = torch.float64
    modules = [OnTensors(subject, subject.module(dtype, seed)) for seed in range(COPIES)]
    parameters, buffers = stack_module_state(modules)
    drawn = [subject.inputs(BATCH, dtype, seed) for seed in range(COPIES)]
    inputs = tuple(torch.stack(parts) for parts in zip(*drawn, strict=True))
    skeleton = copy.deepcopy(modules[0])

    def call(parameters, buffers, inputs):
        return functional_call(skeleton, (parameters, buffers), inputs)

    first = ({name: p[0] for name, p in parameters.items()}, {name: b[0] for name, b in buffers.items()})
    for what, dims, state, given in (
        ("inputs", (None, None, 0), first, inputs),
        ("parameters", (0, 0, None), (parameters, buffers), drawn[0]),
        ("both", (0, 0, 0), (parameters, buffers), inputs),
    ):
        with plain(), torch.no_grad():
            pairs = [(modules[i if dims[0] == 0 else 0], drawn[i if dims[2] == 0 else 0]) for i in range(COPIES)]
            loop = [module(*one) for module, one in pairs]
        expected = [torch.stack(parts) for parts in zip(*loop, strict=True)]
        for recorded in (True, False):  # without gradients other ops may serve
            with _no_slow_path(), torch.set_grad_enabled(recorded):
                found = vmap(call, in_dims=dims)(*state, given)
            require_close(found, expected, TOLERANCE[dtype], f"vmap over {what}, recorded {recorded}")


def vmap_grad(subject):
    """The gradient of every image by itself, as differential privacy needs it."""
    for dtype in (torch.float32, torch.float64):
        function = Function(subject, dtype)
        parameters = {name: value for name, value in function.point.items() if not name.startswith("input ")}

        def one_loss(parameters, *image, module=function.module):
            return loss(functional_call(module, parameters, tuple(part[None] for part in image)))

        in_dims = (None, *(0 for _ in function.inputs))
        with _no_slow_path():
            found = vmap(torch.func.grad(one_loss), in_dims=in_dims)(parameters, *function.inputs)
        exact = function.exact()
        alone = [_gradient_of_image(exact, image, parameters) for image in range(BATCH)]
        expected = {name: torch.stack([one[name] for one in alone]) for name in parameters}
        require_close(found, expected, TOLERANCE[dtype], f"gradients image by image in {dtype}")


def _gradient_of_image(function, image, names):
    inputs = tuple(part[image : image + 1] for part in function.inputs)
    alone = Function(function.subject, module=function.module.module, inputs=inputs)
    with plain():
        found = gradient(alone)
    return {name: found[name] for name in names}


def no_images(subject):
    """Outputs and gradients of an empty batch: of the right shape, and zero."""
    for dtype in (torch.float32, torch.float64):
        function = Function(subject, dtype, batch=0)
        shapes = [(0, *output.shape[1:]) for output in reference_values(subject.name)]
        with torch.no_grad():
            quick = function(function.point)  # without gradients other ops may serve
        for outputs in (quick, function(function.leaves())):
            found = [tuple(output.shape) for output in outputs]
            if found != shapes:
                raise WrongValueError(f"outputs of shapes {found}, expected {shapes}")
        zeros = {name: torch.zeros_like(value) for name, value in function.point.items()}
        found = gradient(function)
        require_close(found, zeros, 0, "gradients of an empty batch")


def one_image(subject):
    """An image's outputs and gradients are the same alone and in a batch."""
    dtype = torch.float64
    module, inputs = subject.module(dtype), subject.inputs(BATCH, dtype)
    total = None
    for image in range(BATCH):
        alone = Function(subject, module=module, inputs=tuple(part[image : image + 1] for part in inputs))
        outputs = alone(alone.leaves())
        expected = [output[image : image + 1] for output in reference_values(subject.name)]
        require_close(outputs, expected, TOLERANCE[dtype], f"image {image} alone")
        found = gradient(alone)
        found = {name: part for name, part in found.items() if not name.startswith("input ")}
        total = found if total is None else {name: total[name] + part for name, part in found.items()}
    with plain():
        together = gradient(Function(subject, module=module, inputs=inputs))
    require_close(total, {name: together[name] for name in total}, TOLERANCE[dtype], "sum of the images' gradients")
