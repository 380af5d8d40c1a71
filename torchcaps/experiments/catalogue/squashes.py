"""The kinds of squash: what the sources name first among what is left to do."""

from __future__ import annotations

from collections.abc import Mapping

from torchcaps.experiments.base import (
    DYNAMIC,
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
from torchcaps.run import Run

PARTS_ONLY = "unit, of the parts only"
KINDS = {
    "sabour": "sabour",
    "exponential": "exponential",
    "half": "half",
    PARTS_ONLY: "unit",
    "none": "none",
}


def squash_keys(kind: str, parents: str | None = None) -> Keys:
    """Keys for a kind of squash of parts and wholes; none for the one that is there anyway, so that runs are shared."""
    if kind == "sabour":
        return DYNAMIC
    of_parents = parents or kind
    routing = {} if of_parents == "sabour" else {"model.options.routing.squash": of_parents}
    return {"model.options.squash": kind, **DYNAMIC, **routing}


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    return {
        "error_percent": measure_error(runs["run"], context, "mnist"),
        "affine_error_percent": measure_affine_error(runs["run"], context, "mnist"),
    }


def _trials(setting: Setting) -> list[Trial]:
    trials = []
    for variant, kind, seed in for_each(KINDS, setting.seeds):
        keys = squash_keys(kind, "sabour" if variant == PARTS_ONLY else None)
        trials.append(Trial(variant, seed, {"run": setting.training("mnist", seed, keys)}, _measure))
    return trials


EXPERIMENT = Experiment(
    name="squashes",
    summary="the kinds of squash",
    title="Kinds of squash",
    question=(
        "Test error on MNIST, and on affine versions of its test digits. A unit length says nothing about presence, so "
        "that kind is of the parts only; `none` leaves all poses as long as they are."
    ),
    credit=(
        "The kinds are those of Sabour et al. 2017, of Mazzia et al. 2021 (exponential), of text capsule code (half) "
        "and of Su Jianlin 2018 (unit). We know of no published comparison."
    ),
    columns=(Column("error_percent", "MNIST error, %"), Column("affine_error_percent", "affine error, %")),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
)
register_experiment(EXPERIMENT)
