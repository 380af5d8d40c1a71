"""What the sections of a report are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from torchcaps.analysis.answers import ImageAnswers, TextAnswers, choose_cases
from torchcaps.models.base import Decoder, find_decoder
from torchcaps.report.facts import Facts
from torchcaps.training.tasks import ImageTask, TextTask

RIGHT, WRONG = 10, 8
"""So many cases are shown."""


@dataclass(frozen=True)
class GivenImages:
    """A model of images and its answers.

    Args:
        model: in evaluation mode.
        task: what the model is for.
        answers: on test images.
        facts: about the model.
        seed: of all that is random.
    """

    model: nn.Module
    task: ImageTask
    answers: ImageAnswers
    facts: Facts
    seed: int

    @property
    def decoder(self) -> Decoder | None:
        """What draws images from class capsules, if the model has it."""
        return find_decoder(self.model)

    @property
    def patches(self) -> int:
        """Of each image, whose scores an evaluation averages. Here only the central one is looked at."""
        return self.task.patches

    def cases(self) -> tuple[list[int], list[int]]:
        """Positions of the right and of the wrong answers that are shown."""
        return choose_cases(self.answers, RIGHT, WRONG)


@dataclass(frozen=True)
class GivenTexts:
    """A model of texts and its answers.

    Args:
        model: in evaluation mode.
        task: how the model reads texts.
        answers: on test texts.
        facts: about the model.
        seed: of all that is random.
    """

    model: nn.Module
    task: TextTask
    answers: TextAnswers
    facts: Facts
    seed: int


def describe_answer(answers: ImageAnswers, index: int) -> tuple[str, str, str]:
    """Labels, predictions in the labels' order, and their scores."""
    labels, predictions = (_names(answers, part[index].tolist()) for part in (answers.labels, answers.predictions))
    scores = answers.scores[index, answers.predictions[index]].tolist()
    return " + ".join(labels), " + ".join(predictions), " + ".join(f"{score:.2f}" for score in scores)


def case_numbers(answers: ImageAnswers, index: int) -> dict[str, Any]:
    """A case for ``numbers.json``; ``image`` counts in the test set."""
    return {
        "image": int(answers.indices[index]),
        "labels": _names(answers, answers.labels[index].tolist()),
        "predictions": _names(answers, answers.predictions[index].tolist()),
        "scores": [float(score) for score in answers.scores[index, answers.predictions[index]]],
    }


def _names(answers: ImageAnswers, classes: list[int]) -> list[str]:
    return [answers.class_names[k] for k in classes]
