"""What happens to poses when objects are shifted, turned and scaled: strips, curves, and a probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis import pages
from torchcaps.analysis.charts import Curve, LineChart, line_legend, line_png, line_svg
from torchcaps.analysis.equivariance import TRANSFORMATIONS, UNCHANGED, Movement, movements, transformed
from torchcaps.analysis.explain.cases import shown_cases
from torchcaps.analysis.explain.subject import Subject, answers
from torchcaps.analysis.pages import Section, text
from torchcaps.analysis.pictures import Picture, enlargement, sheet

UNITS = {"shift right": "pixels to the right", "shift down": "pixels down", "rotate": "degrees, counter-clockwise",
         "scale": "factor"}  # fmt: skip


def section_of_movements(subject: Subject) -> Section:
    """A strip, curves and the probe for each kind of transformation."""
    count = len(subject.indices)
    found = movements(subject.model, subject.batch.inputs, subject.batch.labels, seed=subject.seed)
    right, wrong = shown_cases(subject)
    shown = (right or wrong)[0]
    body = pages.paragraph(
        f"Measured on {pages.counted(count, 'test image')}, shifted, turned and scaled by known amounts. If "
        "poses are equivariant, the pose of the class capsule changes smoothly with the amount while its activation "
        "stays. The probe is a linear map from pose to amount, of each class's own, fitted to one half of the images "
        "(its ridge penalty chosen there, too) and judged on the other: R² = 1 means that the amount can be read off "
        "exactly, 0 that the mean is as good a guess. Shuffled amounts show what chance gives."
    )
    if subject.objects > 1:
        body += pages.paragraph(
            "Of the objects in an image, the capsule of the first is watched: activation, change of the pose and probe "
            "are its own, while accuracy asks for all objects."
        )
    body += pages.paragraph(_in_words(found), "says") + _probe_table(found)
    pictures = []
    for movement in found:
        block, more = _block(subject, movement, shown)
        body += block
        pictures += more
    numbers = {"images": count, "kinds": [_numbers(movement) for movement in found]}
    return Section("movements", "Shifted, turned, scaled", body, pictures, numbers)


def _in_words(found: Sequence[Movement]) -> str:
    judged = [movement for movement in found if not math.isnan(movement.probe_r2)]
    if not judged:
        return "There are too few images of each class to fit a probe to some and judge it on others."
    best, worst = (pick(judged, key=lambda movement: movement.probe_r2) for pick in (max, min))
    words = f"Read off best is {text(best.kind)}, R² = {pages.number(best.probe_r2, 2)}"
    if best.probe_r2 <= 0:
        words = f"No amount is read off better than by guessing the mean: {words[0].lower()}{words[1:]}"
    elif worst is not best:
        words += f", and worst {text(worst.kind)}, R² = {pages.number(worst.probe_r2, 2)}"
    return f"{words}. {_fall_in_words(found)}"


def _fall_in_words(found: Sequence[Movement]) -> str:
    """How far accuracy falls, compared with the images as they are."""
    frail = min(found, key=lambda movement: float(movement.accuracy.min()))
    at = int(frail.accuracy.argmin())
    least, before = float(frail.accuracy[at]), _unchanged_accuracy(frail)
    if not least < before:
        return f"Accuracy, {pages.percent(before)} on the images as they are, does not fall for any of the amounts."
    return (
        f"Accuracy, {pages.percent(before)} on the images as they are, falls lowest, to {pages.percent(least)}, for "
        f"{text(frail.kind)} {_amount(frail.amounts[at])} ({UNITS[frail.kind]})."
    )


def _unchanged_accuracy(movement: Movement) -> float:
    return float(movement.accuracy[TRANSFORMATIONS[movement.kind].index(UNCHANGED[movement.kind])])


def _amount(value: Tensor | float) -> str:
    return f"{float(value):g}".replace("-", "−")


def _probe_table(found: Sequence[Movement]) -> str:
    rows = []
    for movement in found:
        lowest, highest = (_amount(movement.amounts[end]) for end in (0, -1))
        values = [pages.number(value, 2) for value in (movement.probe_r2, movement.shuffled_r2)]
        least = pages.percent(float(movement.accuracy.min()))
        rows.append([text(movement.kind), f"{lowest} … {highest}", *values, least])
    head = ["kind", "amounts", "probe R²", "R² shuffled", "least accuracy"]
    return pages.table(head, rows, "How well amounts can be read off the pose")


def _block(subject: Subject, movement: Movement, shown: int) -> tuple[str, list[Picture]]:
    name = movement.kind.replace(" ", "-")
    strip, rows = _strip(subject, movement, shown, f"movements-{name}-images")
    charts = _charts(movement)
    curves = "".join(pages.figure(line_svg(chart), line_legend(chart)) for chart in charts)
    scale = max(1, min(2, enlargement(subject.pictures, 56)))
    first, last = (_amount(movement.amounts[end]) for end in (0, -1))
    caption = f"From {first} to {last} ({UNITS[movement.kind]}): what the model is shown"
    whose = "the class capsule" if subject.objects == 1 else "the first object's capsule"
    caption += f", and below it what is drawn from {whose}." if rows > 1 else "."
    body = f"<h3>{text(movement.kind.capitalize())}</h3>"
    body += pages.figure(pages.image(strip, scale), caption) + f'<div class="charts">{curves}</div>'
    return body, [strip, line_png(f"movements-{name}", charts)]


def _strip(subject: Subject, movement: Movement, index: int, name: str) -> tuple[Picture, int]:
    """One image by all amounts, and below it what the capsule of its class draws."""
    image = subject.batch.inputs[index : index + 1]
    moved = torch.cat([transformed(image, movement.kind, amount) for amount in TRANSFORMATIONS[movement.kind]])
    rows = [_visible(moved, image)]
    if subject.decoder is not None:
        capsules = answers(subject.model, moved).capsules
        assert capsules is not None
        classes = subject.labels[index, :1].expand(len(moved))
        with torch.no_grad():
            rows.append(subject.decoder(capsules, classes))
    label = subject.spec.class_names[int(subject.labels[index, 0])]
    alt = f"An image of {label}, {movement.kind} by {', '.join(f'{a:g}' for a in movement.amounts.tolist())}"
    return sheet(name, rows, f"{alt}{'; below, its reconstructions' if len(rows) > 1 else ''}.", gap=2), len(rows)


def _visible(images: Tensor, original: Tensor) -> Tensor:
    """Standardised images in 0 … 1, all by the scale of the original; others as they are."""
    low, high = float(original.min()), float(original.max())
    if low >= 0 and high <= 1:
        return images
    return (images - low) / max(high - low, 1e-12)


def _charts(movement: Movement) -> list[LineChart]:
    amounts, unit = movement.amounts.tolist(), UNITS[movement.kind]
    change = [Curve("pose change", movement.pose_change.tolist())]
    both = [Curve("activation", movement.activation.tolist()), Curve("accuracy", movement.accuracy.tolist())]
    return [
        LineChart("Change of the pose, relative to its length", unit, amounts, change, 0.0),
        LineChart("Activation of the class, and accuracy", unit, amounts, both, 0.0, 1.0),
    ]


def _numbers(movement: Movement) -> dict[str, Any]:
    return {
        "kind": movement.kind,
        "unit": UNITS[movement.kind],
        "amounts": movement.amounts.tolist(),
        "pose_change": movement.pose_change.tolist(),
        "activation": movement.activation.tolist(),
        "accuracy": movement.accuracy.tolist(),
        "probe_r2": movement.probe_r2,
        "shuffled_r2": movement.shuffled_r2,
    }
