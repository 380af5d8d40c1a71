"""How well a decoder draws: errors per pixel, beside that of a mean image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.answers import ImageAnswers
from torchcaps.capsules import Capsules
from torchcaps.errors import InputError
from torchcaps.models.base import Decoder
from torchcaps.training.tasks.metrics import flag_labels

CLEARLY_BETTER, NO_BETTER = 0.8, 0.95
"""Of the mean image's error: a decoder with less than the first part has learned to draw, with less than the second a
little; from there to as much more it is no better, and beyond that worse."""


class DrawingErrors(NamedTuple):
    """Squared errors per pixel of what is drawn from single class capsules.

    Attributes:
        as_predicted: of each image ``[N]``, from the predicted class; None for several objects.
        as_labelled: of each image ``[N]``, from the labelled classes, mean over the objects.
        mean_image: what the mean of all other images, or objects, would have; None for a single one.
    """

    as_predicted: Tensor | None
    as_labelled: Tensor
    mean_image: float | None

    @property
    def clearly_better(self) -> bool:
        """Whether the decoder draws clearly better than the mean image, as labelled, or there is none to compare."""
        return self.mean_image is None or float(self.as_labelled.mean()) <= CLEARLY_BETTER * self.mean_image


def compare_errors(error: float, other: float) -> str:
    """An error beside another one in words, such as ``clearly better (62 % less error)`` or ``worse by 72 %``.

    Both are squared errors; :data:`CLEARLY_BETTER` and :data:`NO_BETTER` say which words they get.
    """
    if not other > 0:
        return "worse" if error > other else "no better"
    ratio = error / other
    if ratio < NO_BETTER:
        return f"{'clearly' if ratio <= CLEARLY_BETTER else 'a little'} better ({100 * (1 - ratio):.0f} % less error)"
    return "no better" if ratio <= 2 - NO_BETTER else f"worse by {100 * (ratio - 1):,.0f} %"


def draw_classes(decoder: Decoder, capsules: Capsules | None, chosen: Tensor, classes: Tensor) -> Tensor:
    """Images decoded from one class capsule each, or from all that are flagged together; all others are zero.

    Shapes:
        positions ``[n]``, classes int64 ``[n]`` or flags bool ``[n, K]`` → ``[n, C, H, W]``.
    """
    if capsules is None:
        raise InputError("nothing can be drawn from a model without class capsules.")
    with torch.no_grad():
        return decoder(Capsules(capsules.pose[chosen], capsules.activation[chosen]), classes)


def list_drawn(answers: ImageAnswers) -> tuple[Tensor, Tensor]:
    """What is drawn of each image with one object as predicted and as labelled: a class, or all that are flagged.

    Where no class is present the one with the highest score is drawn.
    """
    if not answers.multi_label:
        return answers.predictions[:, 0], answers.labels[:, 0]
    found = answers.predicted_flags
    highest = flag_labels(answers.scores.argmax(dim=1), len(answers.class_names))
    return torch.where(found.any(dim=1, keepdim=True), found, highest), answers.label_flags


def measure_drawing(decoder: Decoder, answers: ImageAnswers) -> DrawingErrors:
    """Judge a decoder on all images of some answers."""
    every, objects = torch.arange(len(answers.labels)), answers.objects
    targets = answers.batch.targets.view(len(every), objects, *answers.batch.targets.shape[-3:])
    labelled = [draw_classes(decoder, answers.capsules, every, list_drawn(answers)[1])]
    if objects > 1:
        labelled = [draw_classes(decoder, answers.capsules, every, answers.labels[:, n]) for n in range(objects)]
    predicted, content = None, answers.ground.content
    if objects == 1:
        drawn = draw_classes(decoder, answers.capsules, every, list_drawn(answers)[0])
        predicted = pixel_errors(drawn, targets[:, 0], content)
        labelled_errors = pixel_errors(labelled[0], targets[:, 0], content)
    else:
        labelled_errors = pixel_errors(torch.stack(labelled, dim=1), targets)
    return DrawingErrors(predicted, labelled_errors, mean_image_error(targets.flatten(0, 1), content))


def mean_image_error(images: Tensor, content: Tensor | None = None) -> float | None:
    """The error of each image's mean of all others, ``[N, C, H, W]``; None for a single one.

    The mean m of all is judged on an image x that is part of it: without x it would be (N m − x)/(N − 1), whose
    distance from x is N/(N − 1) times as large.

    Args:
        images: in 0 … 1.
        content: pixels that count, bool ``[N, 1, H, W]``; the mean at a place is then that of the images that have it.
    """
    count = len(images)
    if count < 2:
        return None
    if content is None:
        of_all = float(pixel_errors(images.mean(dim=0, keepdim=True), images).mean())
        return of_all * (count / (count - 1)) ** 2
    there = content.sum(dim=0, keepdim=True)  # [1, 1, H, W]
    compared = content & (there > 1)  # what only one image has, is like no other
    if not bool(compared.any()):
        return None
    mean = (images * content).sum(dim=0, keepdim=True) / there.clamp_min(1)
    without_itself = (images - mean) * (there / (there - 1).clamp_min(1))
    errors = pixel_errors(without_itself, torch.zeros_like(images), compared)
    return float(errors[compared.flatten(1).any(dim=1)].mean())


def pixel_errors(drawn: Tensor, targets: Tensor, content: Tensor | None = None) -> Tensor:
    """Mean squared error per pixel, for each image; of the pixels that count, bool ``[N, 1, H, W]``, if not of all."""
    squared = (drawn - targets).square()
    if content is None:
        return squared.flatten(1).mean(dim=1)
    counted = content.expand_as(squared).flatten(1)
    return (squared.flatten(1) * counted).sum(dim=1) / counted.sum(dim=1).clamp_min(1)
