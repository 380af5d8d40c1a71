"""``torchcaps evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from torchcaps.commands.base import Command, say, user_errors


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--data", metavar="NAME", help="other data of the same kind: a name, a folder or a file")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets")
    parser.add_argument(
        "--split",
        default="test",
        choices=("test", "train", "familiar", "validation", "test-all", "train-all"),
        help="part of the data (default: test); familiar is of the protocols azimuth and elevation, validation of the "
        "sst sets, test-all and train-all of reuters",
    )
    parser.add_argument(
        "--crops",
        type=int,
        choices=(1, 13),
        help="patches per image whose scores are averaged, for runs with data.crop",
    )
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")


def _evaluate(arguments: argparse.Namespace) -> int:
    with user_errors():
        from torchcaps.progress import bars
        from torchcaps.training.evaluation import evaluate
        from torchcaps.training.runs import read_run_recipe

        own = read_run_recipe(arguments.run).data
        changes = {"name": arguments.data, "dir": arguments.data_dir}
        options = replace(own, **{key: value for key, value in changes.items() if value is not None})
        other = arguments.data is not None or arguments.split != "test" or arguments.data_dir is not None
        notices: list[str] = []
        given = options if other else None
        result = evaluate(arguments.run, given, arguments.split, arguments.crops, bars(), notices.append)
    _show(arguments, result)
    for notice in notices:
        say(f"torchcaps: {notice}", sys.stderr)
    return 0


def _show(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    if arguments.json:
        say(json.dumps(result, indent=2))
        return
    kind = "texts" if "texts" in result else "images"
    where = f"{result[kind]:,} {arguments.split} {kind} of {result['data']}"
    say(f"accuracy {result['accuracy']:.2%} (error {result['error_percent']:.2f} %) on {where}")
    if "exact_match" in result:
        say("a text counts when exactly its labels are found")
        for ending, meaning in (("", "over all labels"), ("_of_samples", "mean over the texts")):
            numbers = ", ".join(f"{name} {result[name + ending]:.2%}" for name in ("precision", "recall", "f1"))
            say(f"  {numbers} ({meaning})")
    if "share_of_objects_found" in result:
        share = result["share_of_objects_found"]
        say(f"an image counts when all its objects are right; {share:.2%} of the objects were found")
    for name, accuracy in result.get("accuracy_per_class", {}).items():
        say(f"  {name:<16}{accuracy:.2%}")


EVALUATE = Command(
    "measure a run on its test images or texts",
    "  torchcaps evaluate runs/quickstart-1\n  torchcaps evaluate runs/quickstart-1 --data mnist --data-dir DIR --json",
    _add_evaluate,
    _evaluate,
)
