"""``torchcaps train``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.commands.base import Command, CommandError, say, say_json, user_errors
from torchcaps.commands.keys import format_keys, parse_with_keys, spell_keys
from torchcaps.commands.show import show_images
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps.training.recipe import Recipe
    from torchcaps.training.starting import Start

SHOWN_RATES = 12
"""Rows of the table of learning rates, about."""

EXAMPLES = """  torchcaps train                                    the quickstart: digits in two minutes
  torchcaps train fashion-mnist --data-dir DIR       a recipe on data in DIR
  torchcaps train --data.name photos/ --epochs 10    one's own images, a folder per class
  torchcaps train mnist --model.name capsnet-small --model.options.routing em --loss.kind spread
  torchcaps train text --data.name reviews.csv       one's own texts, a CSV with the columns text and label
  torchcaps train my.yaml --print-config             what would be run
  torchcaps train --data.rotation 15 --show-images sheet.png    what the network would see
  torchcaps train --resume runs/quickstart-1         go on after Ctrl-C or a crash
  torchcaps train --resume RUN --data.name NEW       the same, with data that was moved
  torchcaps train --resume RUN --epochs 50           more epochs for a run that has finished
  torchcaps train --from mnist --data.name photos/   begin with the weights of a run or of a shipped model
  torchcaps train --data.name photos/ --find-lr      which learning rate suits it; trains nothing
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
    "training.epochs",
    "training.patience",
    "training.min_delta",
}
"""Keys that a resumed run may have others of: where it runs, where its files are, and when it ends."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", help="a recipe's name (default: quickstart) or a .yaml file; see --list")
    parser.add_argument("--list", action="store_true", help="list the recipes of the package")
    parser.add_argument("--keys", action="store_true", help="list all keys of a recipe with their types and defaults")
    parser.add_argument("--print-config", action="store_true", help="print the full recipe and stop")
    parser.add_argument(
        "--show-images",
        metavar="FILE",
        help="write a picture of training images as the network would see them, and stop",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="run folder (default: runs/NAME-n, after the data or the recipe)"
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with a run where its checkpoint is")
    parser.add_argument(
        "--restart", action="store_true", help="with --resume: begin a run again that has no checkpoint and no weights"
    )
    parser.add_argument(
        "--from",
        dest="start_from",
        metavar="RUN",
        help="begin with the weights of a run, a weights file or a shipped model; other classes are fine",
    )
    parser.add_argument("--find-lr", action="store_true", help="suggest a learning rate, and train nothing")
    parser.add_argument(
        "--changed-data",
        action="store_true",
        help="resume although one's own data is not what it was, with the items that are still there",
    )
    parser.add_argument("--evaluate", action="store_true", help="measure on the test images or texts when done")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    parser.add_argument("--data-dir", metavar="DIR", help="short for --data.dir")
    parser.add_argument("--epochs", metavar="N", help="short for --training.epochs")
    parser.add_argument("--seed", metavar="N", help="short for --training.seed")
    parser.add_argument("--devices", metavar="N", help="short for --training.devices: processes on this machine")
    parser.add_argument("--precision", metavar="P", help="short for --training.precision: auto, 32, bf16 or 16")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    with user_errors(spell_keys):
        own, overrides = parse_with_keys(words, _add_arguments)
    return argparse.Namespace(**vars(own), overrides=overrides)


def _run(arguments: argparse.Namespace) -> int:
    from torchcaps.training import recipes

    if arguments.list:
        for name, description in recipes.list_recipes().items():
            say(f"{name:<42}{description}")
        return 0
    if arguments.keys:
        say(format_keys(OPTIONS_OF_OTHERS), end="")
        return 0
    with user_errors(_spell):
        recipe, name, start = _make_recipe(arguments)
    if arguments.print_config:
        import yaml

        say(yaml.safe_dump(recipe.as_dict(), sort_keys=False, allow_unicode=True, width=100), end="")
        return 0
    if arguments.show_images is not None:
        with user_errors(_spell):
            return show_images(recipe, arguments.show_images)
    return _find_lr(arguments, recipe, start) if arguments.find_lr else _train(arguments, recipe, name, start)


def _make_recipe(arguments: argparse.Namespace) -> tuple[Recipe, str, Start | None]:
    """The recipe to run, a name for its folder, and what its weights begin with."""
    from torchcaps.run import open_start
    from torchcaps.training.recipes import recipe_from_file
    from torchcaps.training.runs import read_run_recipe
    from torchcaps.training.starting import name_folder, recipe_from_start

    if arguments.resume is not None:
        _check_resumed(arguments)
        return read_run_recipe(arguments.resume, arguments.overrides), Path(arguments.resume).name, None
    for given, option in ((arguments.changed_data, "--changed-data"), (arguments.restart, "--restart")):
        if given:
            raise CommandError(f"{option} goes with --resume: a new run begins with its data as it is.")
    named, start = arguments.recipe, None
    if arguments.start_from is not None:
        start = open_start(arguments.start_from)
        recipe = recipe_from_start(start, named, arguments.overrides, _notice)
    else:
        named = named or "quickstart"
        recipe = recipe_from_file(named, arguments.overrides, _notice)
    return recipe, name_folder(named, recipe, start), start


def _notice(text: str) -> None:
    say(f"torchcaps: {text}", sys.stderr)


def _say_spelled(text: str) -> None:
    say(spell_keys(TorchcapsError(text)))


def _spell(error: Exception) -> str:
    """An error's message with this command's own options spelled as they are typed."""
    message = str(error).replace("(start_from)", "(--from)").replace("(changed_data)", "(--changed-data)")
    own = getattr(error, "option", None) in ("start_from", "changed_data")
    return spell_keys(TorchcapsError(message, None if own else getattr(error, "option", None)))


def _check_resumed(arguments: argparse.Namespace) -> None:
    """Refuse what a run that goes on cannot be given."""
    if arguments.recipe or arguments.output or arguments.start_from or arguments.find_lr:
        raise CommandError(
            "--resume has its recipe, its folder and its weights: give neither a recipe nor --output, --from or "
            "--find-lr."
        )
    for key in arguments.overrides:
        if key not in MAY_CHANGE:
            raise CommandError(
                f"--resume keeps the run's recipe; --{key} would make it another experiment. "
                "Only where it runs, where its files are and when it ends can change: --devices, --data.name, "
                "--data-dir, --data.download, --text.vectors, --epochs, --training.patience."
            )


def _find_lr(arguments: argparse.Namespace, recipe: Recipe, start: Start | None) -> int:
    from torchcaps.training.learning_rates import find_lr

    with user_errors(_spell):
        found = find_lr(recipe, start=start, say=None if arguments.json else _notice)
    if arguments.json:
        say_json(found._asdict())
        return 0
    say("learning rate       loss")
    for place in range(0, len(found.rates), max(1, len(found.rates) // SHOWN_RATES)):
        say(f"{found.rates[place]:>13.1e} {found.losses[place]:>10.4f}")
    say(f"In the middle of the fall of the loss: --optimizer.lr {found.suggestion:g}")
    return 0


def _train(arguments: argparse.Namespace, recipe: Recipe, name: str, start: Start | None) -> int:
    from torchcaps.training.trainers import is_first_process

    try:
        with user_errors(_spell), _open_folder(arguments, name) as folder:
            return _train_and_tell(arguments, recipe, folder, start)
    except CommandError as error:
        raise error if is_first_process() else CommandError("", error.code) from error  # one process speaks


def _train_and_tell(arguments: argparse.Namespace, recipe: Recipe, folder: Path, start: Start | None) -> int:
    from torchcaps.training.callbacks import TrainingStopped
    from torchcaps.training.checkpoints import Interrupted
    from torchcaps.training.fit import train
    from torchcaps.training.trainers import is_first_process

    if arguments.resume is not None and is_first_process():
        _check_restart(folder, arguments.restart)
    resume = arguments.resume is not None and not arguments.restart
    tell = None if arguments.json else _say_spelled
    changed, bar = arguments.changed_data, sys.stderr.isatty()
    try:
        summary = train(recipe, folder, resume, tell, bar, changed_data=changed, start=start)
    except Interrupted as stop:
        raise CommandError(f"{stop} Continue with: torchcaps train --resume {folder}", code=130) from stop
    except TrainingStopped as stop:
        raise CommandError(spell_keys(stop)) from stop
    except (ValueError, TypeError) as error:  # a model's or a loss's own words about options that do not fit
        raise CommandError(spell_keys(error)) from error
    if is_first_process():
        _tell(arguments, folder, summary)
    return 0


def _check_restart(folder: Path, restart: bool) -> None:
    """Refuse to go on with nothing, and to begin again where something would be lost."""
    from torchcaps.training.runs import CHECKPOINT, WEIGHTS

    there = os.path.lexists(folder / CHECKPOINT)
    weights = os.path.lexists(folder / WEIGHTS)
    if restart and (there or weights):
        what = "a checkpoint: resume it without --restart" if there else f"weights: use --from {folder} for a new run"
        raise CommandError(f"--restart is for runs that have nothing to lose, and {folder} has {what}.")
    if not restart and not there:
        advice = f"begin another run with its weights: --from {folder}." if weights else "begin it again: --restart."
        raise CommandError(
            f"{folder} has no checkpoint to go on from: it was stopped before its first one, or the file is gone. "
            f"To train it, {advice}"
        )


def _tell(arguments: argparse.Namespace, folder: Path, summary: dict[str, Any]) -> None:
    from torchcaps.run import load

    result = load(folder).evaluate() if arguments.evaluate else None
    if arguments.json:
        tested = {} if result is None else {"evaluation": result}
        say_json({"run": str(folder), **summary, **tested})
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
