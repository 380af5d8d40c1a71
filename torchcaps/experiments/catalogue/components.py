"""The five components that make a capsule network differ from a CNN, taken out one by one (after Gu et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping

from torchcaps.experiments.base import (
    CROSS_ENTROPY,
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
from torchcaps.experiments.catalogue.squashes import squash_keys
from torchcaps.experiments.measures import measure_affine_error, measure_error
from torchcaps.experiments.registry import register_experiment
from torchcaps.run import Run

VARIANTS: dict[str, Keys] = {
    "all of them": DYNAMIC,
    "one transform for all parts": {**DYNAMIC, "model.options.shared": True},
    "uniform coupling, no routing": {"model.options.routing.name": "uniform"},
    "no squash": squash_keys("none"),
    "cross-entropy, no margin loss": {**DYNAMIC, **CROSS_ENTROPY},
    "no reconstruction": {**DYNAMIC, "model.options.decoder": False},
}


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    return {
        "clean_error_percent": measure_error(runs["digits"], context, "mnist"),
        "affine_error_percent": measure_affine_error(runs["digits"], context, "mnist"),
        "overlap_error_percent": measure_error(runs["pairs"], context, "multi-mnist"),
    }


def _trials(setting: Setting) -> list[Trial]:
    trials = []
    for variant, keys, seed in for_each(VARIANTS, setting.seeds):
        trainings = {
            "digits": setting.training("mnist", seed, keys),
            "pairs": setting.training("multi-mnist", seed, keys),
        }
        trials.append(Trial(variant, seed, trainings, _measure))
    return trials


EXPERIMENT = Experiment(
    name="components",
    summary="transform, routing, squash, margin loss, reconstruction taken out one by one",
    title="Components taken out one by one",
    question=(
        "Test error on MNIST (clean), on affine versions of its test digits (trained on small shifts only), "
        "and of a network trained on MultiMNIST (overlap; both digits must be right). Without a transform of its own a "
        "part has the same matrix as all others; with none at all every whole would get the same votes. Cross-entropy "
        "takes the lengths as logits, and as they are below 1 it can never be sure; of two digits each has half of the "
        "probability."
    ),
    credit=(
        "After Gu, Tresp and Hu 2021, who find that routing and transforms can harm robustness, and that the other "
        "three help. Their networks and training differ, so their numbers are not put beside these."
    ),
    columns=(
        Column("clean_error_percent", "clean error, %"),
        Column("affine_error_percent", "affine error, %"),
        Column("overlap_error_percent", "overlap error, %"),
    ),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
)
register_experiment(EXPERIMENT)
