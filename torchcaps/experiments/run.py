"""Run an experiment: what has been trained and measured already is taken as it is, so a broken run goes on."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchcaps.experiments.base import Context, Experiment, Numbers, Setting, Trial
from torchcaps.experiments.trained import digest, run_folder, train_once, training_seconds
from torchcaps.io import write_json
from torchcaps.progress import bars, silent
from torchcaps.run import load
from torchcaps.version import __version__

Row = dict[str, str]
Say = Callable[[str], None]


def make_setting(
    experiment: Experiment,
    budget: str = "quick",
    seeds: tuple[int, ...] | None = None,
    data: str | None = None,
    data_dir: str | None = None,
    epochs: int | None = None,
) -> Setting:
    """What to run; ``epochs`` in place of the budget's."""
    chosen = experiment.budgets[budget]
    if epochs is not None:
        chosen = replace(chosen, epochs=epochs)
    return Setting(experiment.name, chosen, budget, seeds or chosen.seeds, data, data_dir)


def reproduce(
    experiment: Experiment,
    setting: Setting,
    folder: Path,
    say: Say | None = None,
    bar: bool = False,
    again: bool = False,
    note: Callable[[Trial], Row] | None = None,
) -> list[Row]:
    """Train and measure all variants; returns the rows of the CSV, one per variant and seed.

    Args:
        experiment: what to compare.
        setting: with how much.
        folder: where runs and measured numbers are kept, shared by all experiments.
        say: receives lines of text for the user.
        bar: show progress bars.
        again: measure again what has been measured, for instance after a change of the code; runs are kept.
        note: last columns of the row of a trial; not given: by which recipes and keys it was trained.
    """
    trials = experiment.trials(setting)
    measured: list[tuple[Trial, Numbers]] = []
    for number, trial in enumerate(trials, start=1):
        kept = _choose_kept_path(experiment.name, trial, setting, folder)
        if kept.is_file() and not again:
            numbers = _read_kept(kept)
        else:
            numbers = _measure(trial, setting, folder, bar)
            _keep(kept, numbers)
        if say:
            known = [c for c in experiment.columns if c.key in numbers]
            text = ", ".join(f"{column.heading} {numbers[column.key]:.{column.digits}f}" for column in known)
            say(f"{number}/{len(trials)} {trial.variant}, seed {trial.seed}: {text}")
        measured.append((trial, numbers))
    together = _measure_together(experiment, Context(setting, bars() if bar else silent), folder, again)
    note = note or _describe_training
    return [_make_row(experiment, setting, t, {**n, **together.get(t.variant, {})}) | note(t) for t, n in measured]


def _measure(trial: Trial, setting: Setting, folder: Path, bar: bool) -> Numbers:
    folders = {
        part: train_once(training, folder / "trained", setting.data_dir, bar)
        for part, training in trial.trainings.items()
    }
    seconds = {"training_seconds": sum(map(training_seconds, folders.values()))} if folders else {}
    runs = {part: load(place) for part, place in folders.items()}
    return {**trial.measure(runs, Context(setting, bars() if bar else silent)), **seconds}


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _choose_kept_path(experiment: str, trial: Trial, setting: Setting, folder: Path) -> Path:
    """Where the numbers of a trial are kept: they follow from its runs, the test images and the budget."""
    runs = [run_folder(training, folder).name for training in trial.trainings.values()]
    key = digest(__version__, runs, setting.budget, setting.data)
    return folder / "measured" / experiment / f"{_name(trial.variant)}-{trial.seed}-{key}.json"


def _keep(path: Path, numbers: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, numbers)


def _read_kept(path: Path) -> Any:
    """What :func:`_keep` wrote; what was no number is again none that can be counted with."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text, object_hook=lambda entry: {k: math.nan if v is None else v for k, v in entry.items()})


def _measure_together(experiment: Experiment, context: Context, folder: Path, again: bool) -> Mapping[str, Numbers]:
    if experiment.together is None:
        return {}
    key = digest(__version__, context.setting.budget, torch.get_num_threads())
    path = folder / "measured" / experiment.name / f"together-{key}.json"
    if again or not path.is_file():
        _keep(path, experiment.together(context))
    numbers: Mapping[str, Numbers] = _read_kept(path)
    return numbers


def name_output(experiment: Experiment, setting: Setting) -> str:
    """Of the files: a quick table is not overwritten by a full one, or by one of other images or epochs."""
    parts = [experiment.name]
    if setting.budget_name != "quick":
        parts.append(setting.budget_name)
    if setting.data:
        parts.append(setting.data)
    if setting.budget.epochs != experiment.budgets[setting.budget_name].epochs:
        parts.append(f"{setting.budget.epochs}-epochs")
    return "-".join(parts)


def _make_row(experiment: Experiment, setting: Setting, trial: Trial, numbers: Numbers) -> Row:
    shown = {c.key: f"{numbers[c.key]:.{c.digits}f}" if c.key in numbers else "" for c in experiment.columns}
    seconds = numbers.get("training_seconds")
    return {
        "variant": trial.variant,
        "seed": str(trial.seed),
        "budget": setting.budget_name,
        "epochs": str(setting.budget.epochs) if experiment.trains else "",
        "data": setting.data or "",
        **shown,
        "training_seconds": "" if seconds is None else f"{seconds:.0f}",
        "version": __version__,
    }


def _describe_training(trial: Trial) -> Row:
    return {"trained_by": "; ".join(map(str, trial.trainings.values()))}


def format_csv(rows: list[Row]) -> str:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
