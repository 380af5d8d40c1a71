"""Every routing of the library on one trunk, with the same budget, beside a CNN of as many parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torchcaps.experiments.base import (
    BATCH,
    CNN,
    FULL,
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
from torchcaps.experiments.measures import measure_affine_error, measure_error
from torchcaps.experiments.registry import register_experiment
from torchcaps.experiments.step_cost import PROCESSES, ROUNDS, TrainingStep, measure_steps
from torchcaps.run import Run

ROUTINGS = ("dynamic", "optimized", "kmeans", "em", "uniform", "random", "frozen")
LOSSES = {"em": "spread", CNN: "cross-entropy"}  # with the margin loss EM does not learn in so few steps
FROZEN_AFTER = 0.48  # of all batches
TRAINING_IMAGES = {"mnist": 60_000, "fashion-mnist": 60_000, "mnist-mini": 5_000}


def frozen_batches(setting: Setting) -> int:
    """After how many batches the couplings are frozen."""
    in_an_epoch = math.ceil(TRAINING_IMAGES[setting.data or "mnist"] / BATCH)
    return max(1, round(FROZEN_AFTER * setting.budget.epochs * in_an_epoch))


def _keys(name: str, seed: int, setting: Setting) -> Keys:
    """What a variant changes; what is random about ``random`` is part of the seed."""
    keys: dict[str, Any] = {} if name == CNN else {"model.options.routing.name": name}
    if name == "random":
        keys["model.options.routing.seed"] = seed
    if name == "frozen":
        keys["model.options.routing.after"] = frozen_batches(setting)
    if name in LOSSES:
        keys["loss.kind"] = LOSSES[name]
    return keys


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    return {
        "accuracy_percent": 100 - measure_error(runs["run"], context, "mnist"),
        "affine_accuracy_percent": 100 - measure_affine_error(runs["run"], context, "mnist"),
    }


def _trials(setting: Setting) -> list[Trial]:
    trials = []
    for name, _, seed in for_each(dict.fromkeys((*ROUTINGS, CNN)), setting.seeds):
        run = setting.training("mnist", seed, _keys(name, seed, setting), _model(setting, name))
        trials.append(Trial(name, seed, {"run": run}, _measure))
    return trials


def _model(setting: Setting, variant: str) -> str:
    return setting.budget.cnn if variant == CNN else setting.budget.model


def _together(context: Context) -> Mapping[str, Numbers]:
    steps = {
        name: TrainingStep(
            _model(context.setting, name), {} if name == CNN else {"routing": name}, LOSSES.get(name, "margin")
        )
        for name in (*ROUTINGS, CNN)
    }
    return measure_steps(steps, context.progress("timing", len(steps) * (ROUNDS + PROCESSES)))


EXPERIMENT = Experiment(
    name="routings",
    summary="every routing, and uniform, random and frozen coupling, on one trunk; accuracy, time, memory",
    title="Every routing on one trunk",
    question=(
        "Test accuracy on MNIST and on affine versions of its test digits; time of a training step of 128 digits, "
        "measured side by side in one process, and the memory that it takes at its peak, each in a process of its own. "
        "Uniform, random and frozen coupling decide nothing about an image: they show what routing adds. Frozen is the "
        f"mean coupling of dynamic routing after {FROZEN_AFTER:.0%} of the batches, kept from then on. EM is trained "
        "with the spread loss, as its paper does (margin 0.9), the CNN with cross-entropy, all others with the margin "
        "loss."
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
        Column("threads", "threads", digits=0, once=True, drawn=False),
        Column("parameters", "parameters", digits=0, once=True, drawn=False),
    ),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
    together=_together,
)
register_experiment(EXPERIMENT)
