"""A trained network is one thing: :class:`Run`, opened by :func:`load`, made by :func:`fit`.

>>> import torchcaps
>>> run = torchcaps.load("mnist")
>>> run.predict("three.png")[0].label
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.types import Device

from torchcaps.checks import require_count
from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.images import Source
from torchcaps.data.memory import make_memory_dataset
from torchcaps.data.options import IN_MEMORY, DataOptions
from torchcaps.data.record import count_trained, read_record
from torchcaps.data.registry import keep_own_options, list_datasets, make_dataset
from torchcaps.errors import DataError, InputTypeError
from torchcaps.io import make_printable, require_inside, write_json
from torchcaps.models import Model
from torchcaps.plain import shorten
from torchcaps.pretrained import list_pretrained, weights_path
from torchcaps.progress import Progress, silent
from torchcaps.training.balance import describe_unanswered
from torchcaps.training.errors import RunError
from torchcaps.training.evaluation import measure_source
from torchcaps.training.prediction import NumberedItem, OnError, Prediction, answer_items, number_items
from torchcaps.training.recipe import Recipe
from torchcaps.training.recipes import DEFAULT_RECIPES, recipe_from_file
from torchcaps.training.recording import list_items, open_split
from torchcaps.training.runs import (
    EVALUATION,
    WEIGHTS,
    begin_run,
    has_recipe,
    is_run_folder,
    load_model,
    new_run_folder,
    read_run_recipe,
    save_weights,
    write_recipe,
)
from torchcaps.training.specs import ModelSpec
from torchcaps.training.starting import Start, name_folder, recipe_from_start
from torchcaps.training.tasks import Task
from torchcaps.training.tasks.metrics import find_unanswered

if TYPE_CHECKING:
    from torchcaps.report import Report

__all__ = ["OpenData", "Prediction", "Run", "fit", "load"]

Say = Callable[[str], None]


class OpenData(NamedTuple):
    """Data as a run sees it: what it is called, the data set, a source of batches from one of its splits, and which."""

    name: str
    dataset: Dataset
    source: Source
    split: str = "test"


class Run:
    """A trained model with all that belongs to it.

    Args:
        model: in evaluation mode.
        spec: how it was built, and what it is for.
        recipe: by which it was trained; None for weights alone.
        folder: of the run; None for weights alone.
        dataset: what it was trained on, where that is not what the recipe names.
    """

    def __init__(
        self,
        model: Model,
        spec: ModelSpec,
        recipe: Recipe | None = None,
        folder: Path | None = None,
        dataset: Dataset | None = None,
    ) -> None:
        self.model, self.spec, self.recipe, self.folder, self._dataset = model, spec, recipe, folder, dataset

    def __repr__(self) -> str:
        where = f", {str(self.folder)!r}" if self.folder is not None else ""
        return f"Run({self.spec.name}, {len(self.classes)} classes of {self.task.kind}{where})"

    @property
    def task(self) -> Task:
        """What the model is for: how inputs are read, and what its answers mean."""
        return self.spec.task

    @property
    def classes(self) -> tuple[str, ...]:
        """What the classes are called."""
        return self.task.class_names

    def to(self, device: Device) -> Run:
        """The same run with its model on a device."""
        try:
            self.model.to(torch.device("cpu" if device is None else device))
        except (AssertionError, RuntimeError, TypeError) as error:  # torch's of what is no device, or not here
            raise RunError(f"{device!r} is no device that torch can use here; cpu always is.", "device") from error
        return self

    def predict(self, inputs: Any, progress: Progress = silent) -> list[Prediction]:
        """Classify images or texts.

        Args:
            inputs: for images a file, an image of Pillow, an array or tensor, or a list of them; arrays hold one image
                ``[H, W]``, or many as ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]``, uint8 or float in 0 … 1. For
                texts a string or a list of strings. Files and Pillow's images are brought to the size of the training
                images; texts without any known word are answered, too.
            progress: shows how far it is.

        Returns:
            An answer for each, in their order.
        """
        items = self.task.list_items(inputs)
        answers, tick = [], progress("predicting", len(items))
        for answer in answer_items(self.model, self.task, map(NumberedItem, count(), items)):
            answers.append(answer)
            tick(1)
        return answers

    def predict_stream(
        self, inputs: Iterable[Any], on_error: OnError | None = None, batch_size: int | None = None
    ) -> Generator[Prediction, None, None]:
        """Classify images or texts as they come, however many: an answer is given before later inputs are asked for.

        >>> for answer in run.predict_stream(Path("photos").rglob("*.jpg"), on_error=print):
        ...     print(answer.item, answer.label)

        Args:
            inputs: single ones as in :meth:`predict`, from a list, a generator or any other iterable, even an endless
                one.
            on_error: told of each input that cannot be read, its name and the error; it is then left out. Not given:
                the error is raised.
            batch_size: inputs that are read and answered together; not given: 64 images, or 500 texts. 1 answers each
                at once.

        Yields:
            An answer for each input that could be read, in their order.
        """
        if batch_size is not None:
            require_count("batch_size", batch_size)
        items = number_items(self.task, inputs, on_error)
        return answer_items(self.model, self.task, items, on_error, batch_size)

    def evaluate(
        self,
        data: Any = None,
        split: str = "test",
        *,
        data_dir: str | None = None,
        crops: int | None = None,
        new_items: bool = False,
        progress: Progress = silent,
        notice: Say | None = None,
    ) -> dict[str, Any]:
        """Measure the run on its own test items, which is kept in its folder, or on other data of the same kind.

        Args:
            data: a data set's name, a path, a recipe's ``data``, arrays or a torch ``Dataset``; not given: the run's.
                Of one's own data without a test part all is used, unless it is what the run was trained on.
            split: of the data.
            data_dir: folder with data sets.
            crops: patches per image whose scores are averaged, 1 or 13; not given: as the run has it. Not of texts.
            new_items: what came to the run's own data after its training counts to the test; else it is left out.
            progress: shows how far it is.
            notice: told what a user should know, such as items that have changed, or were trained on.

        Returns:
            Accuracy, balanced accuracy, macro averages, calibration, for each class precision, recall and F1, and the
            confusion matrix; see
            :func:`~torchcaps.training.tasks.metrics.measure_answers`; of one's own data also ``trained_on``, how many
            of the items training has seen.
        """
        opened = self.open_data(data, split, data_dir=data_dir, crops=crops, new_items=new_items, notice=notice)
        result = {"data": opened.name, "split": opened.split, **self.measure(opened.source, progress)}
        if (seen := self._count_trained(opened.source)) is not None:
            result["trained_on"] = seen
            if seen and opened.split != "train" and notice:
                notice(
                    f"{seen:,} of these {len(opened.source):,} {self.task.kind} were trained on: the result flatters."
                )
        unanswered = describe_unanswered(find_unanswered(result), self.task.kind, self.recipe)
        if unanswered and notice:
            notice(unanswered)
        own = data is None and data_dir is None and crops is None
        if self.folder is not None and own and split == "test" and not new_items:
            try:
                write_json(self.folder / EVALUATION, result)
            except OSError as error:
                if notice:
                    notice(f"The result could not be kept in {self.folder}: {error.strerror}.")
        return result

    def _count_trained(self, source: Source) -> int | None:
        """How many items of a source the run has trained on, None where that is not known."""
        record, items = None if self.folder is None else read_record(self.folder), list_items(source)
        return None if record is None or items is None else count_trained(record, items)

    def measure(self, source: Source, progress: Progress = silent) -> dict[str, Any]:
        """What :meth:`evaluate` reports of any source of batches, such as one that changes images as it likes."""
        return measure_source(self.model, self.task, source, progress)

    def open_data(
        self,
        data: Any = None,
        split: str = "test",
        *,
        data_dir: str | None = None,
        crops: int | None = None,
        new_items: bool = False,
        notice: Say | None = None,
    ) -> OpenData:
        """Data as the model sees it; the arguments are those of :meth:`evaluate`."""
        options, dataset = self._find_data(data)
        files, own = Files(data_dir or options.dir, notice=notice), data is None
        if isinstance(data, (str, os.PathLike)):
            own = self._is_own(options.name, dataset)
            split = dataset.judged_split() if split == "test" and not own else split
        if own:
            files = open_split(self.folder, dataset, files, new_items, self.task.kind)
        elif new_items:
            raise RunError("new_items are of the data that a run was trained on, and this is other data.", "new_items")
        source = self.task.evaluation_source(dataset, split, files, crops, own=data is None)
        return OpenData(options.name, dataset, source, split)

    def _find_data(self, data: Any) -> tuple[DataOptions, Dataset]:
        """What :meth:`evaluate` is given as a data set, and its options."""
        options = self.recipe.data if self.recipe is not None else DataOptions()
        if data is None:
            if self.recipe is None:
                raise RunError("a weights file does not say what it was trained on: give the data to use.", "data")
            try:
                return options, self._dataset or make_dataset(options)
            except DataError as error:
                raise RunError(f"{error} If it was moved, give its new place (data).", "data") from None
        if isinstance(data, DataOptions):
            return data, make_dataset(data)
        if isinstance(data, (str, os.PathLike)):
            other = replace(options, name=os.fspath(data))
            alike = other.name == options.name or not {other.name, options.name} & {*list_datasets(), IN_MEMORY}
            other = keep_own_options(other) if alike else replace(other, options={})  # such as the columns of a file
            return other, make_dataset(other)
        options = replace(options, name=IN_MEMORY)
        if isinstance(data, Dataset):
            return options, data
        return options, make_memory_dataset(data, data, self.task.kind, self.classes)

    def _is_own(self, name: str, dataset: Dataset) -> bool:
        """Whether data at a path is what the run was trained on, there or moved."""
        if self.recipe is None or self.folder is None or dataset.name:
            return False
        if os.path.realpath(name) == os.path.realpath(self.recipe.data.name):
            return True
        record = read_record(self.folder)
        return record is not None and record.matches(dataset.list_entries(self.classes) or ())

    def explain(
        self,
        output: str | os.PathLike[str] | None = None,
        data: Any = None,
        *,
        data_dir: str | None = None,
        images: int = 500,
        seed: int = 0,
        command: str = "",
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Report:
        """Measure what the model sees and how it decides, and write a page about it.

        Args:
            output: folder for ``report.html``, ``numbers.json`` and ``pictures/``; not given: ``explain`` in the run's.
            data: other data than the run's own, as in :meth:`evaluate`.
            data_dir: folder with data sets.
            images: how many test images or texts are used; all if there are no more.
            seed: decides which.
            command: how it was asked for, to be shown.
            progress: told before every step.
        """
        from torchcaps.report.facts import Facts, read_facts
        from torchcaps.report.reports import EXPLAIN, explain, make_folder, require_sensible

        require_sensible(images, seed)
        if output is None:
            if self.folder is None:
                raise RunError("a weights file has no folder: say where the report is to be written.", option="output")
            require_inside(self.folder, EXPLAIN)
            output = self.folder / EXPLAIN
        with make_folder(Path(output)) as made:
            opened = self.open_data(data, data_dir=data_dir, crops=1 if self.task.patches > 1 else None)
            if self.recipe is None or self.folder is None:
                facts = Facts(self.spec.name, opened.name, command=command, model_options=self.spec.options)
            else:
                shift = 0 if getattr(opened.dataset, "makes_canvas", False) else self.recipe.data.shift
                facts = read_facts(self.folder, self.recipe, self.model, self.spec, opened.name, shift, command)
            if data is not None or data_dir is not None:
                facts = replace(facts, whole_test=None)
            given = self.model, self.task, opened.source, made
            return explain(*given, facts=facts, images=images, seed=seed, progress=progress)

    def train_more(
        self, epochs: int, folder: str | os.PathLike[str] | None = None, *, say: Say | None = None, bar: bool = False
    ) -> Run:
        """Train on from these weights, by the same recipe and on the same data, into a run of its own.

        The learning rate begins its schedule anew; order and augmentation of the data go on where they were.

        Args:
            epochs: further passes over the training data.
            folder: of the new run, new or empty; not given: ``runs/NAME-more-n``.
            say: receives lines of text for the user.
            bar: show a progress bar.
        """
        from torchcaps.training.fit import train

        require_count("epochs", epochs)
        if self.recipe is None or self.folder is None:
            raise RunError("a weights file does not say how it was trained: only a run can be trained on.")
        done = self.recipe.training
        training = replace(done, epochs=epochs, first_epoch=done.first_epoch + done.epochs)
        recipe = replace(self.recipe, training=training)
        with begin_run(f"{self.folder.name}-more", None if folder is None else os.fspath(folder)) as place:
            start = self.as_start()
            train(recipe, place, say=say, bar=bar, dataset=self._dataset, start=start, record=start.record)
        return _open(place, self._dataset)

    def as_start(self) -> Start:
        """What another training begins with; see ``start_from`` of :func:`fit`."""
        name = self.spec.name if self.folder is None else str(self.folder)
        weights = {key: value.detach().cpu() for key, value in self.model.state_dict().items()}
        record = None if self.folder is None else read_record(self.folder)
        return Start(name, self.spec, weights, self.recipe, record)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights, and the recipe if there is one, into a folder that :func:`load` opens."""
        place = new_run_folder(self.spec.name, _require_path("folder", folder))
        try:
            if self.recipe is not None:
                write_recipe(place, self.recipe)
            if self.folder is not None and (record := read_record(self.folder)) is not None:
                record.write(place)
            self.task.write_files(place)
            save_weights(place / WEIGHTS, self.model, self.spec)
        except OSError as error:
            raise RunError(f"{place} cannot be written: {error.strerror}.", option="folder") from error


