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


def variants(rows: Sequence[Row]) -> list[str]:
    """In the order in which they were run."""
    return list(dict.fromkeys(row["variant"] for row in rows))


def cell(rows: Sequence[Row], variant: str, column: Column) -> Cell | None:
    """Mean and sample standard deviation of a variant; None if it was not measured."""
    values = [float(row[column.key]) for row in rows if row["variant"] == variant and row[column.key]]
    if not values:
        return None
    several = len(values) > 1 and not column.once
    return Cell(statistics.mean(values), statistics.stdev(values) if several else None, len(values))


def cell_text(found: Cell | None, column: Column) -> str:
    """As in the table."""
    if found is None:
        return "–"
    mean = f"{found.mean:,.{column.digits}f}"
    return mean if found.deviation is None else f"{mean} ± {found.deviation:.{column.digits}f}"


def headings(experiment: Experiment) -> list[str]:
    """Of the table's columns; a published column follows the measured one."""
    found = [""]
    for column in experiment.columns:
        found += [column.heading, "published"] if column.published else [column.heading]
    return found


def body(experiment: Experiment, rows: Sequence[Row]) -> list[list[str]]:
    """The table's cells."""
    lines = []
    for variant in variants(rows):
        line = [variant]
        for column in experiment.columns:
            line.append(cell_text(cell(rows, variant, column), column))
            if column.published:
                line.append(column.published.get(variant, "–"))
        lines.append(line)
    return lines


def markdown(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The table with what it means."""
    seeds = len({row["seed"] for row in rows})
    spread = f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else " One seed."
    table = [headings(experiment), ["---"] * len(headings(experiment)), *body(experiment, rows)]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in table)
    budget = rows[0]["budget"]
    return f"{experiment.question}{spread} Budget: {budget}.\n\n{lines}\n\n{experiment.credit}\n"
