"""Ask a trained model about data. Plain torch, without Lightning."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.batches import EvaluationBatches
from torchcaps.data.images import Source
from torchcaps.progress import Progress, silent
from torchcaps.training.errors import RunError
from torchcaps.training.tasks import Task


class Answers(NamedTuple):
    """Scores of every item ``[N, K]`` and its labels, in the order of the batches."""

    scores: Tensor
    labels: Tensor


def find_device(model: nn.Module) -> torch.device:
    """Where a model's weights are."""
    return next((weights.device for weights in model.parameters()), torch.device("cpu"))


def answer_source(model: nn.Module, task: Task, source: Source, progress: Progress = silent) -> Answers:
    """What a model says about all items of a source."""
    if not len(source):
        raise RunError(f"there are no test {source.kind}.")
    tick, device = progress("testing", len(source)), find_device(model)
    scores, labels = [], []
    for batch in EvaluationBatches(source):
        scores.append(task.score(model, batch.inputs.to(device)).cpu())
        labels.append(batch.labels)
        tick(len(batch.labels))
    return Answers(torch.cat(scores), torch.cat(labels))


def measure_source(model: nn.Module, task: Task, source: Source, progress: Progress = silent) -> dict[str, Any]:
    """How well a model does on a source: how many items there are, and the measures of its task."""
    answers = answer_source(model, task, source, progress)
    return {source.kind: len(source), **task.measure(answers.scores, answers.labels)}