def load(source: str | os.PathLike[str], device: Device = None) -> Run:
    """Open a trained network.

    Args:
        source: a run folder, a weights file, or the name of a model that comes with the package
            (:func:`torchcaps.list_pretrained`).
        device: for its model; not given: the CPU.
    """
    path = Path(_require_path("source", source))
    if os.fspath(source) in list_pretrained() and not is_run_folder(path):
        path = weights_path(os.fspath(source))
    if not os.path.lexists(path):
        near = difflib.get_close_matches(str(path), list_pretrained(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        shipped = ", ".join(list_pretrained())
        raise RunError(
            f"{make_printable(os.fspath(source)):.200} is not a run folder nor a weights file: it is not there.{hint} "
            f"Shipped models: {shipped}."
        )
    run = _open(path)
    return run if device is None else run.to(device)


def _require_path(name: str, value: object) -> str:
    """A path, or a name, as a text."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise InputTypeError(f"{name} must be a path or a name, got {shorten(value)}.", option=name)
    return path


def _open(path: Path, dataset: Dataset | None = None) -> Run:
    if path.is_dir() and not is_run_folder(path):
        raise RunError(f"{path} is not a run folder: it has neither a recipe nor weights.")
    recipe = read_run_recipe(path) if path.is_dir() and has_recipe(path) else None
    with torch.random.fork_rng(devices=[]):  # a new model draws weights, which the caller's numbers shall not feel
        model, spec = load_model(path)
    return Run(model, spec, recipe, path if path.is_dir() else None, dataset)


def fit(
    data: Any,
    model: str | None = None,
    epochs: int | None = None,
    *,
    test: Any = None,
    recipe: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    start_from: str | os.PathLike[str] | Run | None = None,
    folder: str | os.PathLike[str] | None = None,
    say: Say | None = None,
    bar: bool = False,
) -> Run:
    """Train a model: the same that ``torchcaps train`` does.

    Args:
        data: a data set's name; a folder of class folders of images, or of images with a labels.csv, an .npz with x
            and y, or a .csv, .tsv or .jsonl of texts, by path; a pair (images, labels) of arrays or (texts, labels) of
            lists; a torch ``Dataset`` of (image, label) pairs; or a :class:`~torchcaps.data.dataset.Dataset`.
        model: one of :func:`torchcaps.list_models`; not given: that of ``start_from``, or the recipe's.
        epochs: passes over the training data; not given: the recipe's.
        test: test data of the same kind, for data in memory; not given: a fifth of each class is kept for it.
        recipe: name or path; not given: that of ``start_from``, or ``quickstart`` for images, ``text`` for texts.
        overrides: of the recipe, by key: ``{"optimizer.lr": 0.002, "model.options.routing": "em"}``.
        start_from: a trained network whose weights are begun with, as :func:`load` opens it: a run, a weights file, or
            the name of a shipped model. It may have been trained for other classes or words: those that both know keep
            their weights.
        folder: of the run, new or empty; not given: ``runs/NAME-n``, after the data if it has a name or a path of its
            own, else after the recipe.
        say: receives lines of text for the user, such as ``print``.
        bar: show a progress bar.

    Returns:
        The trained run: ``fit(...).evaluate()["accuracy"]``.
    """
    from torchcaps.training.fit import train

    if not isinstance(overrides, (Mapping, NoneType)) or not all(isinstance(key, str) for key in overrides or ()):
        raise InputTypeError(f"overrides must be keys with values, got {shorten(overrides)}.", option="overrides")
    changes: dict[str, Any] = dict(overrides or {})
    if isinstance(data, (str, os.PathLike)):
        if test is not None:
            raise RunError("test is for data in memory; a folder has its test data in test/.", option="test")
        changes["data.name"] = os.fspath(data)
        options = {key.split(".", 2)[2]: changes[key] for key in changes if key.startswith("data.options.")}
        dataset, kind = None, make_dataset(DataOptions(os.fspath(data), options)).kind
    else:
        dataset = data if isinstance(data, Dataset) else make_memory_dataset(data, test)
        changes["data.name"], kind = IN_MEMORY, dataset.kind
    changes |= {} if model is None else {"model.name": model}
    changes |= {} if epochs is None else {"training.epochs": epochs}
    named = None if recipe is None else os.fspath(recipe)
    start = None if start_from is None else open_start(start_from)
    if start is None:
        named = DEFAULT_RECIPES[kind] if named is None else named
        chosen = recipe_from_file(named, changes)
    else:
        chosen = recipe_from_start(start, named, changes)
    with begin_run(name_folder(named, chosen, start), None if folder is None else os.fspath(folder)) as place:
        train(chosen, place, say=say, bar=bar, dataset=dataset, start=start)
    return _open(place, dataset)


def open_start(source: str | os.PathLike[str] | Run) -> Start:
    """What a training begins with that is given weights; see ``start_from`` of :func:`fit`."""
    if isinstance(source, Run):
        return source.as_start()
    return replace(load(source).as_start(), name=os.fspath(source))
