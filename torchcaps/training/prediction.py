"""Ask a trained model about what a user has: images or texts, one after the other, however many."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.training.evaluation import find_device
from torchcaps.training.tasks import Task

OnError = Callable[[str, TorchcapsError], None]
"""Told what an input is called that cannot be read, and why."""


class Prediction(NamedTuple):
    """What a model says about one image or text.

    Attributes:
        item: the file's name, the text, or the image's number.
        labels: all classes, by falling score.
        scores: theirs: lengths of the class capsules, or probabilities.
    """

    item: str
    labels: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def label(self) -> str:
        """The class with the highest score."""
        return self.labels[0]

    @property
    def score(self) -> float:
        """Of that class."""
        return self.scores[0]


class NumberedItem(NamedTuple):
    """A single input, and its number among all that were given, from 0."""

    number: int
    item: Any


def number_items(task: Task, inputs: Any, on_error: OnError | None = None) -> Iterator[NumberedItem]:
    """Single inputs from any iterable, each when it is asked for.

    Args:
        task: knows what an input is.
        inputs: one of them, many in one array, or an iterable of such.
        on_error: told of what is no input, which still has a number; not given: it is raised.
    """
    array = isinstance(inputs, (Tensor, str, bytes, os.PathLike)) or hasattr(inputs, "__array_interface__")
    number = 0
    for given in inputs if isinstance(inputs, Iterable) and not array else [inputs]:
        try:
            items = task.list_items(given)
        except TorchcapsError as error:
            if on_error is None:
                raise
            on_error(f"input {number + 1}", error)
            number += 1
            continue
        for item in items:
            yield NumberedItem(number, item)
            number += 1


def answer_items(
    model: nn.Module,
    task: Task,
    items: Iterable[NumberedItem],
    on_error: OnError | None = None,
    size: int | None = None,
) -> Generator[Prediction, None, None]:
    """What a model says about inputs, in their order; no more are held than are answered together.

    Args:
        model: in evaluation mode.
        task: what it is for.
        items: single inputs.
        on_error: told of each that cannot be read, which is left out; not given: the first is raised.
        size: inputs that are answered together; not given: as the task has it.
    """
    waiting, device = iter(items), find_device(model)
    while some := list(islice(waiting, size or task.at_a_time)):
        names = [task.name_item(item, number) for number, item in some]
        tell = None if on_error is None else _tell_by_name(names, on_error)
        answers: dict[int, Prediction] = {}
        for part in task.read_items([item for _, item in some], tell):
            scores = task.score(model, part.inputs.to(device)).cpu()
            order = scores.argsort(dim=1, descending=True)
            for place, row, ranks in zip(part.places, scores, order, strict=True):
                labels = tuple(task.class_names[k] for k in ranks)
                answers[place] = Prediction(names[place], labels, tuple(row[ranks].tolist()))
        yield from (answers[place] for place in sorted(answers))


def _tell_by_name(names: list[str], on_error: OnError) -> Callable[[int, TorchcapsError], None]:
    return lambda place, error: on_error(names[place], error)
