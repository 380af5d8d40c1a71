"""What the numbers of a pose mean: one at a time is changed, and what is drawn is looked at and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.analysis.class_effects import (
    MOST_IMAGES,
    ClassChanges,
    ClassEffects,
    count_clear_classes,
    mean_effects,
    measure_class_changes,
    measure_class_effects,
)
from torchcaps.analysis.perturbation import (
    CLEAR_AGREEMENT,
    CLEAR_EFFECT,
    PROPERTIES,
    STEPS,
    Effects,
    describe_dimension,
    find_clear,
    perturb_images,
)
from torchcaps.analysis.reconstruction import compare_errors, measure_drawing
from torchcaps.report.formats import format_number, format_signed, join_names
from torchcaps.report.given import GivenImages
from torchcaps.report.pictures import choose_scale, make_sheet
from torchcaps.report.rendering import Section, Table, TableCell

MOST_CLASSES, MOST_ROWS = 10, 32
"""Classes and pose numbers that are shown."""
LARGEST_SIDE = 40  # larger images are made smaller here: there are hundreds of them on the page
NOT_CLEAR = "no clear effect"
HARDLY_SEEN = 0.01  # a change per pixel, two or three of 255 steps


def show_dimensions(given: GivenImages) -> Section:
    """A grid of perturbed reconstructions for each class, and what was measured: of drawings their shape."""
    shown = given.answers.label_flags.any(dim=0).nonzero()[:, 0].tolist()[:MOST_CLASSES]
    content, numbers = (_measure_pictures if given.answers.ground.colour is None else _measure_shapes)(given, shown)
    content |= {
        "steps": [format_signed(step) for step in (STEPS[0], 0.0, STEPS[-1])],
        "most_images": MOST_IMAGES,
        "poor": _describe_poor(given),
    }
    pictures = [grid["picture"] for grid in content["grids"]]
    return Section("dimensions", "What each pose number does", "dimensions.html", content, pictures, numbers)


def _measure_shapes(given: GivenImages, shown: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of drawings on a plain ground: what a section shows, and its numbers."""
    decoder = given.decoder
    assert decoder is not None  # a report asks before
    every = [measure_class_effects(decoder, given.answers, index, given.facts.shift, given.seed) for index in shown]
    measured = [part for part in every if part is not None]
    which = describe_classes([part.label for part in measured], len(given.answers.class_names))
    content = {
        "left_out": None,
        "clear_effect": f"{CLEAR_EFFECT:g}",
        "clear_agreement": f"{CLEAR_AGREEMENT:.0%}",
        "summary": _sum_up(measured, which),
        "grids": [
            _show_grid(given, part, [_describe(part.effects, d) for d in range(len(part.effects.effect))])
            for part in measured
        ],
        "which": which,
        "table": _make_table(measured),
    }
    return content, list_numbers(measured)


