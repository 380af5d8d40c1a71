"""Runs that experiments share: a training that is there is not done again, one that was broken off goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.experiments.base import Training
from torchcaps.io import make_folders
from torchcaps.training.fit import train
from torchcaps.training.lock import wait_for_lock
from torchcaps.training.recipe import Recipe
from torchcaps.training.recipes import recipe_from_file
from torchcaps.training.runs import CHECKPOINT
from torchcaps.version import __version__

SUMMARY = "summary.json"


def make_recipe(training: Training) -> Recipe:
    """The recipe of a training, with its keys."""
    return recipe_from_file(training.recipe, training.keys)


def digest(*parts: object) -> str:
    """A short name for values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _digest(recipe: Recipe, fingerprint: str) -> str:
    """The same for the same experiment, wherever its data is and on however many threads it runs."""
    values: dict[str, Any] = recipe.as_dict()
    for section, key in (("data", "dir"), ("data", "download"), ("training", "threads")):
        del values[section][key]
    del values["description"]
    return digest(__version__, values, *([fingerprint] if fingerprint else []))


def run_folder(training: Training, store: Path) -> Path:
    """Where the run of a training is kept."""
    return store / f"{training.name or training.recipe}-{_digest(make_recipe(training), training.fingerprint)}"


def train_once(training: Training, store: Path, data_dir: str | None = None, bar: bool = False) -> Path:
    """The run folder of a training, which is done now if it is not there yet."""
    folder = run_folder(training, store)
    lock = folder.with_suffix(".lock")
    with make_folders(store):
        try:
            with wait_for_lock(lock):
                if not (folder / SUMMARY).is_file():
                    _train(training, folder, data_dir, bar)
        except TorchcapsError:
            if not folder.exists():  # nothing came of it, so nothing is left of it
                lock.unlink(missing_ok=True)
            raise
    return folder


def _train(training: Training, folder: Path, data_dir: str | None, bar: bool) -> None:
    recipe = make_recipe(training)
    recipe.data.dir = data_dir
    resume = (folder / CHECKPOINT).is_file()
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)  # broken off before its first checkpoint
    with make_folders(folder):
        train(recipe, folder, resume=resume, bar=bar)


def training_seconds(folder: Path) -> float:
    """How long a run has trained."""
    return float(json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["training_seconds"])


def seconds_per_epoch(folder: Path) -> float:
    """How long a run has trained for each pass over its data."""
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return float(summary["training_seconds"]) / max(1, int(summary["epochs"]))
