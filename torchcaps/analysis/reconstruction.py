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

HARDLY_BETTER = 0.8
"""Of the mean image's error: a decoder with more has not learned to draw."""


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
    def hardly_better(self) -> bool:
        """Whether the decoder draws hardly better than the mean image, as labelled."""
        return self.mean_image is not None and float(self.as_labelled.mean()) > HARDLY_BETTER * self.mean_image


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
    predicted = None
    if objects == 1:
        drawn = draw_classes(decoder, answers.capsules, every, list_drawn(answers)[0])
        predicted = pixel_errors(drawn, targets[:, 0])
    labelled_errors = pixel_errors(torch.stack(labelled, dim=1), targets)
    return DrawingErrors(predicted, labelled_errors, mean_image_error(targets.flatten(0, 1)))


def mean_image_error(images: Tensor) -> float | None:
    """The error of each image's mean of all others, ``[N, C, H, W]``; None for a single one.

    The mean m of all is judged on an image x that is part of it: without x it would be (N m − x)/(N − 1), whose
    distance from x is N/(N − 1) times as large.
    """
    count = len(images)
    if count < 2:
        return None
    of_all = float(pixel_errors(images.mean(dim=0, keepdim=True), images).mean())
    return of_all * (count / (count - 1)) ** 2


def pixel_errors(drawn: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error per pixel, for each image."""
    return (drawn - targets).square().flatten(1).mean(dim=1)
