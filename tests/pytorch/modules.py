"""What is done with a module as a whole: copies, files, other devices, checkpoints."""

import copy
import io
import pickle

import torch
from comparing import (
    TOLERANCE,
    Function,
    WrongValueError,
    loss,
    parameter_gradients,
    reference_gradient,
    reference_values,
    require_close,
    require_gradients,
)
from subjects import BATCH, OnTensors
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode
from torch.utils.checkpoint import checkpoint as checkpointed

SINGLE = TOLERANCE[torch.float32]


def _require_same_module(subject, module, what):
    """Values, and gradients of all parameters, after one backward pass."""
    wrapped = OnTensors(subject, module)
    outputs = wrapped(*subject.inputs())
    require_close(outputs, reference_values(subject.name), SINGLE, what)
    module.zero_grad()
    loss(outputs).backward()
    require_gradients(parameter_gradients(wrapped), subject.name, SINGLE, f"gradients of {what}")


def _used(subject):
    """A module that has been through a forward and a backward pass, which may leave something behind."""
    module = subject.module()
    loss(subject.run(module, *subject.inputs())).backward()
    return module


def functional_call(subject):
    """Other parameters than the module's own, which it keeps."""
    module, other = OnTensors(subject, subject.module()), OnTensors(subject, subject.module(seed=1))
    before = copy.deepcopy(other.state_dict())
    outputs = torch.func.functional_call(other, dict(module.state_dict()), subject.inputs())
    require_close(outputs, reference_values(subject.name), SINGLE, "outputs with other parameters")
    require_close(other.state_dict(), before, 0, "the module's own parameters")


def deepcopy(subject):
    module = _used(subject)
    other = copy.deepcopy(module)
    addresses = {tensor.data_ptr() for tensor in module.state_dict().values()}
    if any(tensor.data_ptr() in addresses for tensor in other.state_dict().values()):
        raise WrongValueError("the copy shares a tensor with the original")
    _require_same_module(subject, other, "the copy")


def pickled(subject):
    """By pickle, and by torch.save of the whole module."""
    module = _used(subject)
    _require_same_module(subject, pickle.loads(pickle.dumps(module)), "pickle")
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    _require_same_module(subject, torch.load(file, weights_only=False), "torch.save")


def checkpoint(subject):
    """Both kinds of torch.utils.checkpoint, in training too, where a second pass must draw the same numbers."""
    for reentrant in (False, True):
        function = Function(subject, torch.float32)
        leaves = function.leaves()
        anchor = torch.zeros((), requires_grad=True)  # without one the reentrant kind takes words as no input at all

        def call(anchor, point, function=function):
            return tuple(output + anchor for output in function(point))

        outputs = checkpointed(call, anchor, leaves, use_reentrant=reentrant)
        require_close(outputs, reference_values(subject.name), SINGLE, f"outputs, reentrant {reentrant}")
        loss(outputs).backward()
        found = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
        require_close(found, reference_gradient(subject.name), SINGLE, f"gradients, reentrant {reentrant}")
        require_close(*_training_gradients(subject, reentrant), SINGLE, f"gradients in training, reentrant {reentrant}")


def _training_gradients(subject, reentrant):
    """Of all parameters, with and without a checkpoint, from the same seed."""
    results = []
    for wrap in (True, False):
        module, anchor = subject.module().train(), torch.zeros((), requires_grad=True)

        def call(anchor, *inputs, module=module):
            return tuple(output + anchor for output in subject.run(module, *inputs))

        torch.manual_seed(0)
        inputs = (anchor, *subject.inputs())
        outputs = checkpointed(call, *inputs, use_reentrant=reentrant) if wrap else call(*inputs)
        loss(outputs).backward()
        results.append(parameter_gradients(module))
    return results


def _require_shapes(subject, outputs, what):
    found = [tuple(output.shape) for output in outputs]
    expected = [tuple(output.shape) for output in reference_values(subject.name)]
    if found != expected:
        raise WrongValueError(f"{what}: outputs of shapes {found}, expected {expected}")


def _require_shapes_of_gradients(module):
    wrong = [name for name, p in module.named_parameters() if p.grad is not None and p.grad.shape != p.shape]
    if wrong:
        raise WrongValueError(f"gradients of another shape than their parameter: {wrong}")


def meta(subject):
    """Built and run where tensors have no values."""
    with torch.device("meta"):
        module = subject.build()
    inputs = [tensor.to("meta") for tensor in subject.inputs()]
    for mode in (True, False):
        outputs = subject.run(module.train(mode), *inputs)
        _require_shapes(subject, outputs, f"training {mode}")
        if not all(output.is_meta for output in outputs):
            raise WrongValueError("an output is not on the meta device")
        loss(outputs).backward()
        _require_shapes_of_gradients(module)


def fake_tensor(subject):
    """Forward and backward of a module whose tensors are fake, made from a real one and made there: strides and all."""
    module, mode = subject.module(), FakeTensorMode()
    real = subject.run(module, *subject.inputs())
    inputs = tuple(mode.from_tensor(tensor) for tensor in subject.inputs())
    with FakeCopyMode(mode):
        fakes = [copy.deepcopy(module)]
    with mode:
        fakes.append(subject.build().eval())
    for fake in fakes:
        with mode:
            outputs = subject.run(fake, *inputs)
            loss(outputs).backward()
        for output, value in zip(outputs, real, strict=True):
            if not isinstance(output, FakeTensor) or _layout(output) != _layout(value):
                raise WrongValueError(f"{type(output).__name__} {_layout(output)}, expected {_layout(value)}")
        _require_shapes_of_gradients(fake)


def _layout(tensor):
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def skip_init(subject):
    """Made without drawing any weights, then filled from a state dict; and made in float64."""
    trained = subject.module()
    if subject.is_layer:
        empty = nn.utils.skip_init(subject.factory, **subject.arguments, device="cpu")
    else:
        empty = subject.build(device="meta").to_empty(device="cpu")
    empty.load_state_dict(trained.state_dict())
    _require_same_module(subject, empty.eval(), "the module that was made empty")
    _require_built_in_float64(subject, trained)


def _require_built_in_float64(subject, trained):
    double = subject.build(device="cpu", dtype=torch.float64)
    wrong = [n for n, t in double.state_dict().items() if t.is_floating_point() and t.dtype != torch.float64]
    if wrong:
        raise WrongValueError(f"dtype=torch.float64 gives {wrong} another dtype")
    double.load_state_dict(trained.state_dict())
    outputs = subject.run(double.eval(), *subject.inputs(BATCH, torch.float64))
    require_close(outputs, reference_values(subject.name), TOLERANCE[torch.float64], "built in float64")
