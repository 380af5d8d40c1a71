"""Adversarial attacks: small changes of an image, made so that a classifier errs.

They work on every image model of the library, capsules or not: all they ask for is scores. A model is only ever used in
evaluation mode, is left in the mode in which it came, and its parameters' gradients are not touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis.gradients import evaluating
from torchcaps.checks import require_count, require_float
from torchcaps.data.randomness import numbered_seed, random_uniform
from torchcaps.errors import InputError
from torchcaps.training.tasks.metrics import find_correct

AttackLoss = Callable[[Tensor, Tensor], Tensor]
"""From scores ``[B, classes]`` and labels ``[B]`` to a number per image ``[B]`` that an attack makes large."""

AT_ONCE = 250
"""So many images go through a model at a time; only rounding depends on it."""


def score_margin(scores: Tensor, labels: Tensor) -> Tensor:
    r"""How far the best wrong class is ahead of the right one.

    ::

        L = max_{k≠y} a_k − a_y

    Positive where the model errs. Carlini & Wagner 2017, "Towards Evaluating the Robustness of Neural Networks",
    arXiv 1608.04644, f_6 for any wrong class and without its bound.

    The training losses are poor guides for an attack: the margin loss is exactly zero, and so is its gradient, once a
    capsule is long enough; cross-entropy fades as a CNN grows certain. A model would seem robust because the attack
    sees no slope. The margin between scores keeps one, and means the same for lengths and for logits: their scales
    differ, but an attack uses only the sign of the gradient and the order of the losses. Only scores that rounding has
    made exactly 0 or 1 have no slope; attack such a model in double precision.

    Shapes:
        scores ``[B, classes]``, labels ``[B]`` → ``[B]``.
    """
    right = scores.gather(1, labels[:, None])[:, 0]
    others = scores.scatter(1, labels[:, None], -math.inf)
    return others.amax(dim=1) - right


def fgsm(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float, loss: AttackLoss = score_margin) -> Tensor:
    r"""The fast gradient sign method: one step, as large in every pixel as is allowed.

    ::

        x' = clip(x + ε sign ∇_x L(x, y), 0, 1)

    Goodfellow, Shlens, Szegedy 2015, "Explaining and Harnessing Adversarial Examples", arXiv 1412.6572.

    Args:
        model: an image classifier.
        images: in 0 … 1.
        labels: the right classes.
        epsilon: ε, by how much any pixel may change.
        loss: what the attack makes large.

    Shapes:
        images ``[B, C, H, W]``, labels ``[B]`` → ``[B, C, H, W]``.
    """
    _require_task(images, labels, epsilon)
    with evaluating(model):
        return _apply_in_parts(
            lambda x, y: (x + epsilon * _measure_loss_and_slope(model, x, y, loss)[1].sign()).clamp(0, 1),
            images,
            labels,
        )


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    steps: int = 20,
    step: float | None = None,
    seed: int = 0,
    restarts: int = 1,
    loss: AttackLoss = score_margin,
) -> Tensor:
    r"""Projected gradient descent: many small steps of the fast gradient sign method from a random start.

    ::

        x_0     = clip(x + uniform(−ε, ε))
        x_{t+1} = clip(project(x_t + step · sign ∇L(x_t, y)))    project: back to within ε of x, clip: to 0 … 1

    Of all x_t, those of other restarts and x itself included, each image keeps the one with the largest loss.
    Madry et al. 2018, "Towards Deep Learning Models Resistant to Adversarial Attacks", arXiv 1706.06083.

    Args:
        model: an image classifier.
        images: in 0 … 1.
        labels: the right classes.
        epsilon: ε, by how much any pixel may change.
        steps: how many.
        step: its size; 2.5 ε / steps if not given, enough to cross the ball from side to side.
        seed: of the random starts. That of an image depends on the seed and on its place among the images alone.
        restarts: how many random starts are tried.
        loss: what the attack makes large.

    Shapes:
        images ``[B, C, H, W]``, labels ``[B]`` → ``[B, C, H, W]``.
    """
    _require_task(images, labels, epsilon)
    require_count("steps", steps)
    require_count("restarts", restarts)
    size = 2.5 * epsilon / steps if step is None else step
    if not 0 <= size < math.inf:
        raise InputError(f"step must be at least 0 and finite, got {step}.")
    least, most = (images - epsilon).clamp_min(0), (images + epsilon).clamp_max(1)

    def climb(x: Tensor, low: Tensor, high: Tensor, y: Tensor, worst: Tensor) -> Tensor:
        harm, _ = _measure_loss_and_slope(model, worst, y, loss)
        for taken in range(steps + 1):
            losses, slope = _measure_loss_and_slope(model, x, y, loss)
            better = losses > harm
            harm, worst = torch.where(better, losses, harm), torch.where(better[:, None, None, None], x, worst)
            if taken < steps:
                x = torch.minimum(torch.maximum(x + size * slope.sign(), low), high)
        return worst

    worst = images
    with evaluating(model):
        for restart in range(restarts):
            drawn = random_uniform(numbered_seed(seed, restart), torch.arange(len(images)), images[:1].numel())
            noise = (2 * drawn.view_as(images).to(images) - 1) * epsilon
            start = torch.minimum(torch.maximum(images + noise, least), most)
            worst = _apply_in_parts(climb, start, least, most, labels, worst)
    return worst


class OnePixel(NamedTuple):
    """Result of :func:`one_pixel`.

    Attributes:
        images: with their pixel changed ``[B, C, H, W]``.
        fooled: where the model does not find the label in them, bool ``[B]``; also true of images that it took for
            something else before.
        place: row and column of the pixel ``[B, 2]``.
        value: what the pixel was set to ``[B]``.
    """

    images: Tensor
    fooled: Tensor
    place: Tensor
    value: Tensor


def one_pixel(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    values: Sequence[float] = (0.0, 1.0),
    batch: int = 1024,
    progress: Callable[[int], None] | None = None,
) -> OnePixel:
    """Change the one pixel that lowers the label's lead over the best other class most.

    Su, Vargas, Sakurai 2017, "One Pixel Attack for Fooling Deep Neural Networks", arXiv 1710.08864, search by
    differential evolution. Small images allow trying every place with every value instead: nothing is left to chance,
    and over these values no search can find more. What lies between the values is not tried. In a colour image a
    pixel is set to the same value in all channels, that is to black or white.

    Args:
        model: an image classifier.
        images: in 0 … 1.
        labels: the right classes.
        values: what to set a pixel to.
        batch: how many changed images go through the model at a time.
        progress: is told how many images are done, after each.

    Shapes:
        images ``[B, C, H, W]``, labels ``[B]``; H · W · values forward passes per image.
    """
    _require_task(images, labels, 0.0)
    require_count("batch", batch)
    if not values or not all(0 <= value <= 1 for value in values):
        raise InputError(f"a pixel's values must be some numbers in 0 … 1, got {tuple(values)}.")
    tried = images.new_tensor(list(values))
    strongest, fooled = [], []
    with evaluating(model), torch.inference_mode():
        for done, (image, label) in enumerate(zip(images, labels, strict=True), start=1):
            changes = torch.arange(image[0].numel() * len(tried), device=images.device)
            leads = [
                -_measure_margin(model, _change_pixels(image, part, tried), label)
                for part in torch.split(changes, batch)
            ]
            strongest.append(torch.cat(leads).argmin())
            scores = model(_change_pixels(image, strongest[-1][None], tried)).scores
            fooled.append(scores.argmax(dim=1)[0] != label)
            if progress is not None:
                progress(done)
    best = torch.stack(strongest)
    where, width = best // len(tried), images.shape[3]
    attacked = [_change_pixels(image, change[None], tried) for image, change in zip(images, best, strict=True)]
    return OnePixel(
        torch.cat(attacked),
        torch.stack(fooled),
        torch.stack([where // width, where % width], dim=1),
        tried[best % len(tried)],
    )


def robust_accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images, attacked ones for instance, in which the model finds the label."""
    _require_task(images, labels, 0.0)
    with evaluating(model), torch.inference_mode():
        right = _apply_in_parts(lambda x, y: find_correct(model(x).scores, y), images, labels)
    return float(right.double().mean())


