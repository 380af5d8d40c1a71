"""What if routing went on? A trained network with fewer and with more iterations than it was trained with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis.couplings import (
    class_children,
    coupling_entropy,
    polarisation,
    require_image_capsules,
    traced,
)
from torchcaps.analysis.gradients import evaluating
from torchcaps.layers import CapsuleLinear

MOST_ITERATIONS = 20

_AT_ONCE = 16  # images whose votes and couplings of all iterations are stored


class Iterated(NamedTuple):
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


def iterated(model: nn.Module, images: Tensor, labels: Tensor, most: int = MOST_ITERATIONS) -> Iterated | None:
    """Route images with 1 to ``most`` iterations; weights and all layers below the classes stay as they are.

    Paik et al. 2019, arXiv 1907.13327, find that further iterations polarise the couplings and hardly change answers.

    Args:
        model: a CapsNet or a MatrixCapsNet.
        images: as the model takes them.
        labels: class indices.
        most: iterations; at least as many as the network was trained with are made.

    Shapes:
        images ``[N, C, H, W]``, labels ``[N]`` or ``[N, M]``; None for a routing without iterations, or with a schedule
        that ends before.
    """
    model = require_image_capsules(model)
    layer = model.class_capsules
    trained = getattr(layer.routing, "iterations", None)
    if trained is None:
        return None
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    with evaluating(model), torch.inference_mode():
        for some in torch.split(images, _AT_ONCE):
            children = class_children(model, some)
            try:
                trace = traced(layer, children, max(most, trained))
            except ValueError:
                return None
            if not isinstance(layer, CapsuleLinear):  # one window over everything
                trace = trace._replace(coupling=trace.coupling.flatten(2, 4), activation=trace.activation[:, :, 0])
            parts.append((coupling_entropy(trace.coupling), polarisation(trace.coupling), trace.activation))
    entropy, polarised, activation = (torch.cat(values, dim=1) for values in zip(*parts, strict=True))
    return _summed_up(trained, entropy, polarised, activation, labels.view(len(labels), -1))


def _summed_up(trained: int, entropy: Tensor, polarised: Tensor, activation: Tensor, labels: Tensor) -> Iterated:
    """Entropy and polarisation ``[r, N]``, activation ``[r, N, J]``, labels ``[N, M]``."""
    answers = activation.topk(labels.shape[1], dim=-1).indices.sort(dim=-1).values  # [r, N, M]
    shown = torch.zeros(activation.shape[1:], dtype=torch.bool).scatter_(1, labels, True)  # [N, J]
    return Iterated(
        trained,
        (answers == labels.sort(dim=-1).values).all(dim=-1).double().mean(dim=1),
        (answers != answers[trained - 1]).any(dim=-1).double().mean(dim=1),
        entropy.mean(dim=1),
        polarised.mean(dim=1),
        activation[:, shown].mean(dim=1),
        activation[:, ~shown].mean(dim=1),
    )
