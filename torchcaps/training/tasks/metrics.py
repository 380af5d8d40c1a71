"""When is an answer right? For one class, for several objects, and for any number of labels."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from torchcaps.models.output import ModelOutput
from torchcaps.training.tasks.calibration import measure_calibration

PRESENT = 0.5
"""A class is said to be present if its capsule is longer, or its probability larger, than this."""
TOP = (3, 5)
"""The label is looked for among so many largest scores, where there are more classes than that."""


def probabilities(output: ModelOutput, multi_label: bool = False) -> Tensor:
    """Lengths of the class capsules, or a model's logits as probabilities: ``[B, K]``."""
    if output.capsules is not None:
        return output.scores
    return output.scores.sigmoid() if multi_label else output.scores.softmax(dim=1)


def choose_classes(scores: Tensor, labels: Tensor) -> Tensor:
    """The classes that a model answers, as flags bool ``[N, K]``: as many as there are labels, or those present.

    Shapes:
        scores ``[N, K]``; labels ``[N]``, ``[N, M]``, or flags bool ``[N, K]``.
    """
    if labels.dtype == torch.bool:
        return scores > PRESENT
    chosen = scores.topk(1 if labels.dim() == 1 else labels.shape[1], dim=1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, chosen, True)


def flag_labels(labels: Tensor, classes: int) -> Tensor:
    """Labels in any of the forms that :func:`choose_classes` takes, as flags bool ``[N, K]``."""
    if labels.dtype == torch.bool:
        return labels
    flags = torch.zeros(len(labels), classes, dtype=torch.bool, device=labels.device)
    return flags.scatter_(1, labels.view(len(labels), -1), True)


def find_correct(scores: Tensor, labels: Tensor) -> Tensor:
    """Which answers are right, float ``[N]``: exactly the classes that are there must be found.

    Labels ``[N]``: the largest score is the label's. ``[N, M]``: the M largest are those of the M labels. Flags bool
    ``[N, K]``: exactly the classes with a flag are present (exact match); scores are then probabilities.
    """
    if labels.dim() == 1:  # the same in one pass, since every training step asks
        return (scores.argmax(dim=1) == labels).float()
    return (choose_classes(scores, labels) == flag_labels(labels, scores.shape[1])).all(dim=1).float()


def grade(output: ModelOutput, labels: Tensor) -> Tensor:
    """Which answers of a model are right; see :func:`find_correct`."""
    return find_correct(probabilities(output, True) if labels.dtype == torch.bool else output.scores, labels)


def measure_answers(scores: Tensor, labels: Tensor, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Accuracy, balanced accuracy, calibration, and for each class precision, recall, F1 and how many items have it.

    Beside them ``answered``, how many items a class is said of. What is never said has precision 0. Balanced accuracy
    is the mean recall of the classes that come among the labels; macro precision, recall and F1 are means over the
    classes that come among labels or answers, whatever their sizes.

    Where an item has one label there is a confusion matrix, a row for each label and a column for each answer, and of
    more than k classes the share of items whose label is among the k largest scores (k of :data:`TOP`); for
    several objects the share of them that is found; for any number of labels the exact match, and precision, recall
    and F1 over all decisions (micro) and as means over the items (samples); an item without labels for which nothing is
    said has all three 1.

    Calibration is in ``calibration_error`` and ``reliability``, see :func:`~.calibration.measure_calibration`.

    Shapes:
        scores ``[N, K]`` as probabilities; labels ``[N]``, ``[N, M]``, or flags bool ``[N, K]``.
    """
    accuracy = float(find_correct(scores, labels).double().mean())
    measures: dict[str, Any] = {"accuracy": accuracy, "error_percent": 100 * (1 - accuracy)}
    chosen, flags = choose_classes(scores, labels), flag_labels(labels, scores.shape[1])
    per_class = _measure_classes(chosen, flags, class_names)
    measures |= _average_classes(per_class)
    if labels.dtype == torch.bool:
        measures |= {"exact_match": accuracy, **_measure_labels(chosen, flags)}
    else:
        if labels.dim() == 2:
            measures["share_of_objects_found"] = float((chosen & flags).sum() / flags.sum())
        else:
            measures |= _measure_top(scores, labels)
        measures["accuracy_per_class"] = {name: row["recall"] for name, row in per_class.items() if row["count"]}
    measures["per_class"] = per_class
    if labels.dim() == 1:
        measures["confusion_matrix"] = _count_confusions(scores, labels).tolist()
    return measures | measure_calibration(scores, labels if labels.dim() == 1 else flags)


def find_unanswered(measures: Mapping[str, Any]) -> dict[str, int]:
    """The classes that some items have and that no item is said to have, with how many have them."""
    rows: Mapping[str, Mapping[str, Any]] = measures["per_class"]
    return {name: row["count"] for name, row in rows.items() if row["count"] and not row["answered"]}


def _measure_classes(chosen: Tensor, flags: Tensor, class_names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    from torchmetrics.functional import classification

    kind, options = ("multilabel", {"num_labels": len(class_names), "average": None})
    if len(class_names) == 1:
        kind, options = "binary", {}
    measure = {name: getattr(classification, f"{kind}_{name}") for name in ("precision", "recall", "f1_score")}
    columns = {
        name.removesuffix("_score"): compute(chosen.int(), flags.int(), **options).reshape(-1).tolist()
        for name, compute in measure.items()
    }
    columns |= {"count": flags.sum(dim=0).tolist(), "answered": chosen.sum(dim=0).tolist()}
    return {name: {key: column[at] for key, column in columns.items()} for at, name in enumerate(class_names)}


def _average_classes(per_class: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Means over the classes, each as important as any other."""
    there = [row for row in per_class.values() if row["count"] or row["answered"]]
    labelled = [row["recall"] for row in there if row["count"]]
    if not labelled:  # no item has any class
        return {}
    macro = {f"macro_{name}": fmean(row[name] for row in there) for name in ("precision", "recall", "f1")}
    return {"balanced_accuracy": fmean(labelled), **macro}


def _measure_top(scores: Tensor, labels: Tensor) -> dict[str, float]:
    from torchmetrics.functional.classification import multiclass_accuracy

    classes = scores.shape[1]
    return {
        f"top_{k}_accuracy": float(multiclass_accuracy(scores, labels, classes, average="micro", top_k=k))
        for k in TOP
        if classes > k
    }


def _measure_labels(chosen: Tensor, flags: Tensor) -> dict[str, float]:
    """Over all decisions, and as means over the items."""
    from torchmetrics.functional.classification import binary_f1_score, binary_precision, binary_recall

    kinds = {"precision": binary_precision, "recall": binary_recall, "f1": binary_f1_score}
    pair = chosen.int(), flags.int()
    overall = {name: float(measure(*pair)) for name, measure in kinds.items()}
    neither = ~(chosen | flags).any(dim=1)  # nothing is there and nothing is said, which is right
    return overall | {
        f"{name}_of_samples": float(measure(*pair, multidim_average="samplewise").masked_fill(neither, 1).mean())
        for name, measure in kinds.items()
    }


def _count_confusions(scores: Tensor, labels: Tensor) -> Tensor:
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    return multiclass_confusion_matrix(scores.argmax(dim=1), labels, num_classes=scores.shape[1])
