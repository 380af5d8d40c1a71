"""Trained on shifted digits, tested on affine ones (Sabour et al. 2017, §5.2)."""

from __future__ import annotations

from collections.abc import Mapping

from torchcaps.data.synthetic.composed import ShiftedDigits
from torchcaps.experiments.base import (
    CAPSULES,
    CNN,
    FULL,
    QUICK,
    Column,
    Context,
    Experiment,
    Numbers,
    Setting,
    Trial,
    beside_a_cnn,
)
from torchcaps.experiments.measures import load_images, measure_error
from torchcaps.experiments.registry import register_experiment
from torchcaps.run import Run


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    shifted = ShiftedDigits(load_images(context.setting, "affine-mnist"))
    return {
        "shifted_accuracy_percent": 100 * runs["run"].measure(shifted, context.progress)["accuracy"],
        "affine_accuracy_percent": 100 - measure_error(runs["run"], context, "affine-mnist"),
    }


def _trials(setting: Setting) -> list[Trial]:
    return beside_a_cnn(setting, "affine-mnist", _measure)


EXPERIMENT = Experiment(
    name="affine",
    summary="trained on shifted digits, tested on affine ones, beside a CNN",
    title="From shifted digits to affine ones",
    question=(
        "Test accuracy of networks that have seen digits shifted on a 40×40 canvas: on such digits (up to 6 pixels), "
        "and on digits that are shifted less (up to 4) but also rotated, sheared and scaled. Both networks have the "
        "same number of parameters and of epochs."
    ),
    credit=(
        "Published: Sabour, Frosst and Hinton 2017, §5.2, on affNIST, with networks stopped at the same accuracy on "
        "shifted digits. The affine digits here are made in the manner of affNIST, and are not it."
    ),
    columns=(
        Column("shifted_accuracy_percent", "shifted, %", published={CAPSULES: "99.23", CNN: "99.22"}),
        Column("affine_accuracy_percent", "affine, %", published={CAPSULES: "79", CNN: "66"}),
    ),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
)
register_experiment(EXPERIMENT)
