"""Adversarial attacks on capsules and on a CNN of as many parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchcaps.analysis.attacks import fgsm, one_pixel, pgd, robust_accuracy
from torchcaps.experiments.base import FULL, QUICK, Column, Context, Experiment, Numbers, Setting, Trial, beside_a_cnn
from torchcaps.experiments.measures import load_images, take_first
from torchcaps.experiments.registry import register_experiment
from torchcaps.run import Run

EPSILON = 0.1
PGD_STEPS = 20
AT_A_TIME = 250
ONE_PIXEL_PART = 5  # all places and values of an image are tried, so that fewer images must do


def _measure(runs: Mapping[str, Run], context: Context) -> Numbers:
    model = runs["run"].model
    source = take_first(load_images(context.setting, "mnist"), context.setting.budget.images)
    images, labels, _ = source.batch(torch.arange(len(source)), 0)
    tick = context.progress("attacking", len(images))
    right = {"clean": 0.0, "fgsm": 0.0, "pgd": 0.0}
    for some, names in zip(torch.split(images, AT_A_TIME), torch.split(labels, AT_A_TIME), strict=True):
        attacked = {
            "clean": some,
            "fgsm": fgsm(model, some, names, EPSILON),
            "pgd": pgd(model, some, names, EPSILON, PGD_STEPS),
        }
        for key, changed in attacked.items():
            right[key] += len(some) * robust_accuracy(model, changed, names)
        tick(len(some))
    numbers = {f"{key}_accuracy_percent": 100 * count / len(images) for key, count in right.items()}
    few = max(1, len(images) // ONE_PIXEL_PART)
    each = context.progress("one pixel", few)
    touched = one_pixel(model, images[:few], labels[:few], progress=lambda _: each(1))
    numbers["one_pixel_clean_accuracy_percent"] = 100 * robust_accuracy(model, images[:few], labels[:few])
    numbers["one_pixel_accuracy_percent"] = 100 * robust_accuracy(model, touched.images, labels[:few])
    return numbers


def _trials(setting: Setting) -> list[Trial]:
    return beside_a_cnn(setting, "mnist", _measure)


EXPERIMENT = Experiment(
    name="robustness",
    summary="FGSM, PGD and the one-pixel attack, beside a CNN",
    title="Adversarial attacks",
    question=(
        f"Accuracy on MNIST test digits after an attack that may change every pixel by {EPSILON} (FGSM; PGD with "
        f"{PGD_STEPS} steps), or one pixel to black or white (every place is tried). Each attack raises the "
        "difference between the best wrong score and the right one, the same for both networks. Quick: the first 500 "
        "test digits, and of them the first 100, a fifth, for the one-pixel attack; full: 10,000 and 2,000."
    ),
    credit=(
        "Attacks: Goodfellow et al. 2015 (FGSM), Madry et al. 2018 (PGD), Su, Vargas and Sakurai 2017 (one pixel). "
        "Those papers attack other networks on other data, so their numbers are not put beside these."
    ),
    columns=(
        Column("clean_accuracy_percent", "clean, %"),
        Column("fgsm_accuracy_percent", f"FGSM {EPSILON}, %"),
        Column("pgd_accuracy_percent", f"PGD {EPSILON}, %"),
        Column("one_pixel_clean_accuracy_percent", "clean, a fifth, %"),
        Column("one_pixel_accuracy_percent", "one pixel, %"),
    ),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
)
register_experiment(EXPERIMENT)