def _measure_margin(model: nn.Module, images: Tensor, label: Tensor) -> Tensor:
    scores: Tensor = model(images).scores
    return score_margin(scores, label.expand(len(images)))


def _change_pixels(image: Tensor, changes: Tensor, values: Tensor) -> Tensor:
    """Copies of an image ``[C, H, W]``, one for each change = place · number of values + value: ``[n, C, H, W]``."""
    copies = image.flatten(1).repeat(len(changes), 1, 1)  # [n, C, H·W]
    each = torch.arange(len(changes), device=changes.device)
    copies[each, :, changes // len(values)] = values[changes % len(values), None]
    return copies.view(-1, *image.shape)


def _measure_loss_and_slope(
    model: nn.Module, images: Tensor, labels: Tensor, loss: AttackLoss
) -> tuple[Tensor, Tensor]:
    """The loss ``[B]`` and its gradient in the images; ``autograd.grad`` leaves the parameters' own gradients alone."""
    with torch.inference_mode(False), torch.enable_grad():
        x = images.detach().clone().requires_grad_()
        harm = loss(model(x).scores, labels)
        (slope,) = torch.autograd.grad(harm.sum(), x)
    return harm.detach(), slope


def _apply_in_parts(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    return torch.cat([function(*part) for part in zip(*(torch.split(each, AT_ONCE) for each in tensors), strict=True)])


def _require_task(images: Tensor, labels: Tensor, epsilon: float) -> None:
    require_float("images", images)
    if images.dim() != 4 or not len(images):
        raise InputError(f"an attack needs images [batch, channels, height, width], got shape {tuple(images.shape)}.")
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise InputError(
            f"an attack needs one class number (int64) per image, {len(images)} in all; got {labels.dtype} of shape "
            f"{tuple(labels.shape)}. Images of several objects cannot be attacked."
        )
    if not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise InputError(
            f"images must be in 0 … 1, got values from {float(images.min()):.3g} to {float(images.max()):.3g}. "
            "Standardised images cannot be attacked: how far a pixel may go would mean something else in each."
        )
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon must be at least 0 and finite, got {epsilon}.")
