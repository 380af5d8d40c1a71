"""``torchcaps train``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.commands.base import Command, CommandError, say, user_errors
from torchcaps.commands.keys import parse_with_keys, spell_keys

if TYPE_CHECKING:
    from torchcaps.training.recipe import Recipe

EXAMPLES = """  torchcaps train                                    the quickstart: digits in two minutes
  torchcaps train fashion-mnist --data-dir DIR       a recipe on data in DIR
  torchcaps train --data.name photos/ --epochs 10    one's own images, a folder per class
  torchcaps train mnist --model.name capsnet-small --model.options.routing em --loss.kind spread
  torchcaps train text --data.name reviews.csv       one's own texts, a CSV with the columns text and label
  torchcaps train my.yaml --print-config             what would be run
  torchcaps train --resume runs/quickstart-1         go on after Ctrl-C or a crash
  torchcaps train --resume RUN --data.name NEW       the same, with data that was moved
  torchcaps train --devices 2                        two processes, the same global batch
Every key of a recipe can be given: --data.* --text.* --model.* --loss.* --optimizer.* --training.*"""

OPTIONS_OF_OTHERS = """--model.options.NAME VALUE: an option of the model, such as routing, squash, decoder, objects.
--data.options.NAME VALUE: an option of the data set, such as base, protocol, image_size, text_column."""

MAY_CHANGE = {
    "data.name",
    "data.dir",
    "data.download",
    "text.vectors",
    "training.devices",
    "training.nodes",
    "training.accelerator",
}
"""Keys that a resumed run may have others of: where it runs, and where its files are."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", help="a recipe's name (default: quickstart) or a .yaml file; see --list")
    parser.add_argument("--list", action="store_true", help="list the recipes of the package")
    parser.add_argument("--keys", action="store_true", help="list all keys of a recipe with their types and defaults")
    parser.add_argument("--print-config", action="store_true", help="print the full recipe and stop")
    parser.add_argument("--output", metavar="DIR", help="run folder (default: runs/RECIPE-n)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run where its checkpoint is")
    parser.add_argument(
        "--changed-data",
        action="store_true",
        help="resume although one's own data is not what it was, with the items that are still there",
    )
    parser.add_argument("--evaluate", action="store_true", help="measure on the test images or texts when done")
    parser.add_argument("--json", action="store_true", help="print the run's summary as JSON, and nothing else")
    parser.add_argument("--data-dir", metavar="DIR", help="short for --data.dir")
    parser.add_argument("--epochs", metavar="N", help="short for --training.epochs")
    parser.add_argument("--seed", metavar="N", help="short for --training.seed")
    parser.add_argument("--devices", metavar="N", help="short for --training.devices: processes on this machine")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    with user_errors(spell_keys):
        own, overrides = parse_with_keys(words, _add_arguments)
    defaults = argparse.ArgumentParser(add_help=False)
    _add_arguments(defaults)
    return argparse.Namespace(**{**vars(defaults.parse_args([])), **own.as_dict(), "overrides": overrides})


def _run(arguments: argparse.Namespace) -> int:
    from torchcaps.training import recipes

    if arguments.list:
        for name, description in recipes.list_recipes().items():
            say(f"{name:<42}{description}")
        return 0
    if arguments.keys:
        parser = recipes.make_parser()
        parser.epilog = OPTIONS_OF_OTHERS
        parser.print_help()
        return 0
    with user_errors(spell_keys):
        recipe, name = _make_recipe(arguments)
    if arguments.print_config:
        import yaml

        say(yaml.safe_dump(recipe.as_dict(), sort_keys=False, allow_unicode=True, width=100), end="")
        return 0
    return _train(arguments, recipe, name)


