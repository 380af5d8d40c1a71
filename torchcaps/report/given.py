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
NONE = "none"
"""Said of an image without any of the classes."""


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
    labels, predictions = _list_classes(answers, index)
    shown, said = (" + ".join(answers.class_names[k] for k in classes) or NONE for classes in (labels, predictions))
    scores = " + ".join(f"{score:.2f}" for score in answers.scores[index, predictions].tolist())
    return shown, said, scores or f"at most {float(answers.scores[index].max()):.2f}"


def case_numbers(answers: ImageAnswers, index: int) -> dict[str, Any]:
    """A case for ``numbers.json``; ``image`` counts in the test set."""
    labels, predictions = _list_classes(answers, index)
    return {
        "image": int(answers.indices[index]),
        "labels": [answers.class_names[k] for k in labels],
        "predictions": [answers.class_names[k] for k in predictions],
        "scores": [float(score) for score in answers.scores[index, predictions]],
    }


def _list_classes(answers: ImageAnswers, index: int) -> tuple[list[int], list[int]]:
    """The classes of an image and those that are predicted; of any number of labels perhaps none."""
    if answers.multi_label:
        labels, found = (flags[index].nonzero()[:, 0] for flags in (answers.label_flags, answers.predicted_flags))
        return labels.tolist(), found.tolist()
    return answers.labels[index].tolist(), answers.predictions[index].tolist()
