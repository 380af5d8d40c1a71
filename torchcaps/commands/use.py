"""``torchcaps evaluate`` and ``torchcaps predict``."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from dataclasses import replace

from torchcaps.commands.base import Command, user_errors


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--data", metavar="NAME", help="other data of the same shape: a name, a folder or an .npz")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets")
    parser.add_argument(
        "--split",
        default="test",
        choices=("test", "train", "familiar"),
        help="part of the data (default: test); familiar is of the protocols azimuth and elevation",
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
        from torchcaps.training.evaluation import evaluate
        from torchcaps.training.runs import read_run_recipe

        own = read_run_recipe(arguments.run).data
        changes = {"name": arguments.data, "dir": arguments.data_dir}
        options = replace(own, **{key: value for key, value in changes.items() if value is not None})
        other = arguments.data is not None or arguments.split != "test" or arguments.data_dir is not None
        result = evaluate(arguments.run, options if other else None, arguments.split, arguments.crops)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return 0
    where = f"{result['images']:,} {arguments.split} images of {result['data']}"
    print(f"accuracy {result['accuracy']:.2%} (error {result['error_percent']:.2f} %) on {where}")
    if "share_of_objects_found" in result:
        share = result["share_of_objects_found"]
        print(f"an image counts when all its objects are right; {share:.2%} of the objects were found")
    for name, accuracy in result["accuracy_per_class"].items():
        print(f"  {name:<16}{accuracy:.2%}")
    return 0


def _add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder or a weights.safetensors")
    parser.add_argument("files", nargs="+", metavar="FILE", help="image files (PNG, JPEG)")
    parser.add_argument("--csv", action="store_true", help="print file, label and score of every class as CSV")


def _predict(arguments: argparse.Namespace) -> int:
    with user_errors():
        from torchcaps.training.evaluation import predict

        found = predict(arguments.run, arguments.files)
    if arguments.csv:
        names = sorted(found[0].labels)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["file", "label", *names])
        for prediction in found:
            scores = dict(zip(prediction.labels, prediction.scores, strict=True))
            writer.writerow([prediction.file, prediction.labels[0], *(f"{scores[name]:.6f}" for name in names)])
        return 0
    for prediction in found:
        best = ", ".join(f"{n} {s:.3f}" for n, s in zip(prediction.labels[:3], prediction.scores, strict=False))
        print(f"{prediction.file}: {best}")
    return 0


EVALUATE = Command(
    "measure a run on its test images",
    "  torchcaps evaluate runs/quickstart-1\n  torchcaps evaluate runs/quickstart-1 --data mnist --data-dir DIR --json",
    _add_evaluate,
    _evaluate,
)
PREDICT = Command(
    "classify image files",
    "  torchcaps predict runs/quickstart-1 three.png\n  torchcaps predict runs/quickstart-1 *.png --csv > found.csv",
    _add_predict,
    _predict,
)
