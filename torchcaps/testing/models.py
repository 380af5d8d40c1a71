"""What must hold for every model."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from torchcaps.models.output import ModelOutput
from torchcaps.testing.routing import wipe_tensors


def _tensors(output: ModelOutput) -> list[Tensor]:
    pose = [] if output.capsules is None else list(output.capsules[:2])
    return [output.scores, *pose, *([] if output.reconstruction is None else [output.reconstruction])]


def _same(actual: list[Tensor], expected: list[Tensor], message: str) -> None:
    for a, e in zip(actual, expected, strict=True):
        try:
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)
        except AssertionError as error:
            raise AssertionError(f"{message}: {error}") from None


def check_model_batch(model: nn.Module, images: Tensor) -> None:
    """In evaluation an image's output is the same alone and in any batch.

    In float64: torch's convolutions round differently for other batch sizes, and EM routing magnifies that.
    """
    exact, images = copy.deepcopy(model).double().eval(), images.double()
    together = _tensors(exact(images))
    for i in range(len(images)):
        alone = _tensors(exact(images[i : i + 1]))
        _same([a[0] for a in alone], [t[i] for t in together], f"image {i} differs alone and in a batch")


def check_model_zero(model: nn.Module, images: Tensor) -> None:
    """A black image through zero biases gives finite outputs and gradients."""
    dark = copy.deepcopy(model).train()
    with torch.no_grad():
        for name, parameter in dark.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    output = dark(torch.zeros_like(images))
    sum(tensor.square().sum() + tensor.sum() for tensor in _tensors(output)).backward()  # type: ignore[union-attr]
    for tensor in _tensors(output):
        if not bool(tensor.isfinite().all()):
            raise AssertionError("a black image gives NaN or infinity")
    for name, parameter in dark.named_parameters():
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            raise AssertionError(f"a black image gives NaN or infinite gradients in {name}")


def check_model_backward(model: nn.Module, images: Tensor) -> None:
    """Every parameter receives a finite gradient, and not all of it is zero."""
    learner = copy.deepcopy(model).train()
    output = learner(images)
    sum(tensor.square().sum() for tensor in _tensors(output)).backward()  # type: ignore[union-attr]
    for name, parameter in learner.named_parameters():
        if parameter.grad is None or not bool(parameter.grad.isfinite().all()):
            raise AssertionError(f"{name} receives no finite gradient")
        if not bool(parameter.grad.any()):
            raise AssertionError(f"{name} receives a gradient of zeros only")


def check_model_state_dict(model: nn.Module, images: Tensor) -> None:
    """Saving and loading the state gives the same model again."""
    other = copy.deepcopy(model)
    wipe_tensors(other)
    other.load_state_dict(model.state_dict())
    _same(_tensors(other.eval()(images)), _tensors(model.eval()(images)), "the state dict lacks a part of the model")


def check_model_compile(model: nn.Module, images: Tensor, backend: str = "aot_eager") -> None:
    """``torch.compile`` takes the model whole and gives the same output."""
    torch._dynamo.reset()
    compiled = torch.compile(model.eval(), fullgraph=True, backend=backend)
    _same(_tensors(compiled(images)), _tensors(model(images)), "torch.compile changed the result")


def check_model_export(model: nn.Module, images: Tensor) -> None:
    """``torch.export`` takes the model, and the exported program gives the same output."""
    program = torch.export.export(model.eval(), (images,))
    _same(_tensors(program.module()(images)), _tensors(model(images)), "torch.export changed the result")


MODEL_CHECKS = {
    "batch": check_model_batch,
    "zero": check_model_zero,
    "backward": check_model_backward,
    "state_dict": check_model_state_dict,
    "compile": check_model_compile,
    "export": check_model_export,
}


def assert_model(model: nn.Module, image_shape: tuple[int, int, int], *, batch: int = 3, seed: int = 0) -> None:
    """Check everything that must hold for a model; raise AssertionError with the property that does not.

    Args:
        model: ``model(images)`` → :class:`~torchcaps.models.ModelOutput`.
        image_shape: channels, height, width.
        batch: number of random images.
        seed: of the images.
    """
    images = torch.rand(batch, *image_shape, generator=torch.Generator().manual_seed(seed))
    for check in MODEL_CHECKS.values():
        check(copy.deepcopy(model), images)
