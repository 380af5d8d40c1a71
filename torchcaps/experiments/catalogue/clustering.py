"""Routing as clustering: four algorithms on the same points (Su Jianlin 2018, §4; S. Cheng 2018)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from torchcaps.experiments.base import Budget, Column, Context, Experiment, Measure, Numbers, Setting, Trial, for_each
from torchcaps.experiments.clusters import Clustered, cluster_all, make_lengths, make_points, write_animation
from torchcaps.experiments.registry import register_experiment
from torchcaps.io import write_atomically, write_text
from torchcaps.run import Run
from torchcaps.version import __version__

CLUSTERS, ITERATIONS = 3, 20
NAMES = ("soft k-means", "Gaussian mixture", "dynamic routing", "optimised routing")


def _cluster(seed: int) -> list[Clustered]:
    return cluster_all(*make_points(seed, CLUSTERS), CLUSTERS, ITERATIONS, seed)


def _measure(name: str, seed: int) -> Measure:
    def measure(_: Mapping[str, Run], __: Context) -> Numbers:
        at = NAMES.index(name)
        points, lengths = _cluster(seed)[at], cluster_all(*make_lengths(seed), CLUSTERS, ITERATIONS, seed)[at]
        return {
            "purity_percent": 100 * points.purity,
            "rises": points.rises,
            "lengths_purity_percent": 100 * lengths.purity,
            "lengths_rises": lengths.rises,
        }

    return measure


def _trials(setting: Setting) -> list[Trial]:
    names = for_each(dict.fromkeys(NAMES), setting.seeds)
    return [Trial(name, seed, {}, _measure(name, seed)) for name, _, seed in names]


def _extras(context: Context, folder: Path) -> list[Path]:
    """The objective of every iteration, and the centres moving."""
    seed = context.setting.seeds[0]
    results = _cluster(seed)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["seed", "iteration", *(result.name for result in results), "version", "command"])
    command = "torchcaps reproduce clustering"
    for at, values in enumerate(zip(*(result.objective.tolist() for result in results), strict=True)):
        writer.writerow([seed, at, *(f"{value:.4f}" for value in values), __version__, command])
    table, film = folder / "clustering-objectives.csv", folder / "clustering.gif"
    write_text(table, text.getvalue())
    tick = context.progress("drawing", ITERATIONS + 1)
    points, _ = make_points(seed, CLUSTERS)
    write_atomically(film, lambda path: write_animation(path, points, results, tick))
    return [table, film]


EXPERIMENT = Experiment(
    name="clustering",
    summary="soft k-means, Gaussian mixture, dynamic and optimised routing on the same points",
    title="Routing as clustering",
    question=(
        "Three clusters of points in the plane, each in a direction of its own with scattered points between them, and "
        "three of which two lie in the same direction. Purity: the share of points that lie with a majority of their "
        f"kind after {ITERATIONS} iterations; rises: in how many iterations the algorithm's own objective rose. All "
        "start from the same centres, and every point votes for all parents alike."
    ),
    credit="After Su Jianlin 2018 and S. Cheng 2018, who derive routing as clustering. There are no published numbers.",
    columns=(
        Column("purity_percent", "purity, %", digits=1),
        Column("rises", "rises", digits=0),
        Column("lengths_purity_percent", "purity, same direction, %", digits=1),
        Column("lengths_rises", "rises, same direction", digits=0),
    ),
    budgets={"quick": Budget(), "full": Budget(seeds=tuple(range(10)))},
    trials=_trials,
    extras=_extras,
    trains=False,
)
register_experiment(EXPERIMENT)
