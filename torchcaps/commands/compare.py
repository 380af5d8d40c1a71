"""``torchcaps compare-models``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchcaps.commands.base import Command, CommandError, say, say_json, user_errors
from torchcaps.commands.keys import parse_with_keys, spell_keys

if TYPE_CHECKING:
    from torchcaps.experiments.comparison import Comparison

EXAMPLES = """  torchcaps compare-models --data photos/        a folder per class: capsules beside a CNN of equal size
  torchcaps compare-models --data reviews.csv    texts: the columns text and label
  torchcaps compare-models --data photos/ --models capsnet-small capsnet-deep cnn-small --seeds 5 --epochs 10
  torchcaps compare-models --data mnist-mini --training.batch_size 32 --model.options.routing em
  torchcaps compare-models --data photos/ --csv > numbers.csv
Every key of a recipe can be given (torchcaps train --keys). An option of a model goes to the models that have it.
What is finished is kept: the same command goes on after Ctrl-C, and one with more seeds or models adds them.
Every training is a run folder: torchcaps explain runs/compare/photos-1/trained/RUN"""


def _add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models", nargs="+", metavar="NAME",
        help="default: the recipe's capsule network and a CNN of about its size",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each model (default: 3)")
    parser.add_argument("--recipe", metavar="NAME", help="default: quickstart for images, text for texts")
    parser.add_argument("--output", metavar="DIR", help="default: runs/compare/NAME-n")
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")
    parser.add_argument("--csv", action="store_true", help="print a line per model and seed as CSV")
    parser.add_argument("--epochs", metavar="N", help="short for --training.epochs, of every training")
    parser.add_argument("--data-dir", metavar="DIR", help="short for --data.dir: folder with data sets")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="NAME",
        help="short for --data.name: a folder of class folders, an .npz, a .csv, or a name",
    )
    _add_own(parser)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """As of ``train``; ``--data`` is its short for ``--data.name``, since ``data`` is a section of a recipe."""
    if words and not words[0].startswith("-"):
        raise CommandError(f"what is {words[0]!r} for? Data is given as: torchcaps compare-models --data {words[0]}")
    spelled = ["--data.name" + word[6:] if word == "--data" or word.startswith("--data=") else word for word in words]
    with user_errors(_spell):
        own, overrides = parse_with_keys(spelled, _add_own, "compare-models")
    data = overrides.pop("data.name", None)
    return argparse.Namespace(**vars(own), data=data, overrides=overrides)


def _run(arguments: argparse.Namespace) -> int:
    from torchcaps.data.registry import list_datasets

    if not arguments.data:
        raise CommandError(f"which data? --data takes a folder, a file, or one of {', '.join(list_datasets())}.")
    if arguments.json and arguments.csv:
        raise CommandError("--json and --csv are two forms of the same numbers: give one of them.")
    with user_errors(_spell):
        result = _compare(arguments)
    if arguments.json:
        say_json(result.to_numbers())
    elif arguments.csv:
        say(result.csv, end="")
    else:
        _show(result)
    return 0


def _compare(arguments: argparse.Namespace) -> Comparison:
    from torchcaps.experiments import compare_models
    from torchcaps.training.callbacks import TrainingStopped
    from torchcaps.training.checkpoints import Interrupted

    quiet = arguments.json or arguments.csv
    try:
        return compare_models(
            arguments.data,
            arguments.models,
            seeds=arguments.seeds,
            recipe=arguments.recipe,
            overrides=arguments.overrides,
            folder=arguments.output,
            say=None if quiet else say,
            bar=sys.stderr.isatty(),
        )
    except (Interrupted, KeyboardInterrupt) as stop:
        raise CommandError("stopped; the same command goes on from here.", code=130) from stop
    except TrainingStopped as stop:
        raise CommandError(_spell(stop)) from stop
    except (ValueError, TypeError) as error:  # a model's or a loss's own words about options that do not fit
        raise CommandError(_spell(error)) from error


def _spell(error: Exception) -> str:
    """An error's message with the options that this command has."""
    return spell_keys(error).replace("--data.name", "--data")


def _show(result: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table

    from torchcaps.experiments.comparison import NUMBERS, ROWS, TABLE

    table = Table(title=f"Models on {result.plan.title}")
    for number, heading in enumerate(result.headings):
        table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
    for line in result.lines:
        table.add_row(*line)
    Console(highlight=False, markup=False).print(table)
    say(result.conclusion)
    say(f"Written: {', '.join(str(result.folder / name) for name in (TABLE, ROWS, NUMBERS))}")
    say(f"Runs: {result.folder / 'trained'}")


COMPARE = Command("compare models on one's own data", EXAMPLES, _add_arguments, _run, _parse)
