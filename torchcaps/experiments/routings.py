"""Every routing of the library on one trunk, with the same budget, beside a CNN of as many parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchcaps.experiments.base import FULL, QUICK, Column, Context, Experiment, Numbers, Setting, Trial, for_each
from torchcaps.experiments.measures import affine_error, error_of_run
from torchcaps.experiments.step_cost import step_costs

CNN = "CNN"
ROUTINGS = ("dynamic", "optimized", "kmeans", "em", "uniform", "random", "frozen")
LOSSES = {"em": "spread", CNN: "cross-entropy"}  # with the margin loss EM does not learn in so few steps
VARIANTS = {
    name: (
        *((f"--model.options.routing.name={name}",) if name != CNN else ()),
        *((f"--loss.kind={LOSSES[name]}",) if name in LOSSES else ()),
    )
    for name in (*ROUTINGS, CNN)
}


def _measure(runs: Mapping[str, Path], context: Context) -> Numbers:
    return {
        "accuracy_percent": 100 - error_of_run(runs["run"], context.setting, "mnist"),
        "affine_accuracy_percent": 100 - affine_error(runs["run"], context.setting, "mnist"),
    }


def _trials(setting: Setting) -> list[Trial]:
    return [
        Trial(name, seed, {"run": setting.training("mnist", seed, *keys, model=_model(setting, name))}, _measure)
        for name, keys, seed in for_each(VARIANTS, setting.seeds)
    ]


def _model(setting: Setting, variant: str) -> str:
    return setting.budget.cnn if variant == CNN else setting.budget.model


def _together(setting: Setting) -> Mapping[str, Numbers]:
    models = {name: (_model(setting, name), {"routing": name} if name != CNN else {}) for name in VARIANTS}
    return step_costs(models)


EXPERIMENT = Experiment(
    name="routings",
    title="Every routing on one trunk",
    question=(
        "Test accuracy on MNIST and on affine versions of its test digits; time of a training step of 128 digits, "
        "measured side by side in one process, and the memory that it takes at its peak, each in a process of its own. "
        "Uniform, random and frozen coupling decide nothing about an image: they show what routing adds. EM is trained "
        "with the spread loss of its paper, the CNN with cross-entropy, all others with the margin loss."
    ),
    credit=(
        "After Paik, Kwak and Kim 2019, who find that uniform and random coupling often do as well as routing. Their "
        "networks differ, so their numbers are not put beside these."
    ),
    columns=(
        Column("accuracy_percent", "accuracy, %"),
        Column("affine_accuracy_percent", "affine accuracy, %"),
        Column("step_milliseconds", "ms/step", digits=1, once=True),
        Column("step_megabytes", "peak MB", digits=0, once=True),
        Column("parameters", "parameters", digits=0, once=True),
    ),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
    together=_together,
)
