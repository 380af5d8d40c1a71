"""How strongly each layer is asked to change: the sizes of gradients, without touching the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.images import Batch
from torchcaps.errors import InputError
from torchcaps.losses import CapsuleLoss


class LayerGradient(NamedTuple):
    """The gradient of one layer, of all parameters that it holds itself.

    Attributes:
        name: of the layer in the model.
        parameters: how many numbers.
        gradient: L2 norm of the loss's gradient; 0 for what is frozen or not used.
        weight: L2 norm of the parameters.
        ratio: gradient / weight, comparable between layers of different sizes; NaN if all weights are zero.
    """

    name: str
    parameters: int
    gradient: float
    weight: float
    ratio: float


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within this context a model is in evaluation mode; afterwards every part of it is in the mode that it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def gradient_norms(model: nn.Module, batch: Batch, loss: CapsuleLoss) -> list[LayerGradient]:
    """‖∂L/∂W‖ and ‖W‖ of every layer for one batch, in the order in which the layers are used.

    The model is in evaluation mode meanwhile, so that nothing is random and no state changes. Gradients that it has
    kept, and the mode of each of its parts, are afterwards as they were. Parameters that two layers share are counted
    for the first.

    Args:
        model: of this library, or any that is called as ``model(inputs, labels)``.
        batch: what a training step would see.
        loss: as in training.
    """
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not learned:
        raise InputError("the model has no parameter that is learned, so there are no gradients to measure.")
    with evaluating(model), torch.enable_grad(), _find_order_of_use(model) as used:
        parts = loss(model(batch.inputs, batch.labels), batch.labels, batch.targets)
        values = torch.autograd.grad(parts.total, learned, allow_unused=True)
    gradients = dict(zip(learned, values, strict=True))
    layers, seen, position = [], set(), -1
    for name, module in model.named_modules():
        # A module whose forward is not called, as of a routing, comes after the module that is registered before it.
        position = used.get(module, position)
        own = [parameter for parameter in module.parameters(recurse=False) if parameter not in seen]
        seen.update(own)
        if own:
            layers.append((position, _measure(name, own, gradients)))
    return [layer for _, layer in sorted(layers, key=lambda pair: pair[0])]


def _measure(name: str, own: list[nn.Parameter], gradients: Mapping[nn.Parameter, Tensor | None]) -> LayerGradient:
    gradient = _measure_norm([gradients.get(parameter) for parameter in own])
    weight = _measure_norm([parameter.detach() for parameter in own])
    ratio = gradient / weight if weight > 0 else math.nan
    return LayerGradient(name, sum(parameter.numel() for parameter in own), gradient, weight, ratio)


def _measure_norm(tensors: list[Tensor | None]) -> float:
    """L2 norm of all numbers together; what is None counts as zeros."""
    dense = [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors if tensor is not None]
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in dense))


@contextmanager
def _find_order_of_use(model: nn.Module) -> Iterator[dict[nn.Module, int]]:
    """The order in which modules are called in this context: 0 for the first one, 1 for the next."""
    used: dict[nn.Module, int] = {}

    def note(module: nn.Module, _: object) -> None:
        used.setdefault(module, len(used))

    handles = [module.register_forward_pre_hook(note) for module in model.modules()]
    try:
        yield used
    finally:
        for handle in handles:
            handle.remove()
