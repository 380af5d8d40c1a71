"""Graphs of a module: compiled, exported, traced, packed for C++, and their operations counted."""

import io
import subprocess
import sys
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch
from comparing import (
    TOLERANCE,
    Function,
    WrongValueError,
    loss,
    parameter_gradients,
    plain,
    reference_values,
    require_close,
    require_gradients,
)
from subjects import BATCH, OnTensors
from torch.utils.flop_counter import FlopCounterMode

SINGLE = TOLERANCE[torch.float32]
OTHER = BATCH + 2
"""Another size of batch than the one a graph was made with."""
WITHOUT_TORCHCAPS = "CapsuleLinear-dynamic"
"""The one whose package is also run by a process that does not know torchcaps."""
RUN_PACKAGE = """
import sys, torch
package, inputs, outputs = sys.argv[1:]
torch.save(torch._inductor.aoti_load_package(package)(*torch.load(inputs)), outputs)
assert "torchcaps" not in sys.modules
"""
FAST_TO_COMPILE = {"aot_inductor.compile_wrapper_opt_level": "O0"}


def _require_values(subject, call, what, batch=BATCH, seed=0):
    outputs = call(*subject.inputs(batch, seed=seed))
    require_close(tuple(outputs), reference_values(subject.name, batch, seed), SINGLE, what)


def compile_whole(subject):
    """torch.compile takes it whole, values and gradients."""
    torch._dynamo.reset()
    module = OnTensors(subject, subject.module())
    with torch._dynamo.config.patch(allow_rnn=True):  # otherwise it leaves torch's own LSTM out of the graph
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        for size in (BATCH, OTHER):
            _require_values(subject, compiled, f"compiled, batch of {size}", size)
        loss(compiled(*subject.inputs())).backward()
    require_gradients(parameter_gradients(module), subject.name, SINGLE, "gradients, compiled")


def _export(subject, strict):
    inputs, batch = subject.inputs(), torch.export.Dim("batch")
    shapes = (tuple({0: batch} for _ in inputs),)  # of *inputs
    module = OnTensors(subject, subject.module())
    return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=strict)


def _require_exported(subject, strict):
    """With the custom ops and without; run with another batch, from memory and from a file."""
    for context in (nullcontext, plain):
        with context():
            program = _export(subject, strict)
        if context is plain:
            _require_no_custom_ops(program)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        for which in (program, torch.export.load(file)):
            run = which.module()
            for size in (BATCH, OTHER):
                _require_values(subject, run, f"exported ({context.__name__}), batch of {size}", size, seed=1)


def _require_no_custom_ops(program):
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    found = sorted(name for name in names if "torchcaps" in name)
    if found:
        raise AssertionError(f"the plain graph calls {found}")


def export(subject):
    _require_exported(subject, strict=False)


def export_strict(subject):
    _require_exported(subject, strict=True)


def aot_inductor(subject):
    """Compiled to a package that C++ can run, from the export without custom ops."""
    with plain():
        program = _export(subject, strict=False)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=FAST_TO_COMPILE)
        run = torch._inductor.aoti_load_package(path)
        for size in (BATCH, OTHER):
            _require_values(subject, run, f"package, batch of {size}", size, seed=1)
        if subject.name == WITHOUT_TORCHCAPS:
            _require_values(subject, lambda *inputs: _in_another_process(path, inputs), "other process", OTHER)


def _in_another_process(package, inputs):
    files = [package, f"{package}.inputs", f"{package}.outputs"]
    torch.save(inputs, files[1])
    subprocess.run([sys.executable, "-c", RUN_PACKAGE, *files], check=True)
    return torch.load(files[2])


def trace(subject):
    """torch.jit.trace: with other values, with gradients, and with another batch it is right or says that it is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is old, and that Python's values are constants in a trace
        module = OnTensors(subject, subject.module())
        traced = torch.jit.trace(module, subject.inputs())
        _require_values(subject, traced, "traced, other values", seed=1)
        loss(traced(*subject.inputs())).backward()
        require_gradients(parameter_gradients(module), subject.name, SINGLE, "gradients, traced")
        for size in (BATCH - 1, OTHER):
            try:
                _require_values(subject, traced, f"traced, batch of {size}", size, seed=1)
            except RuntimeError:  # a trace may have its own batch's size in it, and then must not go through
                continue


def flop_counter(subject):
    """As many as the plain path's, forward and with the backward pass."""
    counts = {}
    for context in (nullcontext, plain):
        function = Function(subject, torch.float32)
        with context():
            with FlopCounterMode(display=False) as forward, torch.no_grad():
                function(function.point)
            with FlopCounterMode(display=False) as recorded:
                outputs = function(function.leaves())
            with FlopCounterMode(display=False) as backward:
                loss(outputs).backward()
        counts[context.__name__] = [count.get_total_flops() for count in (forward, recorded, backward)]
    found, expected = counts["nullcontext"], counts["plain"]
    if found != expected or min(found) == 0:
        raise WrongValueError(f"counts {found} (forward, forward with gradients, backward), plain torch {expected}")
