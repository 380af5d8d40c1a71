"""``torchcaps evaluate``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchcaps.commands.base import Command, CommandError, say, say_json, user_errors

MOST_SHOWN = 20
"""Classes of which a confusion matrix is printed."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a weights file with --data, or the name of a pretrained model")
    parser.add_argument("--data", metavar="NAME", help="other data of the same kind: a name, a folder or a file")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets")
    parser.add_argument(
        "--split",
        default="test",
        choices=("test", "train", "all", "familiar", "validation", "test-all", "train-all"),
        help="part of the data (default: test); all is of one's own data, familiar of the protocols azimuth and "
        "elevation, validation of the sst sets, test-all and train-all of reuters",
    )
    parser.add_argument(
        "--new-items", action="store_true", help="count what came to the run's own data after its training to the test"
    )
    parser.add_argument(
        "--crops",
        type=int,
        choices=(1, 13),
        help="patches per image whose scores are averaged, for runs with data.crop",
    )
    parser.add_argument("--confusion", action="store_true", help="print the confusion matrix, too")
    parser.add_argument(
        "--pictures", metavar="DIR", help="write the confusion matrix and the reliability of the scores there, as PNG"
    )
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")


def _run(arguments: argparse.Namespace) -> int:
    notices: list[str] = []
    with user_errors():
        from torchcaps.progress import bars
        from torchcaps.run import load

        result = load(arguments.run).evaluate(
            arguments.data,
            arguments.split,
            data_dir=arguments.data_dir,
            crops=arguments.crops,
            new_items=arguments.new_items,
            progress=bars(),
            notice=notices.append,
        )
        if arguments.pictures:
            notices += _draw(result, Path(arguments.pictures))
    if arguments.json:
        say_json(result)
    else:
        _show(result, arguments.confusion)
    for notice in notices:
        say(f"torchcaps: {notice.replace('(new_items ', '(--new-items ')}", sys.stderr)
    return 0


def _draw(result: Mapping[str, Any], folder: Path) -> list[str]:
    """Write the pictures; what was written is told."""
    from torchcaps.io import write_bytes
    from torchcaps.training.figures import draw_measures, save_png

    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {folder / f"{name}.png": figure for name, figure in draw_measures(result).items()}
        for path, figure in paths.items():
            write_bytes(path, save_png(figure))
    except OSError as error:
        raise CommandError(f"the pictures cannot be written to {folder}: {error.strerror}.") from error
    return [f"Pictures: {', '.join(str(path) for path in paths)}"]


def _show(result: Mapping[str, Any], confusion: bool) -> None:
    kind = "texts" if "texts" in result else "images"
    where = f"{result[kind]:,} {result['split']} {kind} of {result['data']}"
    say(f"accuracy {result['accuracy']:.2%} (error {result['error_percent']:.2f} %) on {where}")
    if "exact_match" in result:
        say(f"{'a text' if kind == 'texts' else 'an image'} counts when exactly its labels are found")
        for ending, meaning in (("", "over all labels"), ("_of_samples", f"mean over the {kind}")):
            numbers = ", ".join(f"{name} {result[name + ending]:.2%}" for name in ("precision", "recall", "f1"))
            say(f"  {numbers} ({meaning})")
    if "share_of_objects_found" in result:
        share = result["share_of_objects_found"]
        say(f"an image counts when all its objects are right; {share:.2%} of the objects were found")
    _show_averages(result)
    width = max(16, *(len(name) + 2 for name in result["per_class"]))
    say(f"  {'class':<{width}}precision   recall       F1   {kind}")
    for name, row in result["per_class"].items():
        if row["count"] or row["precision"]:
            numbers = "".join(f"{row[key]:>9.2%}" for key in ("precision", "recall", "f1"))
            say(f"  {name:<{width}}{numbers}{row['count']:>9,}")
    if confusion and "confusion_matrix" in result:
        _show_confusions(list(result["per_class"]), result["confusion_matrix"])


def _show_averages(result: Mapping[str, Any]) -> None:
    """In one line what the accuracy alone hides."""
    shown = {
        "balanced accuracy": "balanced_accuracy", "macro F1": "macro_f1",
        "top-3": "top_3_accuracy", "top-5": "top_5_accuracy",
    }  # fmt: skip
    parts = [f"{name} {result[key]:.2%}" for name, key in shown.items() if key in result]
    parts.append(f"calibration error {result['calibration_error']:.3f}")
    say(f"  {', '.join(parts)}")


def _show_confusions(names: list[str], matrix: list[list[int]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if len(names) > MOST_SHOWN:
        say(f"the confusion matrix of {len(names)} classes is in the JSON (--json)")
        return
    table = Table(title="rows: labels, columns: answers")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for name, row in zip(names, matrix, strict=True):
        table.add_row(name, *(str(count) if count else "·" for count in row))
    Console(highlight=False, markup=False).print(table)


EVALUATE = Command(
    "measure a run on its test images or texts",
    "  torchcaps evaluate runs/quickstart-1\n"
    "  torchcaps evaluate runs/quickstart-1 --data mnist --data-dir DIR --json\n"
    "  torchcaps evaluate mnist --data mnist-mini --confusion      a pretrained model\n"
    "  torchcaps evaluate runs/quickstart-1 --pictures pictures/",
    _add_arguments,
    _run,
)
