"""``torchcaps reproduce``."""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.commands.base import Command, CommandError, say, say_json, user_errors

if TYPE_CHECKING:
    from torchcaps.experiments.base import Experiment, Setting, Trial
    from torchcaps.experiments.run import Row

EXAMPLES = """  torchcaps reproduce --list
  torchcaps reproduce clustering
  torchcaps reproduce routings --data-dir DIR                quick: a training takes about a minute on two cores
  torchcaps reproduce squashes --data mnist-mini --epochs 3  with the digits that come with the package
  torchcaps reproduce routing-reconstruction --budget full   as the paper did; days on a CPU
What has been trained and measured is kept: the same command goes on after Ctrl-C, and experiments share their runs."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="an experiment; see --list")
    parser.add_argument("--list", action="store_true", help="list the experiments")
    parser.add_argument(
        "--budget", choices=("quick", "full"), default="quick", help="how much to train (default: quick)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", help="default: those of the budget, 0 1 2")
    parser.add_argument("--data", metavar="NAME", help="other images: mnist, mnist-mini or fashion-mnist")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets")
    parser.add_argument("--epochs", type=int, metavar="N", help="in place of the budget's")
    parser.add_argument("--output", default="runs/reproduce", metavar="DIR", help="default: runs/reproduce")
    parser.add_argument("--again", action="store_true", help="measure again what has been measured; runs are kept")
    parser.add_argument("--json", action="store_true", help="print the measured numbers as JSON")


def _run(arguments: argparse.Namespace) -> int:
    from torchcaps.experiments import list_experiments

    if arguments.list or arguments.name is None:
        if arguments.name is None and not arguments.list:
            raise CommandError(f"which experiment? One of {', '.join(list_experiments())}.")
        for name, text in list_experiments().items():
            say(f"{name:<24}{text}")
        return 0
    with user_errors():
        return _reproduce(arguments)


def _reproduce(arguments: argparse.Namespace) -> int:
    import torchcaps.experiments.plots  # noqa: F401 - first of all: without matplotlib nothing is trained in vain
    from torchcaps.experiments import get_experiment
    from torchcaps.io import make_folders

    try:
        experiment = get_experiment(arguments.name)
    except ValueError as error:
        raise CommandError(error) from error
    setting = _make_setting(arguments, experiment)
    with make_folders(Path(arguments.output)) as folder:
        return _run_experiment(arguments, experiment, setting, folder)


def _run_experiment(arguments: argparse.Namespace, experiment: Experiment, setting: Setting, folder: Path) -> int:
    from torchcaps.experiments.base import Context
    from torchcaps.experiments.plots import plot
    from torchcaps.experiments.run import name_output, reproduce
    from torchcaps.progress import bars
    from torchcaps.training.callbacks import TrainingStopped
    from torchcaps.training.checkpoints import Interrupted

    try:
        tell = None if arguments.json else say
        note = functools.partial(spell_setting, experiment, setting)
        rows = reproduce(experiment, setting, folder, tell, sys.stderr.isatty(), arguments.again, note)
    except (Interrupted, KeyboardInterrupt) as stop:
        raise CommandError("stopped; the same command goes on from here.", code=130) from stop
    except TrainingStopped as stop:
        raise CommandError(stop) from stop
    files = _write(experiment, rows, folder / name_output(experiment, setting))
    plot(experiment, rows, files[-1])
    if experiment.extras is not None:
        files += experiment.extras(Context(setting, bars()), folder)
    if arguments.json:
        say_json(_list_numbers(experiment, rows))
    else:
        _show(experiment, rows)
        say(f"Written: {', '.join(map(str, files))}")
    return 0


def _make_setting(arguments: argparse.Namespace, experiment: Experiment) -> Setting:
    from torchcaps.data.synthetic.composed import DIGIT_SETS
    from torchcaps.experiments.run import make_setting

    if not experiment.trains and (arguments.data or arguments.data_dir or arguments.epochs):
        raise CommandError(f"{experiment.name} trains nothing: leave out --data, --data-dir and --epochs.")
    if arguments.data is not None and arguments.data not in DIGIT_SETS:
        raise CommandError(f"--data must be one of {', '.join(DIGIT_SETS)}; got {arguments.data!r}.")
    if arguments.epochs is not None and arguments.epochs < 1:
        raise CommandError(f"--epochs must be at least 1, got {arguments.epochs}.")
    seeds = tuple(dict.fromkeys(arguments.seeds or ()))
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise CommandError(f"--seeds are numbers from 0 to 2^31, got {' '.join(map(str, seeds))}.")
    return make_setting(experiment, arguments.budget, seeds, arguments.data, arguments.data_dir, arguments.epochs)


def spell_setting(experiment: Experiment, setting: Setting, trial: Trial) -> Row:
    """What a user would type for the row of a trial, and for each of its trainings."""
    from torchcaps.experiments.base import key_text

    words = ["torchcaps", "reproduce", experiment.name, "--budget", setting.budget_name, "--seeds", str(trial.seed)]
    if setting.data:
        words += ["--data", setting.data]
    if experiment.budgets[setting.budget_name].epochs != setting.budget.epochs:
        words += ["--epochs", str(setting.budget.epochs)]
    trainings = [
        ["torchcaps", "train", one.recipe, *(f"--{key}={key_text(value)}" for key, value in one.keys.items())]
        for one in trial.trainings.values()
    ]
    return {"command": shlex.join(words), "trained_by": "; ".join(map(shlex.join, trainings))}


def _write(experiment: Experiment, rows: list[Row], name: Path) -> list[Path]:
    """Table and CSV; returns also where the picture belongs."""
    from torchcaps.experiments.run import format_csv
    from torchcaps.experiments.tables import markdown
    from torchcaps.io import write_text

    files = [name.parent / f"{name.name}.{ending}" for ending in ("md", "csv", "png")]
    write_text(files[0], f"# {experiment.title}\n\n{markdown(experiment, rows)}")
    write_text(files[1], format_csv(rows))
    return files


def _show(experiment: Experiment, rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    from torchcaps.experiments.tables import describe_measurement, list_headings, list_lines

    table = Table(title=experiment.title)
    for number, heading in enumerate(list_headings(experiment, rows)):
        table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
    for line in list_lines(experiment, rows):
        table.add_row(*line)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(f"{experiment.question} {describe_measurement(rows)}\n{experiment.credit}", soft_wrap=True)


def _list_numbers(experiment: Experiment, rows: list[Row]) -> dict[str, Any]:
    from torchcaps.experiments.tables import list_variants, measure_cell

    def number(variant: str, key: int) -> dict[str, Any]:
        column = experiment.columns[key]
        measured = measure_cell(rows, variant, column)
        return {**(measured._asdict() if measured else {}), "published": column.published.get(variant)}

    table = {
        variant: {column.key: number(variant, index) for index, column in enumerate(experiment.columns)}
        for variant in list_variants(rows)
    }
    return {"experiment": experiment.name, "variants": table, "rows": rows}


REPRODUCE = Command("run an experiment of the papers and print its table", EXAMPLES, _add_arguments, _run)
