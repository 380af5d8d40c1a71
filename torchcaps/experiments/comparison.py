"""Models beside each other on one's own data: the same splits, epochs and seeds for each, and one table."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchcaps.errors import FileError
from torchcaps.experiments.base import Budget, Column, Context, Experiment, Numbers, Setting, Training, Trial, for_each
from torchcaps.experiments.contenders import ComparisonPlan, plan_comparison
from torchcaps.experiments.differences import Difference, describe_difference, measure_differences
from torchcaps.experiments.run import Row, format_csv, reproduce
from torchcaps.experiments.tables import list_headings, list_lines, list_variants, measure_cell
from torchcaps.experiments.trained import run_folder, seconds_per_epoch
from torchcaps.io import make_printable, read_json, write_json, write_text
from torchcaps.models.cnn import parameter_count
from torchcaps.run import Run
from torchcaps.training.errors import RunError
from torchcaps.training.runs import is_run_folder

Say = Callable[[str], None]
NAME = "compare-models"
TABLE, ROWS, NUMBERS = "comparison.md", "comparison.csv", "comparison.json"
HOME = Path("runs") / "compare"
"""Where comparisons are kept unless another folder is named."""

PARAMETERS = Column("parameters", "parameters", digits=0, once=True)
ACCURACY = Column("accuracy_percent", "test accuracy, %")
BALANCED = Column("balanced_accuracy_percent", "balanced accuracy, %")
F1 = Column("f1_percent", "F1, %")
SECONDS = Column("seconds_per_epoch", "s/epoch", digits=1)


@dataclass(frozen=True)
class Comparison:
    """What came out.

    Args:
        folder: where table, numbers and runs are.
        plan: what was compared, and on what.
        columns: of the table.
        rows: one per model and seed.
        differences: of the best model and each other one.
    """

    folder: Path
    plan: ComparisonPlan
    columns: tuple[Column, ...]
    rows: list[Row] = field(repr=False)
    differences: list[Difference]

    @property
    def headings(self) -> list[str]:
        """Of the table."""
        return ["model", *list_headings(_make_experiment(self.columns), self.rows)[1:]]

    @property
    def lines(self) -> list[list[str]]:
        """The cells of the table."""
        return list_lines(_make_experiment(self.columns), self.rows)

    @property
    def conclusion(self) -> str:
        """What the numbers say, and no more."""
        plan = self.plan
        said = [describe_difference(one, plan.tested, plan.kind, len(plan.seeds)) for one in self.differences]
        return " ".join(said) or "One model alone is compared with nothing."

    @property
    def csv(self) -> str:
        """A line per model and seed."""
        left_out = ("variant", "budget", "trained_by")
        return format_csv([{"model": row["variant"], **_without(row, left_out)} for row in self.rows])

    @property
    def markdown(self) -> str:
        """The table, how it was measured, and what it says."""
        table = [self.headings, ["---"] * len(self.headings), *self.lines]
        lines = "\n".join(f"| {' | '.join(line)} |" for line in table)
        return f"# Models on {self.plan.title}\n\n{self.plan.describe()}\n\n{lines}\n\n{self.conclusion}\n"

    def to_numbers(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        table = {
            model: {
                column.key: cell._asdict()
                for column in self.columns
                if (cell := measure_cell(self.rows, model, column)) is not None
            }
            for model in list_variants(self.rows)
        }
        return {
            **self.plan.to_numbers(),
            "table": table,
            "differences": [
                {
                    **one._asdict(),
                    "more_than_the_seeds": one.beyond_seeds,
                    "more_than_the_test_set": one.beyond_test_set,
                }
                for one in self.differences
            ],
            "conclusion": self.conclusion,
            "runs": [{"model": row["variant"], "seed": int(row["seed"]), "run": row["run"]} for row in self.rows],
        }

    def __str__(self) -> str:
        return self.markdown


def compare_models(
    data: str | os.PathLike[str],
    models: Sequence[str] | None = None,
    *,
    seeds: int = 3,
    epochs: int | None = None,
    recipe: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    say: Say | None = None,
    bar: bool = False,
) -> Comparison:
    """Train models on the same data, each with several seeds, and measure them on the same test items.

    Finished trainings and numbers are kept in the folder: the same call goes on where one was broken off, and a call
    with more seeds or models adds them. Nothing is chosen on test data. Of one's own data that has changed since, all
    is trained anew.

    Args:
        data: a data set's name, or the path of a folder of class folders, an .npz, a .csv, .tsv or .jsonl.
        models: names; not given: the recipe's capsule network and a network without capsules of about its size.
        seeds: how many, 0, 1, 2, …; each decides weights, order, augmentation and what is kept aside to validate.
        epochs: of every training; not given: the recipe's.
        recipe: name or path; not given: ``quickstart`` for images, ``text`` for texts.
        overrides: of the recipe, by key, for all models; ``model.options.…`` for those that have the option.
        folder: where to keep it; not given: ``runs/compare/NAME-n``, the one that is there for the same data.
        say: receives lines of text for the user.
        bar: show progress bars.
    """
    plan = plan_comparison(data, models, seeds, epochs, recipe, overrides or {}, say)
    place = _choose_folder(plan, folder)
    made = [one for one in (place, *place.parents) if not one.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not (place / NUMBERS).is_file():
            write_json(place / NUMBERS, plan.to_numbers())
    except OSError as error:
        raise RunError(f"the folder {place} cannot be made or written to: {error.strerror}.", "output") from error
    if say:
        say(f"{plan.describe()} Kept in {place}: after Ctrl-C the same call goes on.")
    columns = _choose_columns(plan)
    experiment, setting = _make_experiment(columns, plan), _make_setting(plan)
    try:
        rows = reproduce(experiment, setting, place, say, bar, note=lambda trial: _note(trial, place))
    except Exception:
        if place in made and not any((place / "trained").glob("*/*")):  # not even the first training could begin
            shutil.rmtree(place, ignore_errors=True)
            for parent in made[1:]:
                parent.rmdir()
        raise
    accuracies = {
        model: [float(row[ACCURACY.key]) for row in rows if row["variant"] == model] for model in list_variants(rows)
    }
    result = Comparison(place, plan, columns, rows, measure_differences(accuracies, plan.tested))
    write_text(place / TABLE, result.markdown)
    write_text(place / ROWS, result.csv)
    write_json(place / NUMBERS, result.to_numbers())
    return result


def _choose_columns(plan: ComparisonPlan) -> tuple[Column, ...]:
    measure = F1 if plan.multi_label else BALANCED
    return (PARAMETERS, ACCURACY, *(() if plan.objects > 1 else (measure,)), SECONDS)


def _make_experiment(columns: Sequence[Column], plan: ComparisonPlan | None = None) -> Experiment:
    """The comparison as :func:`~torchcaps.experiments.run.reproduce` runs it."""

    def list_trials(_: Setting) -> list[Trial]:
        if plan is None:
            return []
        return [
            Trial(name, seed, {"run": keys_of(seed)}, _measure)
            for name, keys_of, seed in for_each({name: _train_as(plan, name) for name in plan.models}, plan.seeds)
        ]

    summary = "models beside each other on one's own data"
    return Experiment(NAME, summary, "Models beside each other", "", "", columns, {"own": Budget()}, list_trials)


def _train_as(plan: ComparisonPlan, model: str) -> Callable[[int], Training]:
    return lambda seed: Training(
        plan.recipe,
        {**plan.models[model].keys, "training.seed": seed},
        f"{model}-seed-{seed}",
        plan.fingerprint,
    )


def _make_setting(plan: ComparisonPlan) -> Setting:
    return Setting(NAME, Budget(epochs=plan.epochs, seeds=plan.seeds), "own", plan.seeds, plan.title, plan.data_dir)


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    """The last or validated weights of a run on the test items, which nothing was chosen by."""
    run = runs["run"]
    assert run.folder is not None
    result = run.evaluate(progress=context.progress)
    numbers = {
        "parameters": float(parameter_count(run.model)),
        ACCURACY.key: 100 * result["accuracy"],
        SECONDS.key: seconds_per_epoch(run.folder),
    }
    if "confusion_matrix" in result:
        recalls = [row["recall"] for row in result["per_class"].values() if row["count"]]
        numbers[BALANCED.key] = 100 * sum(recalls) / len(recalls)
    if "f1" in result:
        numbers[F1.key] = 100 * result["f1"]
    return numbers


def _note(trial: Trial, place: Path) -> Row:
    return {"run": str(run_folder(trial.trainings["run"], place / "trained"))}


def _choose_folder(plan: ComparisonPlan, wanted: str | os.PathLike[str] | None) -> Path:
    """The folder that is wanted, or the first of its name that is free or compares the same data."""
    if wanted is not None:
        folder = Path(wanted)
        if not os.fspath(wanted).strip():
            raise RunError("output is empty: give a folder, or leave it out.", "output")
        if is_run_folder(folder):
            raise RunError(f"{folder} is the folder of a run: choose another output.", "output")
        compared = _read_data(folder)
        if compared not in (None, plan.data):
            raise RunError(f"{folder} holds a comparison on {compared}: choose another output.", "output")
        return folder
    name = re.sub(r"[^\w.-]+", "-", Path(plan.data).stem).strip(".-") or "data"
    number = 1
    while True:
        folder = HOME / f"{name}-{number}"
        if not folder.exists() or _read_data(folder) == plan.data:
            return folder
        number += 1


def _read_data(folder: Path) -> str | None:
    """The data that a folder compares models on; None if it holds no comparison."""
    try:
        kept = read_json(folder / NUMBERS)["data"]
    except (FileError, KeyError, TypeError):
        return None
    return make_printable(kept) if isinstance(kept, str) else None


def _without(row: Row, keys: Sequence[str]) -> Row:
    return {key: value for key, value in row.items() if key not in keys}
