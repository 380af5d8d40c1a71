"""What if routing went on? A trained network with fewer and with more iterations than it was trained with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis.couplings import (
    class_children,
    class_layer,
    coupling_entropy,
    polarisation,
    require_capsule_model,
    trace_layer,
)
from torchcaps.analysis.gradients import evaluating
from torchcaps.training.tasks.metrics import choose_classes, find_correct, flag_labels

MOST_ITERATIONS = 20

_AT_ONCE = 16  # images whose votes and couplings of all iterations are stored


class OtherIterations(NamedTuple):
    """The class layer after 1, 2, …, r iterations; means over the images.

    A run of t iterations is the beginning of a longer one, so one run of r tells all of them.

    Attributes:
        trained: how many iterations the network was trained with.
        accuracy: ``[r]``; of several objects all must be found.
        changed: ``[r]``: the share of images whose answer is not the one after ``trained`` iterations.
        entropy: ``[r]``, :func:`~torchcaps.analysis.couplings.coupling_entropy`.
        polarisation: ``[r]``.
        present: ``[r]``: activation of the classes that an image shows.
        absent: ``[r]``: activation of the others; NaN if there are none.
    """

    trained: int
    accuracy: Tensor
    changed: Tensor
    entropy: Tensor
    polarisation: Tensor
    present: Tensor
    absent: Tensor


def vary_iterations(
    model: nn.Module, images: Tensor, labels: Tensor, most: int = MOST_ITERATIONS
) -> OtherIterations | None:
    """Route images with 1 to ``most`` iterations; weights and all layers below the classes stay as they are.

    Paik et al. 2019, arXiv 1907.13327, find that further iterations polarise the couplings and hardly change answers.

    Args:
        model: a :class:`~torchcaps.models.base.CapsuleModel`.
        images: as the model takes them.
        labels: class indices, or flags.
        most: iterations; at least as many as the network was trained with are made.

    Shapes:
        images ``[N, C, H, W]``, labels ``[N]``, ``[N, M]`` or flags bool ``[N, K]``; None for a routing without
        iterations, or with a schedule that ends before.
    """
    capsule_model = require_capsule_model(model)
    layer = class_layer(capsule_model)
    trained = getattr(layer.routing, "iterations", None)
    if trained is None:
        return None
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    with evaluating(model), torch.inference_mode():
        for some in torch.split(images, _AT_ONCE):
            children = class_children(capsule_model, some)
            try:
                trace = trace_layer(layer, children, max(most, trained))
            except ValueError:
                return None
            steps, count, classes = *trace.activation.shape[:2], trace.activation.shape[-1]
            coupling = trace.coupling.reshape(steps, count, -1, classes)  # one window over everything
            activation = trace.activation.reshape(steps, count, classes)
            parts.append((coupling_entropy(coupling), polarisation(coupling), activation))
    entropy, polarised, activation = (torch.cat(values, dim=1) for values in zip(*parts, strict=True))
    return _sum_up(trained, entropy, polarised, activation, labels.view(len(labels), -1))


def _sum_up(trained: int, entropy: Tensor, polarised: Tensor, activation: Tensor, labels: Tensor) -> OtherIterations:
    """Entropy and polarisation ``[r, N]``, activation ``[r, N, J]``, labels ``[N, M]`` or flags ``[N, J]``."""
    answers = torch.stack([choose_classes(scores, labels) for scores in activation])  # [r, N, J]
    shown = flag_labels(labels, activation.shape[-1])  # [N, J]
    return OtherIterations(
        trained,
        torch.stack([find_correct(scores, labels).double().mean() for scores in activation]),
        (answers != answers[trained - 1]).any(dim=-1).double().mean(dim=1),
        entropy.mean(dim=1),
        polarised.mean(dim=1),
        activation[:, shown].mean(dim=1),
        activation[:, ~shown].mean(dim=1),
    )
