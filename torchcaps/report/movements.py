"""What happens to poses when objects are shifted, turned and scaled: strips, curves, and a probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis.answers import answer_batch
from torchcaps.analysis.equivariance import TRANSFORMATIONS, UNCHANGED, Movement, measure_movements, transform
from torchcaps.analysis.reconstruction import list_drawn
from torchcaps.report.charts import Curve, LineChart, draw_lines
from torchcaps.report.formats import count_nouns, format_number, format_percent
from torchcaps.report.given import GivenImages, describe_answer
from torchcaps.report.pictures import Picture, choose_scale, join_pictures, make_sheet
from torchcaps.report.rendering import Section, Table

UNITS = {"shift right": "pixels to the right", "shift down": "pixels down", "rotate": "degrees, counter-clockwise",
         "scale": "factor"}  # fmt: skip


def show_movements(given: GivenImages) -> Section:
    """A strip, curves and the probe for each kind of transformation."""
    answers = given.answers
    measured = measure_movements(given.model, answers.batch.inputs, answers.batch.labels, seed=given.seed)
    right, wrong = given.cases()
    shown = (right or wrong)[0]
    blocks = [_show_movement(given, movement, shown) for movement in measured]
    content = {
        "images": count_nouns(len(answers.indices), "test image"),
        "objects": answers.objects,
        "multi_label": answers.multi_label,
        "on_black": answers.ground.colour is not None and not bool(answers.ground.colour.any()),
        "summary": describe_movements(measured),
        "table": _make_table(measured),
        "blocks": blocks,
    }
    pictures = [picture for block in blocks for picture in (block["strip"], block["file"])]
    numbers = {"images": len(answers.indices), "kinds": [_list_numbers(movement) for movement in measured]}
    return Section("movements", "Shifted, turned, scaled", "movements.html", content, pictures, numbers)


def describe_movements(measured: Sequence[Movement]) -> str:
    """What is read off best, and how far accuracy falls."""
    judged = [movement for movement in measured if not math.isnan(movement.probe_r2)]
    if not judged:
        return "There are too few images of each class to fit a probe to some and judge it on others."
    best, worst = (pick(judged, key=lambda movement: movement.probe_r2) for pick in (max, min))
    words = f"Read off best is {best.kind}, R² = {format_number(best.probe_r2, 2)}"
    if best.probe_r2 <= 0:
        words = f"No amount is read off better than by guessing the mean: {words[0].lower()}{words[1:]}"
    elif worst is not best:
        words += f", and worst {worst.kind}, R² = {format_number(worst.probe_r2, 2)}"
    return f"{words}. {_describe_fall(measured)}"


def _describe_fall(measured: Sequence[Movement]) -> str:
    """How far accuracy falls, compared with the images as they are."""
    frail = min(measured, key=lambda movement: float(movement.accuracy.min()))
    at = int(frail.accuracy.argmin())
    unchanged = TRANSFORMATIONS[frail.kind].index(UNCHANGED[frail.kind])
    least, before = float(frail.accuracy[at]), float(frail.accuracy[unchanged])
    if not least < before:
        return f"Accuracy, {format_percent(before)} on the images as they are, does not fall for any of the amounts."
    return (
        f"Accuracy, {format_percent(before)} on the images as they are, falls lowest, to {format_percent(least)}, for "
        f"{frail.kind} {_format_amount(frail.amounts[at])} ({UNITS[frail.kind]})."
    )


def _format_amount(value: Tensor | float) -> str:
    return f"{float(value):g}".replace("-", "−")


def _make_table(measured: Sequence[Movement]) -> Table:
    rows = []
    for movement in measured:
        lowest, highest = (_format_amount(movement.amounts[end]) for end in (0, -1))
        values = [format_number(value, 2) for value in (movement.probe_r2, movement.shuffled_r2)]
        least = format_percent(float(movement.accuracy.min()))
        rows.append([movement.kind, f"{lowest} … {highest}", *values, least])
    head = ["kind", "amounts", "probe R²", "R² shuffled", "least accuracy"]
    return Table("How well amounts can be read off the pose", head, rows)


def _show_movement(given: GivenImages, movement: Movement, shown: int) -> dict[str, Any]:
    name = f"movements-{movement.kind.replace(' ', '-')}"
    strip, rows = _make_strip(given, movement, shown, f"{name}-images")
    charts = [draw_lines(chart) for chart in _make_charts(movement)]
    first, last = (_format_amount(movement.amounts[end]) for end in (0, -1))
    caption = f"From {first} to {last} ({UNITS[movement.kind]}): what the model is shown"
    several = "the capsules of its labels" if given.answers.multi_label else "the class capsule"
    whose = several if given.answers.objects == 1 else "the first object's capsule"
    caption += f", and below it what is drawn from {whose}." if rows > 1 else "."
    return {
        "title": movement.kind.capitalize(),
        "strip": strip,
        "scale": max(1, min(2, choose_scale(given.answers.pictures, 56))),
        "caption": caption,
        "charts": [chart.svg for chart in charts],
        "file": join_pictures(name, [chart.png for chart in charts], " ".join(chart.png.alt for chart in charts)),
    }


def _make_strip(given: GivenImages, movement: Movement, index: int, name: str) -> tuple[Picture, int]:
    """One image by all amounts, and below it what the capsule of its class draws."""
    answers, decoder = given.answers, given.decoder
    image = answers.batch.inputs[index : index + 1]
    moved = torch.cat([transform(image, movement.kind, amount) for amount in TRANSFORMATIONS[movement.kind]])
    rows = [_make_visible(moved, image)]
    if decoder is not None:
        capsules = answer_batch(given.model, moved).capsules
        assert capsules is not None
        with torch.no_grad():
            drawn = list_drawn(answers)[1][index]  # a class, or flags
            rows.append(decoder(capsules, drawn.expand(len(moved), *drawn.shape)))
    label, _, _ = describe_answer(answers, index)
    alt = f"An image of {label}, {movement.kind} by {', '.join(f'{a:g}' for a in movement.amounts.tolist())}"
    return make_sheet(name, rows, f"{alt}{'; below, its reconstructions' if len(rows) > 1 else ''}.", gap=2), len(rows)


def _make_visible(images: Tensor, original: Tensor) -> Tensor:
    """Standardised images in 0 … 1, all by the scale of the original; others as they are."""
    low, high = float(original.min()), float(original.max())
    if low >= 0 and high <= 1:
        return images
    return (images - low) / max(high - low, 1e-12)


def _make_charts(movement: Movement) -> list[LineChart]:
    amounts, unit = movement.amounts.tolist(), UNITS[movement.kind]
    change = [Curve("pose change", movement.pose_change.tolist())]
    both = [Curve("activation", movement.activation.tolist()), Curve("accuracy", movement.accuracy.tolist())]
    return [
        LineChart("Change of the pose, relative to its length", unit, amounts, change, 0.0),
        LineChart("Activation of the class, and accuracy", unit, amounts, both, 0.0, 1.0),
    ]


def _list_numbers(movement: Movement) -> dict[str, Any]:
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
