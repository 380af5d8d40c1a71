"""Novel viewpoints: matrix capsules against a CNN of the same size, matched on familiar views.

    python -m benchmarks.viewpoints [--protocols azimuth elevation] [--seeds 0 1 2] [--epochs 10]

Both networks are trained by the recipe `viewpoints` on the familiar views of the training bodies. Every epoch's weights
are kept and measured on the familiar views of the test bodies. As Hinton, Sabour and Frosst 2018 do, the two are then
compared where they are equally good at those: the network that ends better is taken back to the epoch whose familiar
error is nearest to the other's last. Novel views are measured at that epoch and at the last; nothing is chosen by them.

Every row of results/viewpoints.csv is one training run. With --by-angle the networks' last weights are measured on each
azimuth (or elevation) of all test bodies instead, for results/viewpoints_by_angle.csv.
"""

from __future__ import annotations

import argparse
import copy
import csv
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from torchcaps import __version__
from torchcaps.commands.keys import read_keys
from torchcaps.data.datasets.small_norb import FAMILIAR_AZIMUTHS, FAMILIAR_ELEVATIONS, INFO_COLUMNS
from torchcaps.data.images import ImageSource
from torchcaps.data.preparation import Preparation, PreparedImages
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.data.synthetic.viewpoints import Viewpoints
from torchcaps.models import parameter_count
from torchcaps.training.evaluation import measure_source
from torchcaps.training.fit import train
from torchcaps.training.recipe import Recipe
from torchcaps.training.recipes import recipe_from_file
from torchcaps.training.tasks import ImageTask

RESULTS = Path(__file__).parent.parent / "results" / "viewpoints.csv"
BY_ANGLE = RESULTS.with_name("viewpoints_by_angle.csv")
COMMAND = "python -m benchmarks.viewpoints"
MODELS: dict[str, list[str]] = {
    "matrix-capsnet-small": [],
    "cnn-matched": ["--model.name=cnn-matched", "--loss.kind=cross-entropy", "--loss.margin_schedule=constant",
                    "--optimizer.lr=0.001"],
}  # fmt: skip


class EveryEpoch(pl.Callback):
    """Keeps the model as it is after each epoch."""

    def __init__(self) -> None:
        self.models: list[torch.nn.Module] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Copy it."""
        self.models.append(copy.deepcopy(pl_module.model).eval())


def judged_on(recipe: Recipe, split: str) -> ImageSource:
    """The images of a split, prepared as in training."""
    return evaluation_source(make_image_dataset(recipe.data), Preparation.from_options(recipe.data), split)


def measure(model: torch.nn.Module, source: ImageSource) -> dict[str, Any]:
    """How well a network does on some images."""
    return measure_source(model, ImageTask(source.class_names, source.image_shape), source)


def run(model: str, protocol: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train one network; its models after every epoch and their familiar errors in percent."""
    overrides = [*MODELS[model], f"--data.options.protocol={protocol}", f"--seed={seed}", f"--epochs={epochs}"]
    recipe = recipe_from_file("viewpoints", read_keys(overrides))
    kept = EveryEpoch()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        train(recipe, Path(folder), callbacks=[kept])
        seconds = time.perf_counter() - started
    familiar = judged_on(recipe, "familiar")
    errors = [measure(m, familiar)["error_percent"] for m in kept.models]
    print(f"{model} {protocol} seed {seed}: {seconds:.0f} s, familiar error {errors[-1]:.2f} %", flush=True)
    return {"recipe": recipe, "models": kept.models, "familiar": errors, "seconds": seconds}


def matched_epochs(first: list[float], second: list[float]) -> tuple[int, int]:
    """The epochs at which two networks are compared: the last of the one that ends worse, the nearest of the other."""
    last = len(first) - 1, len(second) - 1

    def nearest(errors: list[float], to: float) -> int:
        return min(range(len(errors)), key=lambda epoch: (abs(errors[epoch] - to), -epoch))

    if first[-1] > second[-1]:
        return last[0], nearest(second, first[-1])
    return nearest(first, second[-1]), last[1]


def compare(protocol: str, seed: int, epochs: int) -> list[dict[str, Any]]:
    """Both networks on one protocol and seed; two rows of the table."""
    runs = {name: run(name, protocol, seed, epochs) for name in MODELS}
    chosen = dict(zip(runs, matched_epochs(*(one["familiar"] for one in runs.values())), strict=True))
    rows = []
    for name, one in runs.items():
        novel = judged_on(one["recipe"], "test")
        errors = {epoch: measure(one["models"][epoch], novel)["error_percent"] for epoch in {chosen[name], epochs - 1}}
        rows.append(
            {
                "protocol": protocol,
                "model": name,
                "parameters": parameter_count(one["models"][-1]),
                "seed": seed,
                "epochs": epochs,
                "familiar_error_percent": f"{one['familiar'][-1]:.2f}",
                "novel_error_percent": f"{errors[epochs - 1]:.2f}",
                "matched_epoch": chosen[name] + 1,
                "matched_familiar_error_percent": f"{one['familiar'][chosen[name]]:.2f}",
                "matched_novel_error_percent": f"{errors[chosen[name]]:.2f}",
                "training_seconds": f"{one['seconds']:.0f}",
                "version": __version__,
                "command": f"{COMMAND} --protocols {protocol} --seeds {seed} --epochs {epochs}",
            }
        )
        print(rows[-1], flush=True)
    return rows


def by_angle(protocol: str, seed: int, epochs: int) -> list[dict[str, Any]]:
    """The error of both networks at every angle; rows of the second table."""
    seen, column = Viewpoints().load_info("test"), INFO_COLUMNS.index(protocol)
    rows = []
    for name in MODELS:
        one = run(name, protocol, seed, epochs)
        data = Viewpoints().load("test")
        for angle in seen[:, column].unique().tolist():
            part = PreparedImages(data[seen[:, column] == angle], Preparation.from_options(one["recipe"].data))
            familiar = 10 * angle in FAMILIAR_AZIMUTHS if protocol == "azimuth" else angle in FAMILIAR_ELEVATIONS
            rows.append(
                {
                    "protocol": protocol,
                    "model": name,
                    "seed": seed,
                    "degrees": 10 * angle if protocol == "azimuth" else 30 + 5 * angle,
                    "familiar": familiar,
                    "error_percent": f"{measure(one['models'][-1], part)['error_percent']:.2f}",
                    "version": __version__,
                    "command": f"{COMMAND} --protocols {protocol} --seeds {seed} --epochs {epochs} --by-angle",
                }
            )
    return rows


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a table."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run what was asked for; each pair of runs is written when it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", nargs="+", default=["azimuth", "elevation"], choices=["azimuth", "elevation"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--by-angle", action="store_true", help="measure every azimuth or elevation on its own")
    arguments = parser.parse_args()
    for protocol in arguments.protocols:
        for seed in arguments.seeds:
            if arguments.by_angle:
                append(BY_ANGLE, by_angle(protocol, seed, arguments.epochs))
            else:
                append(RESULTS, compare(protocol, seed, arguments.epochs))


if __name__ == "__main__":
    main()
