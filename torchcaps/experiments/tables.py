"""Rows of measurements as a table beside the published numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from torchcaps.experiments.base import Column, Experiment
from torchcaps.experiments.run import Row


class Cell(NamedTuple):
    """A number over seeds; the deviation is None for one seed, or where it is measured once."""

    mean: float
    deviation: float | None
    seeds: int


def list_variants(rows: Sequence[Row]) -> list[str]:
    """In the order in which they were run."""
    return list(dict.fromkeys(row["variant"] for row in rows))


def measure_cell(rows: Sequence[Row], variant: str, column: Column) -> Cell | None:
    """Mean and sample standard deviation of a variant; None if it was not measured."""
    values = [float(row[column.key]) for row in rows if row["variant"] == variant and row[column.key]]
    if not values:
        return None
    several = len(values) > 1 and not column.once
    return Cell(statistics.mean(values), statistics.stdev(values) if several else None, len(values))


def format_cell(measured: Cell | None, column: Column) -> str:
    """As in the table."""
    if measured is None:
        return "–"
    mean = f"{measured.mean:,.{column.digits}f}"
    return mean if measured.deviation is None else f"{mean} ± {measured.deviation:.{column.digits}f}"


def has_published(column: Column, rows: Sequence[Row]) -> bool:
    """Whether there are published numbers, which are of the experiment's own images."""
    return bool(column.published) and not rows[0]["data"]


def list_headings(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Of the table's columns; a published column follows the measured one."""
    texts = [""]
    for column in experiment.columns:
        texts += [column.heading, "published"] if has_published(column, rows) else [column.heading]
    return texts


def list_lines(experiment: Experiment, rows: Sequence[Row]) -> list[list[str]]:
    """The table's cells."""
    lines = []
    for variant in list_variants(rows):
        line = [variant]
        for column in experiment.columns:
            line.append(format_cell(measure_cell(rows, variant, column), column))
            if has_published(column, rows):
                line.append(column.published.get(variant, "–"))
        lines.append(line)
    return lines


def markdown(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The table with what it means."""
    head = list_headings(experiment, rows)
    table = [head, ["---"] * len(head), *list_lines(experiment, rows)]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in table)
    return f"{experiment.question} {describe_measurement(rows)}\n\n{lines}\n\n{experiment.credit}\n"


def describe_measurement(rows: Sequence[Row]) -> str:
    """Over how many seeds, with how much, and on which images if not on the experiment's own."""
    seeds = len({row["seed"] for row in rows})
    spread = f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed."
    budget, epochs, data = (rows[0][key] for key in ("budget", "epochs", "data"))
    trained = f", {epochs} epoch{'' if epochs == '1' else 's'}" if epochs else ""
    images = f" With the images of {data} in place of the experiment's own." if data else ""
    return f"{spread} Budget: {budget}{trained}.{images}"