def _make_recipe(arguments: argparse.Namespace) -> tuple[Recipe, str]:
    """The recipe to run and a name for its folder."""
    from torchcaps.training.recipes import recipe_from_file
    from torchcaps.training.runs import read_run_recipe

    if arguments.resume is None:
        if arguments.changed_data:
            raise CommandError("--changed-data goes with --resume: a new run takes its data as it is.")
        name = arguments.recipe or "quickstart"
        return recipe_from_file(name, arguments.overrides, lambda text: say(f"torchcaps: {text}", sys.stderr)), Path(
            name
        ).stem
    if arguments.recipe or arguments.output:
        raise CommandError("--resume has its recipe and its folder: give neither a recipe nor --output.")
    for key in arguments.overrides:
        if key not in MAY_CHANGE:
            raise CommandError(
                f"--resume keeps the run's recipe; --{key} would make it another experiment. "
                "Only where it runs and where its files are can change: --devices, --data.name, --data-dir, "
                "--data.download, --text.vectors."
            )
    return read_run_recipe(arguments.resume, arguments.overrides), Path(arguments.resume).name


def _train(arguments: argparse.Namespace, recipe: Recipe, name: str) -> int:
    from torchcaps.training.trainers import is_first_process

    try:
        with user_errors(spell_keys), _open_folder(arguments, name) as folder:
            return _train_and_tell(arguments, recipe, folder)
    except CommandError as error:
        raise error if is_first_process() else CommandError("", error.code) from error  # one process speaks


def _train_and_tell(arguments: argparse.Namespace, recipe: Recipe, folder: Path) -> int:
    from torchcaps.training.callbacks import TrainingStopped
    from torchcaps.training.checkpoints import Interrupted
    from torchcaps.training.fit import train
    from torchcaps.training.runs import CHECKPOINT
    from torchcaps.training.trainers import is_first_process

    resume = arguments.resume is not None and (folder / CHECKPOINT).is_file()
    tell = None if arguments.json else say
    if arguments.resume and not resume and tell:
        tell(f"{folder} has no checkpoint yet: from the beginning.")
    try:
        summary = train(recipe, folder, resume, tell, sys.stderr.isatty(), changed_data=arguments.changed_data)
    except Interrupted as stop:
        raise CommandError(f"{stop} Continue with: torchcaps train --resume {folder}", code=130) from stop
    except TrainingStopped as stop:
        raise CommandError(spell_keys(stop)) from stop
    except (ValueError, TypeError) as error:  # a model's or a loss's own words about options that do not fit
        raise CommandError(error) from error
    if is_first_process():
        _tell(arguments, folder, summary)
    return 0


def _tell(arguments: argparse.Namespace, folder: Path, summary: dict[str, Any]) -> None:
    from torchcaps.run import load

    result = load(folder).evaluate() if arguments.evaluate else None
    if arguments.json:
        tested = {} if result is None else {"evaluation": result}
        say(json.dumps({"run": str(folder), **summary, **tested}, indent=2))
        return
    watched = f", validation accuracy {summary['val_accuracy']:.2%}" if "val_accuracy" in summary else ""
    say(f"Trained {summary['epochs']} epochs in {summary['training_seconds']:.0f} s{watched}.")
    if result is not None:
        kind = "texts" if "texts" in result else "images"
        say(f"Test accuracy: {result['accuracy']:.2%} on {result[kind]:,} {kind} never seen before.")
    say(f"Run folder: {folder}")


@contextmanager
def _open_folder(arguments: argparse.Namespace, name: str) -> Iterator[Path]:
    """The run folder; processes that the first one starts are told by the environment."""
    from torchcaps.training.runs import begin_run
    from torchcaps.training.trainers import is_first_process

    if arguments.resume:
        yield Path(arguments.resume)
    elif not is_first_process():
        yield Path(arguments.output or os.environ.get("TORCHCAPS_RUN", "runs/of-the-first-process"))
    else:
        with begin_run(name, arguments.output) as folder:
            os.environ["TORCHCAPS_RUN"] = str(folder)
            yield folder


TRAIN = Command("train a model by a recipe", EXAMPLES, _add_arguments, _run, _parse)
