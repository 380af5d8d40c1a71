"""The experiments that `torchcaps reproduce` runs, by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from torchcaps.checks import require_choice

if TYPE_CHECKING:
    from torchcaps.experiments.base import Experiment

SUMMARIES = {
    "routing-reconstruction": "iterations 1 and 3, with and without reconstruction, on MNIST and MultiMNIST",
    "routing-vs-backprop": "routing alone on untrained weights, and with backpropagation, on Fashion-MNIST",
    "routings": "every routing, and uniform, random and frozen coupling, on one trunk; accuracy, time, memory",
    "components": "transform, routing, squash, margin loss, reconstruction taken out one by one",
    "affine": "trained on shifted digits, tested on affine ones, beside a CNN",
    "robustness": "FGSM, PGD and the one-pixel attack, beside a CNN",
    "clustering": "soft k-means, Gaussian mixture, dynamic and optimised routing on the same points",
    "squashes": "the kinds of squash",
}


def list_experiments() -> dict[str, str]:
    """Names, each with a line on what is compared."""
    return dict(SUMMARIES)


def get_experiment(name: str) -> Experiment:
    """An experiment by name; its module is imported when it is needed."""
    require_choice("experiment", name, SUMMARIES)
    module = importlib.import_module(f"torchcaps.experiments.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment
