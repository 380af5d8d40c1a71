"""What the pose numbers of each class do, over some of its test images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.answers import ImageAnswers
from torchcaps.analysis.ground import lay_on_black
from torchcaps.analysis.perturbation import Effects, find_clear, measure_changes, pose_effects
from torchcaps.data.images import place
from torchcaps.data.randomness import random_integers
from torchcaps.errors import InputError
from torchcaps.models.base import Decoder

MOST_IMAGES = 16
"""Of a class that are measured."""

_SHIFTED_COPIES = 4  # of each image, to know how much a property varies in training


class ClassEffects(NamedTuple):
    """What the numbers of a class capsule's pose do.

    Attributes:
        label: index of the class.
        name: of the class.
        example: position of one of its images among the answers, a rightly answered one if there is any.
        effects: of every number.
        images: over how many they were measured.
    """

    label: int
    name: str
    example: int
    effects: Effects
    images: int


class ClassChanges(NamedTuple):
    """How much the numbers of a class capsule's pose change a picture, whatever it shows.

    Attributes:
        label: index of the class.
        name: of the class.
        example: position of one of its images among the answers, a rightly answered one if there is any.
        change: of every number ``[D]``, see :func:`measure_changes`.
        images: over how many it was measured.
    """

    label: int
    name: str
    example: int
    change: Tensor
    images: int


def measure_class_changes(decoder: Decoder, answers: ImageAnswers, index: int) -> ClassChanges | None:
    """As :func:`measure_class_effects`, of pictures that are no drawings on a plain ground."""
    if answers.capsules is None:
        raise InputError("poses are changed here, but the model has no class capsules.")
    chosen = choose_examples(answers, index)
    if not len(chosen):
        return None
    some, content = chosen[:MOST_IMAGES], answers.ground.content
    between = None if content is None else content[some]
    change = measure_changes(decoder, answers.capsules.pose[some], torch.full((len(some),), index), between)
    return ClassChanges(index, answers.class_names[index], int(chosen[0]), change, len(some))


def measure_class_effects(
    decoder: Decoder, answers: ImageAnswers, index: int, shift: int = 0, seed: int = 0
) -> ClassEffects | None:
    """Measure the pose of one class over some of its images, rightly answered ones if there are any.

    Args:
        decoder: of the model.
        answers: of all images, with class capsules.
        index: of the class.
        shift: by how many pixels images are shifted in training, which is part of how much they vary by nature.
        seed: of these shifts.

    Returns:
        The effects, or None if no image shows the class.
    """
    if answers.capsules is None:
        raise InputError("poses are changed here, but the model has no class capsules.")
    chosen = choose_examples(answers, index)
    if not len(chosen):
        return None
    some = chosen[:MOST_IMAGES]
    natural = _vary_as_in_training(answers, index, shift, seed)
    colour, content = answers.ground.colour, answers.ground.content
    effects = pose_effects(
        decoder,
        answers.capsules.pose[some],
        torch.full((len(some),), index),
        natural if len(natural) > 1 else None,
        colour,
        None if content is None else content[some],
    )
    return ClassEffects(index, answers.class_names[index], int(chosen[0]), effects, len(some))


def choose_examples(answers: ImageAnswers, index: int) -> Tensor:
    """Positions of the images that show a class, of the rightly answered ones if there are any."""
    shows = answers.label_flags[:, index]
    right = (shows & answers.right).nonzero()[:, 0]
    return right if len(right) else shows.nonzero()[:, 0]


def _vary_as_in_training(answers: ImageAnswers, index: int, shift: int, seed: int) -> Tensor:
    """The test images of a class, or of several objects in an image that one, shifted as in training ``[N, H, W]``.

    Without the shifts a data set of centred objects would make the least change of place look enormous.
    """
    ground, targets = answers.ground, answers.batch.targets
    black = targets.new_zeros(targets.shape[-3]) if ground.colour is None else ground.colour
    if answers.objects > 1:
        return lay_on_black(targets[answers.labels == index], black)
    shows = answers.label_flags[:, index]
    images = lay_on_black(targets[shows], black, None if ground.content is None else ground.content[shows])
    if not shift:
        return images
    images = images.repeat(_SHIFTED_COPIES, 1, 1)[:, None]
    offsets = random_integers(seed, torch.arange(len(images)), 2, 2 * shift + 1) - shift
    return place(images, offsets, images.shape[-2:])[:, 0]


def mean_effects(measured: Sequence[ClassEffects]) -> Tensor:
    """The mean size of every effect over the classes ``[D, P]``; not its sign, which may differ between them."""
    return torch.stack([part.effects.effect.abs() for part in measured]).mean(dim=0)


def count_clear_classes(measured: Sequence[ClassEffects]) -> list[int]:
    """For each number of the pose, the largest number of classes in which one property is clearly changed."""
    together = torch.stack([find_clear(part.effects) for part in measured]).sum(dim=0)  # [D, P]
    return [int(count) for count in together.amax(dim=1)]
