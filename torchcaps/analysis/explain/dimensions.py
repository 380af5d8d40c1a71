"""What the numbers of a pose mean: one at a time is changed, and what is drawn is looked at and measured."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.analysis import pages
from torchcaps.analysis.explain.cases import drawn_no_better
from torchcaps.analysis.explain.subject import Subject
from torchcaps.analysis.pages import Section, text
from torchcaps.analysis.perturbation import (
    CLEAR_AGREEMENT,
    CLEAR_EFFECT,
    STEPS,
    Effects,
    describe_dimension,
    perturbed_images,
    pose_effects,
)
from torchcaps.analysis.pictures import Picture, enlargement, sheet
from torchcaps.data.images import place
from torchcaps.data.randomness import random_integers
from torchcaps.data.registry import make_image_dataset

MOST_CLASSES, MOST_ROWS, MOST_IMAGES = 10, 32, 16
"""Classes and pose numbers that are shown, and images of a class that are measured."""
SHIFTED_COPIES = 4  # of each image, to know how much a property varies in training
LARGEST_SIDE = 40  # larger images are made smaller here: there are hundreds of them on the page


class OfClass(NamedTuple):
    """A class, one of its images, the numbers of its pose, and over how many images they were measured."""

    name: str
    image: int
    effects: Effects
    images: int


def section_of_dimensions(subject: Subject) -> Section:
    """A grid of perturbed reconstructions for each class, and what was measured."""
    measured = [found for number in _classes(subject) if (found := _measured(subject, number)) is not None]
    blocks, pictures = "", []
    for number, of in enumerate(measured):
        block, picture = _grid(subject, of, first=number == 0)
        blocks += block
        pictures.append(picture)
    body = pages.paragraph(
        f"Every row changes one number of the class capsule's pose by {_signed(STEPS[0])} … {_signed(STEPS[-1])} and "
        "decodes the result; the middle column is unchanged. (After figure 4 of Sabour et al. 2017.) Beside a row is "
        f"the strongest effect that is clear in up to {MOST_IMAGES} images of the class: how much the property changes "
        f"over the whole row, and in how many of the images it changes that way. An effect counts as clear from "
        f"{CLEAR_EFFECT:g} of the standard deviation that the property has among the class's test images, shifted as "
        f"in training, and if at least {CLEAR_AGREEMENT:.0%} of the images measured agree."
    )
    if (poor := drawn_no_better(subject)) is not None:
        error, mean = (pages.number(value, 4) for value in poor)
        body += pages.paragraph(
            f"The decoder draws hardly better than the mean image (squared error per pixel {error}, of the mean image "
            f"{mean}). Effects on such pictures are measured below, but they say little about what a number means; "
            "train longer first.",
            "says",
        )
    names = subject.spec.class_names
    which = _which([names.index(of.name) for of in measured], len(names))
    body += _summary(measured, which) + blocks + _table(measured, which)
    return Section("dimensions", "What each pose number does", body, pictures, _numbers(measured))


def _classes(subject: Subject) -> list[int]:
    """The first classes that have an image, of which the first answered rightly is shown if there is one."""
    return sorted(set(subject.labels.flatten().tolist()))[:MOST_CLASSES]


def _which(numbers: list[int], total: int) -> str:
    """The classes that were measured, in words that do not claim more."""
    count = len(numbers)
    if count == total:
        return f"all {total} classes" if total > 1 else "the only class"
    return f"the first {count} of {total} classes" if numbers == list(range(count)) else f"{count} of {total} classes"


def _measured(subject: Subject, number: int) -> OfClass | None:
    assert subject.capsules is not None
    assert subject.decoder is not None
    shows = (subject.labels == number).any(dim=1)
    right = (shows & subject.right).nonzero()[:, 0]
    chosen = right if len(right) else shows.nonzero()[:, 0]
    if not len(chosen):
        return None
    some = chosen[:MOST_IMAGES]
    classes = torch.full((len(some),), number)
    natural = _of_class(subject, number)
    effects = pose_effects(
        subject.decoder, subject.capsules.pose[some], classes, natural.mean(dim=1) if len(natural) > 1 else None
    )
    return OfClass(subject.spec.class_names[number], int(chosen[0]), effects, len(some))


def _of_class(subject: Subject, number: int) -> Tensor:
    """The test images of a class, or of several objects in an image that one, shifted as in training.

    Without the shifts a data set of centred objects would make the least change of place look enormous.
    """
    if subject.objects > 1:
        return subject.batch.targets[subject.labels == number]
    images, shift = subject.batch.targets[subject.labels[:, 0] == number], subject.recipe.data.shift
    if not shift or make_image_dataset(subject.recipe.data).makes_canvas:
        return images
    images = images.repeat(SHIFTED_COPIES, 1, 1, 1)
    offsets = random_integers(subject.seed, torch.arange(len(images)), 2, 2 * shift + 1) - shift
    return place(images, offsets, images.shape[-2:])


def _grid(subject: Subject, of: OfClass, first: bool) -> tuple[str, Picture]:
    assert subject.capsules is not None
    assert subject.decoder is not None
    number = subject.spec.class_names.index(of.name)
    pose = subject.capsules.pose[of.image : of.image + 1]
    images = _small(perturbed_images(subject.decoder, pose, torch.tensor([number]))[0, :MOST_ROWS])  # [D, S, C, H, W]
    scale = max(1, min(2, enlargement(images, 44)))
    marks = "".join(f"<span>{_signed(step)}</span>" for step in (STEPS[0], 0.0, STEPS[-1]))
    rows = f'<b class="none"></b><div class="scale none">{marks}</div><span class="none"></span>'
    for dimension, row in enumerate(images):
        said = _in_words(of.effects, dimension)
        alt = f"Class {of.name}, pose number {dimension + 1} changed in {len(STEPS)} steps: {said}"
        strip = sheet("", [row], alt, gap=1)
        clear = text(said) if said != "no clear effect" else "<small>no clear effect</small>"
        rows += f"<b>{dimension + 1}</b>{pages.image(strip, scale)}<span>{clear}</span>"
    summary = f"{text(of.name)} <small>measured over {of.images} image{'s' if of.images > 1 else ''}</small>"
    picture = sheet(
        f"dimensions-{number}",
        list(images),
        f"Class {of.name}: every pose number (rows) changed in {len(STEPS)} steps (columns)",
        gap=1,
    )
    return pages.details(summary, f'<div class="strips">{rows}</div>', first), picture


def _small(images: Tensor) -> Tensor:
    side = max(images.shape[-2:])
    if side <= LARGEST_SIDE:
        return images
    size = [max(1, round(length * LARGEST_SIDE / side)) for length in images.shape[-2:]]
    return F.interpolate(images.flatten(0, 1), size, mode="area").reshape(*images.shape[:3], *size)


def _summary(measured: list[OfClass], which: str) -> str:
    """The one sentence that the numbers allow."""
    clear = [int(_clear(of.effects).any(dim=1).sum()) for of in measured]
    total = measured[0].effects.effect.shape[0]
    best = max(measured, key=lambda of: float((of.effects.effect.abs() * _clear(of.effects)).max()))
    strength = (best.effects.effect.abs() * _clear(best.effects)).amax(dim=1)
    if not float(strength.max()) > 0:
        return pages.paragraph(f"No pose number has a clear effect; measured: {which}.", "says")
    dimension = int(strength.argmax())
    count = f"between {min(clear)} and {max(clear)}" if min(clear) < max(clear) else f"{clear[0]}"
    each = " in each class" if len(clear) > 1 else ""
    return pages.paragraph(
        f"Of the {total} pose numbers {count} have a clear effect{each} (measured: {which}). The "
        f"strongest is number {dimension + 1} of class {text(best.name)}: "
        f"{text(_in_words(best.effects, dimension))}.",
        "says",
    )


def _clear(effects: Effects) -> Tensor:
    return (effects.effect.abs() >= CLEAR_EFFECT) & (effects.agreement >= CLEAR_AGREEMENT)


def _clear_classes(measured: list[OfClass]) -> list[int]:
    """For each number of the pose, the largest number of classes in which one property is clearly changed."""
    together = torch.stack([_clear(of.effects) for of in measured]).sum(dim=0)  # [D, P]
    return [int(count) for count in together.amax(dim=1)]


def _table(measured: list[OfClass], which: str) -> str:
    """Mean size of every effect over the classes. Not its sign: the same number may mean different things."""
    mean = torch.stack([of.effects.effect.abs() for of in measured]).mean(dim=0)  # [D, P]
    clear = _clear_classes(measured)
    most = max(float(mean.max()), 1e-12)
    rows = []
    for dimension, values in enumerate(mean.tolist()):
        cells = [pages.heat_cell(1, 0.85 * value / most, f"{value:.2f}") for value in values]
        rows.append([str(dimension + 1), *cells, f"{clear[dimension]}"])
    names = measured[0].effects.names
    words = pages.paragraph(
        f"The size of every effect, in standard deviations that the property has by nature, as the mean over {which}. "
        "The sign is left out: a number of the pose can do opposite things in two classes. The last column is the "
        "largest number of classes in which one and the same property is clearly changed."
    )
    head = ["pose number", *names, "classes with a clear effect"]
    table = pages.table(head, rows, "Mean effect of every pose number on every property")
    return f"<h3>Over {which}</h3>{words}{table}"


def _in_words(effects: Effects, dimension: int) -> str:
    return describe_dimension(effects, dimension).replace("(-", "(−")


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if value else "0"


def _numbers(measured: list[OfClass]) -> dict[str, Any]:
    """Everything in the grids' captions and in the table."""
    mean = torch.stack([of.effects.effect.abs() for of in measured]).mean(dim=0)
    return {
        "steps": list(STEPS),
        "properties": list(measured[0].effects.names),
        "mean_effect": mean.tolist(),
        "classes_with_a_clear_effect": _clear_classes(measured),
        "classes": {
            of.name: {
                "images": of.images,
                "change": of.effects.change.tolist(),
                "effect": of.effects.effect.tolist(),
                "agreement": of.effects.agreement.tolist(),
                "in_words": [describe_dimension(of.effects, d) for d in range(len(of.effects.effect))],
            }
            for of in measured
        },
    }
