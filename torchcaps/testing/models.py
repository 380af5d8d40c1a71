"""What must hold for every model."""

from __future__ import annotations

import copy
import io

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
    exact = copy.deepcopy(model).double().eval()
    images = images.double() if images.is_floating_point() else images
    together = _tensors(exact(images))
    for i in range(len(images)):
        alone = _tensors(exact(images[i : i + 1]))
        _same([a[0] for a in alone], [t[i] for t in together], f"image {i} differs alone and in a batch")


def check_model_zero(model: nn.Module, images: Tensor) -> None:
    """A black image, or a text of padding only, through zero biases gives finite outputs and gradients."""
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
    """``torch.export`` takes the model, and the exported program gives the same output, also saved and loaded."""
    program = torch.export.export(model.eval(), (images,))
    expected = _tensors(model(images))
    _same(_tensors(program.module()(images)), expected, "torch.export changed the result")
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    _same(_tensors(loaded(images)), expected, "torch.export.save and load changed the result")


def check_text_padding(model: nn.Module, token_ids: Tensor) -> None:
    """A text's output is the same alone, with padding after it, and beside longer texts."""
    model.eval()
    for length in range(1, token_ids.shape[1] + 1):
        text = token_ids[:1, :length]
        alone = _tensors(model(text))
        longer = torch.cat([text, text.new_zeros(1, 12)], dim=1)
        beside = torch.cat([longer, longer.clamp_min(1).flip(1)])
        for shown in (longer, beside):
            padded = [tensor[:1] for tensor in _tensors(model(shown))]
            _same(padded, alone, f"a text of {length} words differs with padding after it")


MODEL_CHECKS = {
    "batch": check_model_batch,
    "zero": check_model_zero,
    "backward": check_model_backward,
    "state_dict": check_model_state_dict,
    "compile": check_model_compile,
    "export": check_model_export,
}


TEXT_CHECKS = {**MODEL_CHECKS, "padding": check_text_padding}


def random_texts(words: int, batch: int = 3, length: int = 11, seed: int = 0) -> Tensor:
    """Token ids ``[B, L]``; every text but the first is shorter than the one before, with padding at its end."""
    token_ids = torch.randint(1, words, (batch, length), generator=torch.Generator().manual_seed(seed))
    ends = (length - 2 * torch.arange(batch)).clamp_min(1)
    return token_ids.masked_fill(torch.arange(length) >= ends[:, None], 0)


def assert_model(model: nn.Module, input_shape: tuple[int, ...], *, batch: int = 3, seed: int = 0) -> None:
    """Check everything that must hold for a model; raise AssertionError with the property that does not.

    Args:
        model: ``model(inputs)`` → :class:`~torchcaps.models.ModelOutput`.
        input_shape: channels, height and width of images, or for text the number of words and their vectors' size.
        batch: number of random images or texts.
        seed: of them.
    """
    text = len(input_shape) == 2
    images = torch.rand(batch, *input_shape, generator=torch.Generator().manual_seed(seed))
    for check in (TEXT_CHECKS if text else MODEL_CHECKS).values():
        check(copy.deepcopy(model), random_texts(input_shape[0], batch, seed=seed) if text else images)
