"""What the numbers of a pose mean: one at a time is changed, and what is drawn is looked at and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.analysis.perturbation import (
    CLEAR_AGREEMENT,
    CLEAR_EFFECT,
    MOST_IMAGES,
    STEPS,
    ClassEffects,
    Effects,
    count_clear_classes,
    describe_dimension,
    find_clear,
    mean_effects,
    measure_class_effects,
    perturb_images,
)
from torchcaps.analysis.reconstruction import measure_drawing
from torchcaps.report.formats import format_number, format_signed
from torchcaps.report.given import GivenImages
from torchcaps.report.pictures import choose_scale, make_sheet
from torchcaps.report.rendering import Section, Table, TableCell

MOST_CLASSES, MOST_ROWS = 10, 32
"""Classes and pose numbers that are shown."""
LARGEST_SIDE = 40  # larger images are made smaller here: there are hundreds of them on the page
NOT_CLEAR = "no clear effect"


def show_dimensions(given: GivenImages) -> Section:
    """A grid of perturbed reconstructions for each class, and what was measured."""
    answers, decoder = given.answers, given.decoder
    assert decoder is not None  # a report asks before
    shown = answers.label_flags.any(dim=0).nonzero()[:, 0].tolist()[:MOST_CLASSES]
    every = [measure_class_effects(decoder, answers, index, given.facts.shift, given.seed) for index in shown]
    measured = [part for part in every if part is not None]
    grids = [_show_grid(given, part) for part in measured]
    errors = measure_drawing(decoder, answers)
    poor = None
    if errors.hardly_better:
        poor = [format_number(value, 4) for value in (float(errors.as_labelled.mean()), errors.mean_image)]
    which = describe_classes([part.label for part in measured], len(answers.class_names))
    content = {
        "steps": [format_signed(step) for step in (STEPS[0], 0.0, STEPS[-1])],
        "most_images": MOST_IMAGES,
        "clear_effect": f"{CLEAR_EFFECT:g}",
        "clear_agreement": f"{CLEAR_AGREEMENT:.0%}",
        "poor": poor,
        "summary": _sum_up(measured, which),
        "grids": grids,
        "which": which,
        "table": _make_table(measured),
    }
    pictures = [grid["picture"] for grid in grids]
    numbers = list_numbers(measured)
    return Section("dimensions", "What each pose number does", "dimensions.html", content, pictures, numbers)


def describe_classes(indices: Sequence[int], total: int) -> str:
    """The classes that were measured, in words that do not claim more."""
    count = len(indices)
    if count == total:
        return f"all {total} classes" if total > 1 else "the only class"
    first = list(indices) == list(range(count))
    return f"the first {count} of {total} classes" if first else f"{count} of {total} classes"


def _show_grid(given: GivenImages, measured: ClassEffects) -> dict[str, Any]:
    capsules, decoder = given.answers.capsules, given.decoder
    assert capsules is not None
    assert decoder is not None
    pose = capsules.pose[measured.example : measured.example + 1]
    changed = perturb_images(decoder, pose, torch.tensor([measured.label]))
    images = _make_small(changed[0, :MOST_ROWS])  # [D, S, C, H, W]
    rows = []
    for dimension, row in enumerate(images):
        said = _describe(measured.effects, dimension)
        alt = f"Class {measured.name}, pose number {dimension + 1} changed in {len(STEPS)} steps: {said}"
        rows.append({"strip": make_sheet("", [row], alt, gap=1), "said": said, "clear": said != NOT_CLEAR})
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
