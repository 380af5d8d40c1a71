"""Does a pose move with the object? Images are shifted, turned and scaled by known amounts, and poses are watched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.analysis.gradients import evaluating
from torchcaps.analysis.probes import linear_probe_r2
from torchcaps.checks import require_choice
from torchcaps.errors import InputError
from torchcaps.training.tasks.metrics import grade

TRANSFORMATIONS: dict[str, tuple[float, ...]] = {
    "shift right": (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0),
    "shift down": (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0),
    "rotate": (-30.0, -22.5, -15.0, -7.5, 0.0, 7.5, 15.0, 22.5, 30.0),
    "scale": (0.7, 0.775, 0.85, 0.925, 1.0, 1.075, 1.15, 1.225, 1.3),
}
"""Amounts by kind: pixels, pixels, degrees counter-clockwise as seen, and a factor."""

UNCHANGED = {"shift right": 0.0, "shift down": 0.0, "rotate": 0.0, "scale": 1.0}
"""The amount of each kind that leaves an image as it is."""

_AT_ONCE = 256


def transform(images: Tensor, kind: str, amount: float) -> Tensor:
    """Images shifted, turned or scaled about their centre, bilinear, with darkness from outside.

    What comes in is black: 0, or in standardised images the darkest pixel. Shifts by whole pixels and the identity are
    exact.

    Args:
        images: of any size.
        kind: of :data:`TRANSFORMATIONS`. ``rotate`` is counter-clockwise as seen, ``scale`` enlarges above 1.
        amount: pixels, degrees or a factor.

    Shapes:
        ``[B, C, H, W]`` → the same.
    """
    require_choice("transformation", kind, TRANSFORMATIONS)
    if images.dim() != 4:
        raise InputError(f"images must have shape [batch, channels, height, width], got {tuple(images.shape)}.")
    if kind == "scale" and not amount > 0:
        raise InputError(f"the factor of a scale must be positive, got {amount}.")
    if amount == UNCHANGED[kind]:
        return images
    dark = images.flatten(1).amin(dim=1).clamp_max(0)[:, None, None, None]
    return _move(images - dark, kind, amount) + dark


def _move(images: Tensor, kind: str, amount: float) -> Tensor:
    """The same with zeros from outside."""
    if kind.startswith("shift"):
        return _shift(images, amount, -1 if kind == "shift right" else -2)
    turn, zoom = (math.radians(amount), 1.0) if kind == "rotate" else (0.0, 1 / amount)
    cos, sin = zoom * math.cos(turn), zoom * math.sin(turn)
    height, width = images.shape[-2:]
    down, right = (torch.arange(n, dtype=images.dtype, device=images.device) - (n - 1) / 2 for n in (height, width))
    # Where each pixel comes from: the inverse, which with rows counted downwards turns the other way round.
    x, y = cos * right - sin * down[:, None], sin * right + cos * down[:, None]
    grid = torch.stack([2 * x / width, 2 * y / height], dim=-1)  # −1 … 1 from edge to edge
    return F.grid_sample(images, grid.expand(len(images), -1, -1, -1), align_corners=False)


def _shift(images: Tensor, amount: float, dim: int) -> Tensor:
    """By whole pixels, and between two of them a mixture of both."""
    whole = math.floor(amount)
    part = amount - whole
    size = images.shape[dim]
    zeros = images.new_zeros([abs(whole) + 1 if at == images.dim() + dim else n for at, n in enumerate(images.shape)])
    canvas = torch.cat([zeros, images, zeros], dim=dim)  # position 0 of the image is at |whole| + 1
    start = abs(whole) + 1 - whole
    at = canvas.narrow(dim, start, size)
    return at if part == 0 else (1 - part) * at + part * canvas.narrow(dim, start - 1, size)


class Movement(NamedTuple):
    """What one kind of transformation does to the capsule of the labelled class, for A amounts.

    Attributes:
        kind: of :data:`TRANSFORMATIONS`.
        amounts: ``[A]``.
        pose_change: ``[A]``: ‖pose(t) − pose(0)‖ / ‖pose(0)‖, mean over the images.
        activation: ``[A]``, mean over the images.
        accuracy: ``[A]``; for several objects all of them must be found.
        probe_r2: how well the amount can be read from poses of images that the probe has not seen, by
            :func:`~torchcaps.analysis.probes.linear_probe_r2`: 1 exactly, 0 no better than the mean of the amounts.
        shuffled_r2: the same for amounts that were dealt out at random: what this number of images gives by chance,
            about 0 or below.
    """

    kind: str
    amounts: Tensor
    pose_change: Tensor
    activation: Tensor
    accuracy: Tensor
    probe_r2: float
    shuffled_r2: float


def measure_movements(
    model: nn.Module, images: Tensor, labels: Tensor, kinds: Sequence[str] = tuple(TRANSFORMATIONS), seed: int = 0
) -> list[Movement]:
    """Transform images by all amounts, and watch the capsule of each image's class.

    Args:
        model: with class capsules, of vectors or matrices.
        images: as the model takes them; zeros come in from outside.
        labels: class indices; of several objects the first is watched, of flags the first class of each image, and
            images without any are left out.
        kinds: of :data:`TRANSFORMATIONS`.
        seed: decides which half of the images of each class the probe is fitted to.

    Shapes:
        images ``[B, C, H, W]``, labels ``[B]``, ``[B, M]`` or flags bool ``[B, K]``.
    """
    if labels.dtype == torch.bool and labels.dim() == 2 and len(labels) == len(images):
        images, labels = images[labels.any(dim=1)], labels[labels.any(dim=1)]
    flat = labels.dtype == torch.bool and labels.dim() != 2
    if flat or labels.is_floating_point() or len(labels) != len(images) or not len(images):
        raise InputError(
            "movements need class indices [batch] or [batch, objects], or flags, for at least one image; got "
            f"{labels.dtype} {tuple(labels.shape)} for {len(images)} images."
        )
    first = _take_first(labels)
    shuffle = torch.Generator().manual_seed(seed)
    train = _halve_each_class(first, shuffle)
    measured = []
    with evaluating(model), torch.inference_mode():
        before = _watch(model, images, labels)
        for kind in kinds:
            require_choice("transformation", kind, TRANSFORMATIONS)
            seen = [
                before if amount == UNCHANGED[kind] else _watch(model, transform(images, kind, amount), labels)
                for amount in TRANSFORMATIONS[kind]
            ]
            measured.append(_sum_up(kind, seen, before, first, train, shuffle))
    return measured


def _take_first(labels: Tensor) -> Tensor:
    """The first class of each image ``[B]``."""
    if labels.dtype == torch.bool:
        return labels.int().argmax(dim=1)
    return labels if labels.dim() == 1 else labels[:, 0]


class _Seen(NamedTuple):
    pose: Tensor  # [B, D]
    activation: Tensor  # [B]
    right: Tensor  # [B]


def _watch(model: nn.Module, images: Tensor, labels: Tensor) -> _Seen:
    """The capsule of the first label of each image."""
    parts = []
    for some, some_labels in zip(torch.split(images, _AT_ONCE), torch.split(labels, _AT_ONCE), strict=True):
        output = model(some)
        if output.capsules is None:
            raise InputError(f"poses are watched here, but a {type(model).__name__} has no capsules.")
        rows = torch.arange(len(some))
        first = _take_first(some_labels)
        pose, activation = output.capsules.pose[rows, first].flatten(1), output.capsules.activation[rows, first]
        parts.append(_Seen(pose, activation, grade(output, some_labels)))
    return _Seen(*(torch.cat(field) for field in zip(*parts, strict=True)))


def _sum_up(
    kind: str, seen: list[_Seen], before: _Seen, classes: Tensor, train: Tensor, shuffle: torch.Generator
) -> Movement:
    amounts = torch.tensor(TRANSFORMATIONS[kind])
    poses = torch.stack([at.pose for at in seen])  # [A, B, D]
    length = before.pose.norm(dim=-1).clamp_min(torch.finfo(poses.dtype).tiny)
    count, images = poses.shape[:2]
    target = amounts.repeat_interleave(images)  # [A·B]
    dealt = target[torch.randperm(len(target), generator=shuffle)]
    groups, fitted, items = classes.repeat(count), train.repeat(count), torch.arange(images).repeat(count)
    return Movement(
        kind,
        amounts,
        ((poses - before.pose).norm(dim=-1) / length).mean(dim=1),
        torch.stack([at.activation.mean() for at in seen]),
        torch.stack([at.right.mean() for at in seen]),
        linear_probe_r2(poses.flatten(0, 1), target, groups, fitted, items),
        linear_probe_r2(poses.flatten(0, 1), dealt, groups, fitted, items),
    )


def _halve_each_class(classes: Tensor, shuffle: torch.Generator) -> Tensor:
    """Bool ``[B]``: every other image of each class in a random order, beginning with a chosen one."""
    order = torch.randperm(len(classes), generator=shuffle)
    train = torch.zeros(len(classes), dtype=torch.bool)
    for one in set(classes.tolist()):
        train[order[classes[order] == one][::2]] = True
    return train
