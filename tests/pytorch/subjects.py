"""What torch's transforms are tried on: every layer with every routing, and every model, small.

A routing or a model that is registered is a subject from then on.
"""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torchcaps import Capsules, create_model, list_models, list_routings
from torchcaps.layers import CapsuleConv2d, CapsuleLinear, PrimaryCapsules2d
from torchcaps.models.registry import model_factory
from torchcaps.testing import random_texts

BATCH = 3
CLASSES = 4
IMAGE = (1, 6, 6)
WORDS, WORD_SIZE, LENGTH = 20, 5, 7
SMALL_OPTIONS = {
    "images": {
        "channels": 8, "types": (4, 4, 4), "pose": 2, "decoder": (8, 9),
        "stem": ((4, 3, 2, 1), (6, 3, 1, 1)), "primary": (8, 3), "primary_dim": 4, "class_dim": 5,
    },
    "words": {"filters": 4, "types": 3, "pose": 4, "hidden": 5, "ngram": 2, "ngrams": (2, 3)},
}  # fmt: skip
"""Of those options a model is given the ones that it has."""


@dataclass(frozen=True)
class Subject:
    """A module, and how it is called with plain tensors.

    Attributes:
        name: of the row.
        factory: makes the module from ``arguments``; a class for layers.
        arguments: of the factory.
        draw: ``draw(batch, generator)`` gives the inputs, in float32 or whole numbers.
        call: ``call(module, *inputs)`` gives the module's own output.
    """

    name: str
    factory: Callable[..., nn.Module]
    arguments: dict[str, Any]
    draw: Callable[[int, torch.Generator], tuple[torch.Tensor, ...]]
    call: Callable[..., Any]

    @property
    def is_layer(self):
        return isinstance(self.factory, type)

    def build(self, **where):
        """A new module, as a user would make it; ``where`` is its device or dtype."""
        return self.factory(**self.arguments, **where)

    def module(self, dtype=torch.float32, seed=0):
        """The same module every time, in eval mode, with nothing at its first value: see :func:`_prepared`."""
        return copy.deepcopy(_prepared(self.name, seed)).to(dtype)

    def inputs(self, batch=BATCH, dtype=torch.float32, seed=0):
        """The same float32 numbers for every dtype, rounded where it has fewer digits."""
        drawn = self.draw(batch, torch.Generator().manual_seed(seed))
        return tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in drawn)

    def run(self, module, *inputs):
        """The module as a function of tensors to a tuple of tensors, the batch in front of each."""
        output = self.call(module, *inputs)
        if isinstance(output, Capsules):
            return output.pose, output.activation
        capsules = () if output.capsules is None else output.capsules[:2]
        return (output.scores, *capsules, *(() if output.reconstruction is None else (output.reconstruction,)))

    def __str__(self):
        return self.name


class OnTensors(nn.Module):
    """A subject's module with tensors in and a tuple of tensors out, for tools that know nothing else."""

    def __init__(self, subject, module):
        super().__init__()
        self.subject, self.module = subject, module

    def forward(self, *inputs):
        return self.subject.run(self.module, *inputs)


@functools.cache
def _prepared(name, seed):
    """Off every start: parameters that begin at zero are moved, and one training batch has been seen.

    So frozen couplings are not even and running means are not zero, and no wrong gradient hides behind a zero.
    """
    torch.manual_seed(seed)
    subject = SUBJECTS[name]
    module = subject.build()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        zero_padding(module, dict(module.named_parameters()))
        subject.run(module.train(), *subject.inputs(seed=seed + 100))
    return module.eval()


def zero_padding(module, tensors):
    """Make the rows that stand for padding zero in tensors by the names of the parameters.

    Torch gives them no gradient, whatever depends on them, so nothing may move them either.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            tensors[f"{name}.weight"][part.padding_idx] = 0


def _capsules(arrangement, pose):
    """Draws poses ``[B, *arrangement, *pose]`` and activations ``[B, *arrangement]``."""

    def draw(batch, generator):
        poses = 0.5 * torch.randn(batch, *arrangement, *pose, generator=generator)
        return poses, 0.05 + 0.9 * torch.rand(batch, *arrangement, generator=generator)

    return draw


def _call_with_capsules(module, pose, activation):
    return module(Capsules(pose, activation))


def _call(module, inputs):
    return module(inputs)


def _linear(routing):
    sizes = {"in_capsules": 5, "in_dim": 4, "out_capsules": 4, "out_dim": 3, "routing": routing}
    return Subject(f"CapsuleLinear-{routing}", CapsuleLinear, sizes, _capsules((5,), (4,)), _call_with_capsules)


def _conv(routing):
    """Matrix poses and a border of padding, which the windows at the edge see."""
    sizes = {
        "in_types": 2, "out_types": 3, "kernel_size": 3, "stride": 2, "padding": 1, "in_pose": (2, 3),
        "out_pose": (2, 2), "routing": routing,
    }  # fmt: skip
    draw = _capsules((3, 4, 2), (2, 3))
    return Subject(f"CapsuleConv2d-{routing}", CapsuleConv2d, sizes, draw, _call_with_capsules)


def _primary():
    sizes = {"in_channels": 2, "types": 3, "dim": 4, "kernel_size": 3, "stride": 2, "padding": 1}
    return Subject("PrimaryCapsules2d", PrimaryCapsules2d, sizes, _images(2, 5, 4), _call)


def _images(*shape):
    return lambda batch, generator: (torch.rand(batch, *shape, generator=generator),)


def _texts(batch, generator):
    return (random_texts(WORDS, batch, LENGTH, generator.initial_seed()),)


def _model(name, reads):
    known = inspect.signature(model_factory(name)).parameters
    options = {option: value for option, value in SMALL_OPTIONS[reads].items() if option in known}
    shape, draw = (IMAGE, _images(*IMAGE)) if reads == "images" else ((WORDS, WORD_SIZE), _texts)
    factory = functools.partial(create_model, name, shape, CLASSES)
    return Subject(name, factory, options, draw, _call)


SUBJECTS = {
    subject.name: subject
    for subject in (
        *(_linear(routing) for routing in list_routings()),
        *(_conv(routing) for routing in list_routings()),
        _primary(),
        *(_model(name, reads) for reads in SMALL_OPTIONS for name in list_models(reads)),
    )
}
