"""Experiments by name."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

from torchcaps.checks import require_choice
from torchcaps.errors import InputError
from torchcaps.experiments import catalogue

if TYPE_CHECKING:
    from torchcaps.experiments.base import Experiment

_experiments: dict[str, Experiment] = {}


def register_experiment(experiment: Experiment) -> Experiment:
    """Make an experiment known by its name to :func:`list_experiments` and :func:`get_experiment`; returns it."""
    if experiment.name in _experiments:
        raise InputError(f"an experiment named {experiment.name!r} is already registered; choose another name.")
    _experiments[experiment.name] = experiment
    return experiment


@functools.cache
def _load_catalogue() -> None:
    """Let the experiments of the package register themselves; not before somebody asks, as they need much else."""
    for module in pkgutil.iter_modules(catalogue.__path__):
        importlib.import_module(f"{catalogue.__name__}.{module.name}")


def list_experiments() -> dict[str, str]:
    """The names of all registered experiments, each with a line on what is compared."""
    _load_catalogue()
    return {name: _experiments[name].summary for name in sorted(_experiments)}


def get_experiment(name: str) -> Experiment:
    """A registered experiment by name."""
    _load_catalogue()
    require_choice("experiment", name, _experiments)
    return _experiments[name]
