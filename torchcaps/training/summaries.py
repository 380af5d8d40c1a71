"""The end of the story: what ``summary.json`` of a run folder says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torchcaps.io import write_json
from torchcaps.models.cnn import parameter_count
from torchcaps.training.callbacks import EpochLog
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipe import Recipe

SUMMARY = "summary.json"
REPORTED = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "val_balanced_accuracy")


def make_summary(recipe: Recipe, module: CapsuleModule, log: EpochLog, seconds: float) -> dict[str, Any]:
    """How a training went.

    Args:
        recipe: of the run.
        module: with its model.
        log: with a row for every epoch.
        seconds: that this session took.
    """
    last = log.rows[-1] if log.rows else {}
    kept = log.rows[log.best_epoch()] if log.rows and recipe.training.keep == "best" else last
    training_seconds = sum(row["seconds"] for row in log.rows)
    seen = len(log.rows) * (len(module.train_source) // recipe.training.batch_size) * recipe.training.batch_size
    return {
        "model": recipe.model.name,
        "parameters": parameter_count(module.model),
        "epochs": len(log.rows),
        "stopped_early": len(log.rows) < recipe.training.epochs,
        **({"kept_epoch": log.best_epoch() + 1} if recipe.training.keep == "best" and log.rows else {}),
        "steps": int(last.get("step", 0)),
        **{key: kept[key] for key in REPORTED if key in kept},
        "training_seconds": round(training_seconds, 1),
        f"{module.train_source.kind}_per_second": round(seen / training_seconds, 1) if training_seconds else None,
        "wall_seconds_of_this_session": round(seconds, 1),
        "peak_memory_gb": measure_peak_memory(),
    }


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Into a run folder."""
    write_json(folder / SUMMARY, summary)


def measure_peak_memory() -> float | None:
    """The most memory that this process has held; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**30 if sys.platform == "darwin" else 2**20), 3)
