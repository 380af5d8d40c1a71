"""Table 1 of Sabour et al. 2017: iterations of routing, with and without reconstruction."""

from __future__ import annotations

from collections.abc import Mapping

from torchcaps.experiments.base import (
    CNN,
    CROSS_ENTROPY,
    DYNAMIC,
    PAPER,
    QUICK,
    Column,
    Context,
    Experiment,
    Keys,
    Numbers,
    Setting,
    Trial,
    for_each,
)
from torchcaps.experiments.measures import measure_error
from torchcaps.experiments.registry import register_experiment
from torchcaps.run import Run

ONCE: Keys = {"model.options.routing.iterations": 1}
WITHOUT: Keys = {"model.options.decoder": False}
VARIANTS: dict[str, Keys] = {
    CNN: {},
    "1 iteration, without": {**ONCE, **WITHOUT},
    "1 iteration, with": ONCE,
    "3 iterations, without": WITHOUT,
    "3 iterations, with": {},
}


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    names = {"mnist": "mnist", "multi_mnist": "multi-mnist"}
    return {f"{key}_error_percent": measure_error(runs[key], context, name) for key, name in names.items()}


def _trials(setting: Setting) -> list[Trial]:
    trials = []
    for variant, keys, seed in for_each(VARIANTS, setting.seeds):
        cnn = variant == CNN
        model, first = (setting.budget.cnn, CROSS_ENTROPY) if cnn else (setting.budget.model, DYNAMIC)
        trainings = {
            "mnist": setting.training("mnist", seed, {**first, **keys}, model),
            "multi_mnist": setting.training("multi-mnist", seed, {**first, **keys}, model),
        }
        trials.append(Trial(variant, seed, trainings, _measure))
    return trials


EXPERIMENT = Experiment(
    name="routing-reconstruction",
    summary="iterations 1 and 3, with and without reconstruction, on MNIST and MultiMNIST",
    title="Iterations of routing, with and without reconstruction",
    question="Test error. MultiMNIST is strict: both digits must be right.",
    credit=(
        "Published: Sabour, Frosst and Hinton 2017, table 1, with the large network, after many epochs; their CNN for "
        "MultiMNIST is another and larger one than for MNIST. The full budget is the paper's capsule network and its "
        "recipe, with the CNN for MNIST in both."
    ),
    columns=(
        Column(
            "mnist_error_percent",
            "MNIST error, %",
            published=dict(zip(VARIANTS, ("0.39", "0.34 ± 0.032", "0.29 ± 0.011", "0.35 ± 0.036", "0.25 ± 0.005"),
                               strict=True)),
        ),
        Column(
            "multi_mnist_error_percent",
            "MultiMNIST error, %",
            published={CNN: "8.1", "1 iteration, with": "7.5", "3 iterations, with": "5.2"},
        ),
    ),
    budgets={"quick": QUICK, "full": PAPER},
    trials=_trials,
)  # fmt: skip
register_experiment(EXPERIMENT)
