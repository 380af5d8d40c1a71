"""What a report says about a model beside its measurements: how it was trained, and what was measured before."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from torchcaps.errors import FileError
from torchcaps.io import MOST_JSON, read_json, read_text, require_inside
from torchcaps.losses import CapsuleLoss
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import METRICS
from torchcaps.training.specs import ModelSpec


@dataclass(frozen=True)
class Facts:
    """What cannot be measured on a model; only its name and that of the data are needed.

    Args:
        model: what it is called.
        data: what the test data is called.
        run: the name of its run.
        command: how the report was asked for.
        model_options: of the model.
        trained_on: what the training data is called; not given: as the test data.
        epochs_trained: how many were done.
        recipe: loss, reconstruction_scale, lr, schedule, epochs, batch_size, shift and seed of the training.
        loss: of the training, whose gradients are measured; None: they are left out.
        batch_size: on how many images gradients are measured.
        shift: by how many pixels training images are shifted, which is part of how much they vary.
        whole_test: accuracy and number of images of an evaluation on all test images.
    """

    model: str
    data: str
    run: str | None = None
    command: str = ""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    trained_on: str | None = None
    epochs_trained: int | None = None
    recipe: Mapping[str, Any] | None = None
    loss: CapsuleLoss | None = None
    batch_size: int = 32
    shift: int = 0
    whole_test: tuple[float, int] | None = None


def read_facts(
    folder: Path,
    recipe: Recipe,
    model: nn.Module,
    spec: ModelSpec,
    data: str,
    shift: int = 0,
    command: str = "",
) -> Facts:
    """The facts of a run folder: its recipe, and how much of it was done.

    Args:
        folder: of the run.
        recipe: of the run.
        model: of the run.
        spec: of the model.
        data: name of the data that is looked at.
        shift: by how many pixels its training images were shifted.
        command: how the report was asked for.
    """
    loss = recipe.loss
    return Facts(
        model=spec.name,
        data=_shorten_name(data),
        run=folder.resolve().name,
        command=command or f"torchcaps explain {folder.name}",
        model_options=dict(spec.options),
        trained_on=_shorten_name(recipe.data.name),
        epochs_trained=read_epochs(folder),
        recipe={
            "loss": loss.kind,
            "reconstruction_scale": loss.reconstruction_scale if getattr(model, "decoder", None) else 0.0,
            "lr": recipe.optimizer.lr,
            "schedule": recipe.optimizer.schedule,
            "epochs": recipe.training.epochs,
            "batch_size": recipe.training.batch_size,
            "shift": recipe.data.shift,
            "seed": recipe.training.seed,
        },
        loss=CapsuleLoss(loss.kind, reconstruction_scale=loss.reconstruction_scale),
        batch_size=recipe.training.batch_size,
        shift=shift,
        whole_test=read_evaluation(folder),
    )


def _shorten_name(data: str) -> str:
    return Path(data).name if Path(data).exists() else data


def read_epochs(folder: Path) -> int | None:
    """By the summary that ends a training; of one that was interrupted by its epochs' rows; None without either."""
    try:
        return int(_read_own_json(folder, "summary.json")["epochs"])
    except (FileError, ValueError, KeyError, TypeError, OverflowError):
        pass
    try:
        require_inside(folder, METRICS)
        return sum(1 for _ in csv.DictReader(read_text(folder / METRICS, MOST_JSON).splitlines()))
    except (FileError, csv.Error):
        return None


def read_evaluation(folder: Path) -> tuple[float, int] | None:
    """What ``torchcaps evaluate`` has measured on all test images, if it was run: the accuracy and their number."""
    try:
        kept = _read_own_json(folder, "evaluation.json")
        accuracy, images = float(kept["accuracy"]), int(kept["images"])
        return (accuracy, images) if 0 <= accuracy <= 1 else None
    except (FileError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _read_own_json(folder: Path, name: str) -> Any:
    require_inside(folder, name)
    return read_json(folder / name)
