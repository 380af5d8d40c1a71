"""The experiments that `torchcaps reproduce` runs, by name, and those that a user registers."""

from torchcaps.experiments.registry import get_experiment, list_experiments, register_experiment

__all__ = ["get_experiment", "list_experiments", "register_experiment"]
