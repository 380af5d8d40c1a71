"""A table as a picture: one panel per measured number, a dot with its deviation per variant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from torchcaps.experiments.base import Column, Experiment
from torchcaps.experiments.run import Row
from torchcaps.experiments.tables import has_published, list_variants, measure_cell
from torchcaps.io import write_atomically

MEASURED, PUBLISHED = "#0969da", "#bc4c00"


def read_published(column: Column, variant: str) -> float | None:
    """The number in a published cell such as "0.25 ± 0.005"."""
    match = re.match(r"[0-9.]+", column.published.get(variant, ""))
    return float(match[0]) if match else None


def plot(experiment: Experiment, rows: Sequence[Row], path: Path) -> None:
    """Write the picture."""
    names, columns = list_variants(rows), [column for column in experiment.columns if column.drawn]
    figure = Figure(figsize=(2.2 + 3.1 * len(columns), 1.3 + 0.34 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for panel, column in zip(panels, columns, strict=True):
        for place, name in enumerate(names):
            measured = measure_cell(rows, name, column)
            known = read_published(column, name) if has_published(column, rows) else None
            if measured is not None:
                panel.errorbar(
                    measured.mean, place, xerr=measured.deviation or 0, fmt="o", color=MEASURED, capsize=3, markersize=6
                )
            if known is not None:
                panel.plot(known, place, "D", color=PUBLISHED, markersize=5, fillstyle="none")
        panel.set_title(column.heading, fontsize=10)
        panel.grid(axis="x", alpha=0.3)
        panel.margins(x=0.12)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    if any(has_published(column, rows) for column in columns):
        here = Line2D([], [], marker="o", linestyle="", color=MEASURED, label="measured here")
        published = Line2D([], [], marker="D", linestyle="", color=PUBLISHED, fillstyle="none", label="published")
        figure.legend(handles=[here, published], loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=110))
