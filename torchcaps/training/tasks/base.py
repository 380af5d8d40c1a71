"""What a task is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.dataset import Dataset, Files, Kind
from torchcaps.data.images import Source
from torchcaps.errors import TorchcapsError
from torchcaps.models.registry import Reads, input_kind, list_models
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.tasks.metrics import PRESENT, measure_answers, probabilities

OnBadItem = Callable[[int, TorchcapsError], None]
"""Told the place of an input that cannot be read, and why."""


class InputBatch(NamedTuple):
    """Some of the inputs that a model is asked about: their places in the list that was given, and all as a batch."""

    places: Sequence[int]
    inputs: Tensor


class Axis(NamedTuple):
    """What the sizes of a model's tensors may follow, such as its classes.

    Attributes:
        what: it has along it, in a sentence.
        names: of these, in their order.
        larger: the same task with one more of them.
        unnamed: how many of the names are nobody's.
    """

    what: str
    names: tuple[str, ...]
    larger: Task
    unnamed: int = 0


class Prepared(NamedTuple):
    """All that a training begins with.

    Attributes:
        task: what the model will be for.
        train: what to train on.
        validation: what to watch training by, or None.
        begin: gives a new model what it begins with beside its random weights.
    """

    task: Task
    train: Source
    validation: Source | None
    begin: Callable[[nn.Module], None] = lambda _: None


@dataclass(frozen=True)
class Task(ABC):
    """What differs between kinds of data: how inputs are read and prepared, and what a model's answers mean.

    A run has one, made when it is trained or opened; nothing else asks which kind of data there is.

    Args:
        class_names: what the classes are called.
    """

    kind: ClassVar[Kind]
    """Of data sets that it is for, and what one says to their items."""
    reads: ClassVar[Reads]
    """What a model for it reads, as the registry of models has it."""
    item_name: ClassVar[str]
    """What one says to a single input that a model is asked about."""
    at_a_time: ClassVar[int]
    """Inputs that are read and answered together."""

    class_names: tuple[str, ...]

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Of what a model is made for; see :func:`torchcaps.create_model`."""

    @property
    def multi_label(self) -> bool:
        """Whether an item may have any number of classes."""
        return False

    @property
    def patches(self) -> int:
        """Of each item, whose scores are averaged."""
        return 1

    @property
    def size_option(self) -> str:
        """By which key of a recipe's data the size of inputs is chosen, where it can be."""
        return "resize"

    def resize_to(self, side: int) -> Task | None:
        """The same task with inputs of another size; None where they have none that can be chosen."""
        return None

    @classmethod
    @abstractmethod
    def prepare(cls, recipe: Recipe, dataset: Dataset, files: Files) -> Prepared:
        """Read the training data, and cut from it what training is watched by."""

    @classmethod
    def check_model(cls, name: str, data: str) -> None:
        """Raise unless a model is one for this kind of data."""
        if input_kind(name) != cls.reads:
            raise RunError(
                f"{data} has {cls.kind}, but the model {name} reads {input_kind(name)}: choose model.name among "
                f"{', '.join(list_models(cls.reads))}.",
                option="model.name",
            )

    def model_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a model, with those that the data decides about."""
        return dict(options)

    def axes(self) -> tuple[Axis, ...]:
        """What the sizes of a model's tensors follow: one for the classes, and others by the kind of data."""
        return (Axis("classes", self.class_names, replace(self, class_names=(*self.class_names, "…"))),)

    def to_keys(self, data_options: Collection[str]) -> dict[str, Any]:
        """The keys of a recipe by which other data becomes what this task reads.

        Args:
            data_options: the options that the other data has.
        """
        return {}

    def match(self, known: Task, dataset: Dataset) -> dict[str, Any]:
        """Changes of a recipe's ``data`` that bring these inputs to the size of those that another task knows."""
        return {}

    def describe_inputs(self, known: Task, matched: bool) -> str:
        """How these inputs differ from those that another task knows, as a sentence; ``matched``: they were brought."""
        return ""

    @abstractmethod
    def to_header(self) -> dict[str, Any]:
        """For the header of a weights file, with the keys of 0.1."""

    @classmethod
    @abstractmethod
    def from_header(cls, values: Mapping[str, Any]) -> Task:
        """Back from there; of the values nothing is believed."""

    def write_files(self, folder: Path) -> None:  # noqa: B027 - most need nothing
        """Write what the task needs beside the weights."""

    def read_files(self, folder: Path) -> Task:
        """The task with what :meth:`write_files` wrote."""
        return self

    @abstractmethod
    def evaluation_source(
        self, dataset: Dataset, split: str, files: Files, crops: int | None = None, own: bool = True
    ) -> Source:
        """A split as the model sees it; data that it cannot be judged on is refused.

        Args:
            dataset: what to read.
            split: of it.
            files: where its files are.
            crops: patches per image whose scores are averaged; not given: as in training. Not of texts.
            own: it is the data that the model was trained on.
        """

    @abstractmethod
    def list_items(self, inputs: Any) -> list[Any]:
        """The single inputs in whatever a user gives, and a sentence for what is none."""

    @abstractmethod
    def name_item(self, item: Any, place: int) -> str:
        """What an input is called in an answer."""

    @abstractmethod
    def read_items(self, items: Sequence[Any], on_error: OnBadItem | None = None) -> Iterator[InputBatch]:
        """Inputs as a model reads them, some at a time.

        Args:
            items: single inputs, as :meth:`list_items` gives them; not many, all may be held at once.
            on_error: told of each that cannot be read, which is then in no batch; not given: the first is raised.
        """

    def score(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """Activations of the class capsules, or a model's probabilities; of several patches per image the mean.

        Shapes:
            ``[B, C, H, W]``, ``[B, P, C, H, W]`` or token ids ``[B, L]`` → ``[B, classes]``.
        """
        patches = inputs.unbind(dim=1) if inputs.dim() == 5 else (inputs,)  # one after the other: memory as for one
        with torch.inference_mode():
            scores = [probabilities(model(patch), self.multi_label) for patch in patches]
            return torch.stack(scores).mean(dim=0)

    def measure(self, scores: Tensor, labels: Tensor) -> dict[str, Any]:
        """What is reported of answers to test items; see :func:`~torchcaps.training.tasks.metrics.measure_answers`."""
        return measure_answers(scores, labels, self.class_names)

    def choose(self, labels: Sequence[str], scores: Sequence[float]) -> tuple[str, ...]:
        """The classes that an answer names, of all by falling score: the first, or those that are present."""
        if not self.multi_label:
            return tuple(labels[:1])
        return tuple(label for label, score in zip(labels, scores, strict=True) if score > PRESENT)
