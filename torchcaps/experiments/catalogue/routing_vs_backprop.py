"""Routing alone on untrained weights, and routing with backpropagation, on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis.probes import fit_ridge
from torchcaps.data.batches import EvaluationBatches
from torchcaps.data.images import ImageSource
from torchcaps.experiments.base import (
    DYNAMIC,
    FULL,
    QUICK,
    Column,
    Context,
    Experiment,
    Measure,
    Numbers,
    Setting,
    Trial,
    for_each,
)
from torchcaps.experiments.measures import load_images, take_first
from torchcaps.experiments.registry import register_experiment
from torchcaps.models import create_model
from torchcaps.run import Run
from torchcaps.training.tasks.metrics import find_correct

DATA = "fashion-mnist"
PROBE_IMAGES = 10_000
RIDGE = 1e-3
LONG = 100.0
ALONE = {
    "routing alone, 1 iteration": (1, 1.0),
    "routing alone, 3 iterations": (3, 1.0),
    "routing alone, 10 iterations": (10, 1.0),
    "routing alone, long votes, 1 iteration": (1, LONG),
    "routing alone, long votes, 3 iterations": (3, LONG),
    "routing alone, long votes, 10 iterations": (10, LONG),
}
"""Iterations, and what the votes' lengths are multiplied by: as they are drawn, they are too short to be routed."""


class ClassPoses(NamedTuple):
    """What the class capsules say about images: poses ``[N, J·D]``, lengths ``[N, J]`` and the labels ``[N]``."""

    poses: Tensor
    lengths: Tensor
    labels: Tensor


def collect_class_capsules(model: nn.Module, source: ImageSource, context: Context) -> ClassPoses:
    """The class capsules of all images."""
    tick = context.progress("looking", len(source))
    poses, lengths, labels = [], [], []
    with torch.inference_mode():
        for batch in EvaluationBatches(source):
            capsules = model(batch.inputs).capsules
            poses.append(capsules.pose.flatten(1))
            lengths.append(capsules.activation)
            labels.append(batch.labels)
            tick(len(batch.labels))
    return ClassPoses(torch.cat(poses), torch.cat(lengths), torch.cat(labels))


def measure_majority(known: ClassPoses, seen: ClassPoses) -> float:
    """Accuracy if every capsule is named by the class of most of the known images for which it is the longest.

    Routing without training cannot know which capsule should stand for which class; this asks whether it puts images
    of one class into one capsule, as one judges a clustering.
    """
    classes = known.lengths.shape[1]
    longest = known.lengths.argmax(dim=1)
    counts = torch.zeros(classes, int(known.labels.max()) + 1).index_put_(
        (longest, known.labels), torch.ones(len(longest)), accumulate=True
    )
    names = counts.argmax(dim=1)
    return float((names[seen.lengths.argmax(dim=1)] == seen.labels).double().mean())


def measure_probe(known: ClassPoses, seen: ClassPoses) -> float:
    """Accuracy of a linear classifier on the poses, fitted to the known images by ridge regression."""
    target = nn.functional.one_hot(known.labels)
    return _measure_accuracy(fit_ridge(known.poses, target, seen.poses, RIDGE), seen.labels)


def _measure_accuracy(scores: Tensor, labels: Tensor) -> float:
    return float(find_correct(scores, labels).double().mean())


def _measure(model: nn.Module, context: Context) -> Numbers:
    known = collect_class_capsules(
        model, take_first(load_images(context.setting, DATA, "train"), PROBE_IMAGES), context
    )
    seen = collect_class_capsules(model, take_first(load_images(context.setting, DATA), PROBE_IMAGES), context)
    return {
        "accuracy_percent": 100 * _measure_accuracy(seen.lengths, seen.labels),
        "majority_percent": 100 * measure_majority(known, seen),
        "probe_percent": 100 * measure_probe(known, seen),
    }


def _measure_untrained(iterations: int, longer: float, seed: int) -> Measure:
    def measure(_: Mapping[str, Run], context: Context) -> Numbers:
        data = load_images(context.setting, DATA)
        torch.manual_seed(seed)
        routing = {"name": "dynamic", "iterations": iterations}
        name, classes = context.setting.budget.model, len(data.class_names)
        model = create_model(name, data.image_shape, classes, routing=routing, decoder=False)
        with torch.no_grad():
            model.class_capsules.weight.mul_(longer)  # type: ignore[operator, union-attr]
        return _measure(model.eval(), context)

    return measure


def _measure_trained(runs: Mapping[str, Run], context: Context) -> Numbers:
    return _measure(runs["run"].model, context)


def _trials(setting: Setting) -> list[Trial]:
    trials = []
    for name, (iterations, longer), seed in for_each(ALONE, setting.seeds):
        trials.append(Trial(name, seed, {}, _measure_untrained(iterations, longer, seed)))
    for name, keys, seed in for_each(
        {
            "with backpropagation, 1 iteration": {**DYNAMIC, "model.options.routing.iterations": 1},
            "with backpropagation, 3 iterations": DYNAMIC,
        },
        setting.seeds,
    ):
        run = setting.training(DATA, seed, keys)
        trials.append(Trial(name, seed, {"run": run}, _measure_trained))
    return trials


EXPERIMENT = Experiment(
    name="routing-vs-backprop",
    summary="routing alone on untrained weights, and with backpropagation, on Fashion-MNIST",
    title="Routing alone, and with backpropagation",
    question=(
        "Test accuracy on Fashion-MNIST of the longest class capsule; of the capsules named after the class that most "
        "of their training images have, as a clustering is judged; and of a linear classifier fitted to the poses. "
        f"Chance is 10 %. With long votes the untrained weights of the class layer are multiplied by {LONG:.0f}: as "
        "they are drawn, the votes are so short that routing leaves all couplings uniform."
    ),
    credit="The comparison is of a lecture on capsules (2017), which shows it as pictures, without numbers.",
    columns=(
        Column("accuracy_percent", "accuracy, %"),
        Column("majority_percent", "named by majority, %"),
        Column("probe_percent", "linear classifier on poses, %"),
    ),
    budgets={"quick": QUICK, "full": FULL},
    trials=_trials,
)
register_experiment(EXPERIMENT)
