"""What a training writes of its validation beside a row per epoch: numbers, and at its end pictures and a table."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from torchcaps.training.figures import draw_measures, read_pixels

CURVES = {
    "balanced_accuracy": "val_balanced_accuracy",
    "macro_f1": "val_macro_f1",
    "calibration_error": "val_calibration_error",
}
"""Of the measures, those that a logger is told after every epoch, and their names there."""
MOST_ROWS = 200


def name_watched(measures: Mapping[str, Any]) -> dict[str, float]:
    """What a row of metrics.csv has of them."""
    key = "balanced_accuracy"
    return {CURVES[key]: measures[key]} if key in measures else {}


def log_numbers(logger: Any, measures: Mapping[str, Any], step: int) -> None:
    """Tell a logger of Lightning what is worth a curve."""
    named = {f"epoch/{name}": measures[key] for key, name in CURVES.items() if key in measures}
    logger.log_metrics(named, step)


def log_pictures(logger: Any, measures: Mapping[str, Any], step: int) -> None:
    """Give a logger of TensorBoard the classes as a table, and if matplotlib is there the pictures."""
    board: Any = getattr(logger, "experiment", None)
    if hasattr(board, "add_text"):
        board.add_text("validation/classes", write_table(measures), step)
    if hasattr(board, "add_image") and importlib.util.find_spec("matplotlib") is not None:
        for name, figure in draw_measures(measures).items():
            board.add_image(f"validation/{name}", read_pixels(figure), step, dataformats="HWC")


def write_table(measures: Mapping[str, Any]) -> str:
    """Precision, recall, F1 and counts of every class as Markdown."""
    rows = ["| class | precision | recall | F1 | items | answered |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, row in list(measures["per_class"].items())[:MOST_ROWS]:
        shares = " | ".join(f"{row[key]:.2%}" for key in ("precision", "recall", "f1"))
        rows.append(f"| {_escape(name)} | {shares} | {row['count']:,} | {row['answered']:,} |")
    return "\n".join(rows)


def _escape(name: str) -> str:
    """A name in which Markdown sees nothing."""
    return "".join(f"&#{ord(letter)};" if letter in "|<>&`*_[]()#!\\" else letter for letter in name)
