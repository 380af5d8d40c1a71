"""The experiments that `torchcaps reproduce` runs, by name, those that a user registers, and comparisons of models."""

from torchcaps.experiments.comparison import Comparison, compare_models
from torchcaps.experiments.registry import get_experiment, list_experiments, register_experiment

__all__ = ["Comparison", "compare_models", "get_experiment", "list_experiments", "register_experiment"]