def _measure_pictures(given: GivenImages, shown: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of photographs: how much a picture changes, since a shape that could be measured is not there."""
    decoder = given.decoder
    assert decoder is not None  # a report asks before
    every = [measure_class_changes(decoder, given.answers, index) for index in shown]
    measured = [part for part in every if part is not None]
    which = describe_classes([part.label for part in measured], len(given.answers.class_names))
    left_out = describe_left_out(given.answers.ground.plain)
    content: dict[str, Any] = {
        "left_out": left_out,
        "summary": _sum_up_changes(measured, which),
        "grids": [_show_grid(given, part, [f"{change:.3f}" for change in part.change.tolist()]) for part in measured],
        "which": which,
        "table": _make_change_table(measured),
    }
    return content, _list_changes(measured, left_out)


def describe_left_out(plain: float) -> str:
    """Why the shape of what is drawn is not measured."""
    found = "none" if plain == 0 else f"{100 * plain:.0f}\u202f%"
    return (
        f"{join_names(list(PROPERTIES)).capitalize()} are measures of a drawing on a plain ground, such as a digit on "
        f"black. These images are photographs or textures ({found} of them have the ground that is commonest at the "
        "borders), so the measures would mean nothing and are left out."
    )


def _describe_poor(given: GivenImages) -> str | None:
    """What to say of a decoder that does not draw clearly better than the mean image."""
    assert given.decoder is not None  # a report asks before
    errors = measure_drawing(given.decoder, given.answers)
    if errors.clearly_better or errors.mean_image is None:
        return None
    error = float(errors.as_labelled.mean())
    compared = compare_errors(error, errors.mean_image)
    return (
        f"Beside the mean image, what the decoder draws is {compared}: squared error per pixel "
        f"{format_number(error, 4)}, of the mean image {format_number(errors.mean_image, 4)}. What changes in such "
        "pictures says little about what a number means; train longer first."
    )


def describe_classes(indices: Sequence[int], total: int) -> str:
    """The classes that were measured, in words that do not claim more."""
    count = len(indices)
    if count == total:
        return f"all {total} classes" if total > 1 else "the only class"
    first = list(indices) == list(range(count))
    return f"the first {count} of {total} classes" if first else f"{count} of {total} classes"


def _show_grid(given: GivenImages, measured: ClassEffects | ClassChanges, said: Sequence[str]) -> dict[str, Any]:
    capsules, decoder = given.answers.capsules, given.decoder
    assert capsules is not None
    assert decoder is not None
    pose = capsules.pose[measured.example : measured.example + 1]
    changed = perturb_images(decoder, pose, torch.tensor([measured.label]))
    images = _make_small(changed[0, :MOST_ROWS])  # [D, S, C, H, W]
    rows = []
    for dimension, (row, words) in enumerate(zip(images, said, strict=False)):
        alt = f"Class {measured.name}, pose number {dimension + 1} changed in {len(STEPS)} steps: {words}"
        rows.append({"strip": make_sheet("", [row], alt, gap=1), "said": words, "clear": words != NOT_CLEAR})
    alt = f"Class {measured.name}: every pose number (rows) changed in {len(STEPS)} steps (columns)"
    picture = make_sheet(f"dimensions-{measured.label}", list(images), alt, gap=1)
    scale = max(1, min(2, choose_scale(images, 44)))
    return {"name": measured.name, "images": measured.images, "rows": rows, "scale": scale, "picture": picture}


def _make_small(images: Tensor) -> Tensor:
    side = max(images.shape[-2:])
    if side <= LARGEST_SIDE:
        return images
    size = [max(1, round(length * LARGEST_SIDE / side)) for length in images.shape[-2:]]
    return F.interpolate(images.flatten(0, 1), size, mode="area").reshape(*images.shape[:3], *size)


def _sum_up(measured: Sequence[ClassEffects], which: str) -> str:
    """The one sentence that the numbers allow."""
    sizes = [part.effects.effect.abs() * find_clear(part.effects) for part in measured]
    counts = [int((size > 0).any(dim=1).sum()) for size in sizes]
    best = max(range(len(measured)), key=lambda at: float(sizes[at].max()))
    strength = sizes[best].amax(dim=1)
    if not float(strength.max()) > 0:
        return f"No pose number has a clear effect; measured: {which}."
    dimension = int(strength.argmax())
    count = f"between {min(counts)} and {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    each = " in each class" if len(counts) > 1 else ""
    return (
        f"Of the {len(strength)} pose numbers {count} have a clear effect{each} (measured: {which}). The "
        f"strongest is number {dimension + 1} of class {measured[best].name}: "
        f"{_describe(measured[best].effects, dimension)}."
    )


def _make_table(measured: Sequence[ClassEffects]) -> Table:
    mean, clear = mean_effects(measured), count_clear_classes(measured)
    most = max(float(mean.max()), 1e-12)
    rows: list[list[TableCell | str]] = []
    for dimension, values in enumerate(mean.tolist()):
        cells = [TableCell(f"{value:.2f}", strength=0.85 * value / most) for value in values]
        rows.append([str(dimension + 1), *cells, f"{clear[dimension]}"])
    head = ["pose number", *measured[0].effects.names, "classes with a clear effect"]
    return Table("Mean effect of every pose number on every property", head, rows)


def _describe(effects: Effects, dimension: int) -> str:
    return describe_dimension(effects, dimension).replace("(-", "(−")


def list_numbers(measured: Sequence[ClassEffects]) -> dict[str, Any]:
    """Everything in the grids' captions and in the table."""
    return {
        "steps": list(STEPS),
        "properties": list(measured[0].effects.names),
        "mean_effect": mean_effects(measured).tolist(),
        "classes_with_a_clear_effect": count_clear_classes(measured),
        "classes": {
            part.name: {
                "images": part.images,
                "change": part.effects.change.tolist(),
                "effect": part.effects.effect.tolist(),
                "agreement": part.effects.agreement.tolist(),
                "in_words": [describe_dimension(part.effects, d) for d in range(len(part.effects.effect))],
            }
            for part in measured
        },
    }


def _sum_up_changes(measured: Sequence[ClassChanges], which: str) -> str:
    mean = torch.stack([part.change for part in measured]).mean(dim=0)
    most, strongest = int(mean.argmax()), format_number(float(mean.max()))
    if float(mean.max()) < HARDLY_SEEN:
        return (
            f"None of the {len(mean)} pose numbers changes the pictures so much that one would see it: the strongest, "
            f"number {most + 1}, by {strongest} per pixel on average (measured: {which})."
        )
    return (
        f"Number {most + 1} of the {len(mean)} pose numbers changes the pictures most, by {strongest} per pixel on "
        f"average, and number {int(mean.argmin()) + 1} least, by {format_number(float(mean.min()))} (measured: "
        f"{which}). Less than {HARDLY_SEEN:g} is hardly to be seen."
    )


def _make_change_table(measured: Sequence[ClassChanges]) -> Table:
    changes = torch.stack([part.change for part in measured], dim=1)  # [D, classes]
    most = max(float(changes.max()), 1e-12)
    rows: list[list[TableCell | str]] = [
        [str(number + 1), *(TableCell(f"{v:.3f}", strength=0.85 * v / most) for v in [*row, sum(row) / len(row)])]
        for number, row in enumerate(changes.tolist())
    ]
    head = ["pose number", *(part.name for part in measured), "mean"]
    return Table("Change of the pictures by every pose number", head, rows)


def _list_changes(measured: Sequence[ClassChanges], left_out: str) -> dict[str, Any]:
    return {
        "steps": list(STEPS),
        "left_out": left_out,
        "mean_change": torch.stack([part.change for part in measured]).mean(dim=0).tolist(),
        "classes": {part.name: {"images": part.images, "change_per_pixel": part.change.tolist()} for part in measured},
    }
