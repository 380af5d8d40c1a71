"""The schema of every op of the package is the one written beside it, and says what its Python signature says."""

import inspect
import subprocess
import sys
import typing
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from torchcaps.ops.conv import op as conv
from torchcaps.ops.dynamic import op as dynamic
from torchcaps.ops.em import op as em

OPS = {
    "routed_linear": (dynamic.routed_linear_op, dynamic.FORWARD),
    "routed_forward": (dynamic._forward, dynamic.FORWARD),
    "routed_linear_backward": (dynamic.routed_linear_backward_op, dynamic.BACKWARD),
    "em_moments": (em.em_moments_op, em.MOMENTS),
    "em_moments_backward": (em.em_moments_backward_op, em.GRADIENTS),
    "conv2d": (conv.conv2d_op, conv.FORWARD),
    "conv2d_forward": (conv._forward, conv.FORWARD),
    "conv2d_backward": (conv.conv2d_backward_op, conv.BACKWARD),
}
TYPES = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    Sequence[Tensor]: "Tensor[]",
    Sequence[int]: "SymInt[]",
    Sequence[bool]: "bool[]",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
}
INFERRING = """
import torch

def refuse(function, *_, **__):
    assert not function.__module__.startswith("torchcaps"), f"{function} has no schema"
    return infer(function, *_, **__)

infer, torch.library.infer_schema = torch.library.infer_schema, refuse
import torchcaps.ops
"""


def signature(function):
    function = getattr(function, "_init_fn", function)  # of a custom op
    types = typing.get_type_hints(function)
    arguments = []
    for name, parameter in inspect.signature(function).parameters.items():
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        arguments.append(f"{TYPES[types[name]]} {name}{default}")
    returned = ", ".join(TYPES[one] for one in typing.get_args(types["return"]))
    return f"({', '.join(arguments)}) -> {f'({returned})' if returned else TYPES[types['return']]}"


def test_all_ops_are_here():
    registered = {schema.name for schema in torch._C._jit_get_all_schemas()}
    assert {name for name in registered if name.startswith("torchcaps::")} == {f"torchcaps::{name}" for name in OPS}


@pytest.mark.parametrize("name", OPS)
def test_the_schema_is_the_written_one(name):
    packet = getattr(torch.ops.torchcaps, name)
    assert packet.overloads() == ["default"]
    assert str(packet.default._schema) == f"torchcaps::{name}{OPS[name][1]}"
    assert not packet.default._schema.is_mutable


@pytest.mark.parametrize("name", OPS)
def test_the_schema_is_that_of_the_function(name):
    function, written = OPS[name]
    assert signature(function) == written


def test_no_schema_is_inferred():
    """Which annotations torch can read depends on its version."""
    subprocess.run([sys.executable, "-c", INFERRING], check=True, timeout=120)
