"""One digit is a hundred times rarer than the others: is it found, with class weights, balanced sampling, or neither?

    python -m benchmarks.imbalance --data-dir DIR [--only pair-500 …] [--seeds 0 1 2] [--judge test]

DIR/mnist must hold the official IDX files. Trained by the recipe quickstart, whose settings are as they were for digits
of equal numbers, but for the number of epochs; nothing is kept aside to watch training. The seed also decides which
training digits there are. With `--judge held-out` the judges are training digits that no run of this benchmark trains
on, with `--judge test` the official test digits; only those are written to results/imbalance.csv. Whatever was
tried (epochs, mainly) was tried on the first.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

import torchcaps
from torchcaps.data.dataset import Files
from torchcaps.data.datasets.mnist import MNIST
from torchcaps.data.images import ImageSet
from torchcaps.version import __version__

RESULTS = Path(__file__).parent.parent / "results" / "imbalance.csv"
COMMAND = "python -m benchmarks.imbalance --data-dir DIR"
HELD_OUT = 10_000
"""Training digits, the last ones, that are never trained on."""


class Problem(NamedTuple):
    """So many images of each common digit, so many of the rare one, and how long is trained."""

    digits: tuple[int, ...]
    rare: int
    many: int
    few: int
    epochs: int


TEN = tuple(range(10))
PROBLEMS = {
    "pair-500": Problem((3, 8), 8, 500, 5, 30),
    "pair-1000": Problem((3, 8), 8, 1000, 10, 30),
    "pair-5000": Problem((3, 8), 8, 5000, 50, 10),
    "ten-500": Problem(TEN, 8, 500, 5, 10),
    "ten-2000": Problem(TEN, 8, 2000, 20, 5),
}
REMEDIES: dict[str, dict[str, Any]] = {
    "none": {},
    "class weights": {"loss.class_weights": "balanced"},
    "sampling": {"data.sampling": "balanced"},
    "both": {"loss.class_weights": "balanced", "data.sampling": "balanced"},
}


def choose_digits(data: ImageSet, problem: Problem, seed: int) -> ImageSet:
    """The training digits of a problem: by the seed as many of each as it says."""
    order = torch.randperm(len(data) - HELD_OUT, generator=torch.Generator().manual_seed(seed))
    chosen = []
    for digit in problem.digits:
        members = order[data.labels[order] == digit]
        chosen.append(members[: problem.few if digit == problem.rare else problem.many])
    return data[torch.cat(chosen)]


def keep_digits(data: ImageSet, digits: tuple[int, ...]) -> ImageSet:
    """All images of these digits."""
    return data[torch.isin(data.labels, torch.tensor(digits))]


def as_arrays(data: ImageSet) -> tuple[Any, list[str]]:
    """As a user would give them."""
    return data.images[:, 0].numpy(), [str(label) for label in data.labels.tolist()]


def run(name: str, remedy: str, seed: int, digits: ImageSet, judges: ImageSet) -> dict[str, Any]:
    """Train once, and judge: a row of the table."""
    problem = PROBLEMS[name]
    train = choose_digits(digits, problem, seed)
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        overrides = {"training.seed": seed, "data.validation": 0.0, **REMEDIES[remedy]}
        trained = torchcaps.fit(
            as_arrays(train), epochs=problem.epochs, test=as_arrays(keep_digits(judges, problem.digits)),
            overrides=overrides, folder=Path(folder) / "run", say=said.append,
        )  # fmt: skip
        result = trained.evaluate(notice=said.append)
    rare = result["per_class"][str(problem.rare)]
    return {
        "problem": name,
        "classes": len(problem.digits),
        "common": problem.many,
        "rare": problem.few,
        "epochs": problem.epochs,
        "remedy": remedy,
        "seed": seed,
        "recall_of_rare_percent": f"{100 * rare['recall']:.1f}",
        "precision_of_rare_percent": f"{100 * rare['precision']:.1f}",
        "accuracy_percent": f"{100 * result['accuracy']:.2f}",
        "balanced_accuracy_percent": f"{100 * result['balanced_accuracy']:.2f}",
        "told_before": any("differ much in size" in line for line in said),
        "told_after": any("never answered" in line for line in said),
        "judged_on": result["images"],
        "version": __version__,
        "command": f"{COMMAND} --only {name} --remedies '{remedy}' --seeds {seed}",
    }


def main() -> None:
    """Run what was asked for; append what was judged on test digits to the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--remedies", nargs="+", choices=list(REMEDIES), default=list(REMEDIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--judge", choices=("test", "held-out"), default="test")
    arguments = parser.parse_args()
    files = Files(arguments.data_dir)
    digits = MNIST().load("train", files)
    judges = MNIST().load("test", files) if arguments.judge == "test" else digits[torch.arange(len(digits))[-HELD_OUT:]]
    for name in arguments.only:
        for remedy in arguments.remedies:
            for seed in arguments.seeds:
                row = run(name, remedy, seed, digits, judges)
                shown = ", ".join(f"{key} {row[key]}" for key in list(row)[5:13])
                print(f"{name}: {shown}", flush=True)
                if arguments.judge == "test":
                    append(row)


def append(row: dict[str, Any]) -> None:
    """Add a row to the table."""
    new = not RESULTS.exists()
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
