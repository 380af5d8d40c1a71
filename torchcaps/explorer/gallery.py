"""Which models are explored: those of the runs that are given, then those that come with the package."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.dataset import Files
from torchcaps.data.options import DataOptions
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.errors import DataError, InputError
from torchcaps.explorer.schemas import Card, Sample
from torchcaps.explorer.subjects import Subject, make_subject, to_base64
from torchcaps.pretrained import list_pretrained, pretrained_card, pretrained_samples
from torchcaps.run import Run, load
from torchcaps.training.errors import RunError
from torchcaps.training.recording import open_split
from torchcaps.training.tasks import ImageTask

SAMPLES = 60
OF_DIGITS = ("mnist", "mnist-mini", "multi-mnist")
TITLES = {"mnist": "Digits", "fashion-mnist": "Clothes", "multi-mnist": "Two digits over each other"}


def load_subjects(
    runs: Sequence[str | os.PathLike[str]], data_dir: str | None, pretrained: bool, others: Sequence[Subject] = ()
) -> list[Subject]:
    """All models to explore: the others, then those of the runs, then the shipped ones."""
    subjects = list(others)
    for run in runs:
        subjects.append(_load_run(Path(run), _new_id(Path(run), [subject.id for subject in subjects]), data_dir))
    if pretrained:
        subjects += [_load_shipped(name) for name in list_pretrained()]
    if not subjects:
        raise InputError("there is nothing to explore: give runs, or leave pretrained=True.")
    return subjects


def _name(run: Path) -> str:
    """What a run is called: its folder, or the weights file if that says more."""
    if not run.is_dir() and run.stem != "weights":
        return run.stem
    return (run if run.is_dir() else run.parent).resolve().name


def _new_id(run: Path, taken: Sequence[str]) -> str:
    """A run's name in addresses: its own, so that a link holds wherever that run is opened."""
    name = "run-" + (re.sub(r"[^a-z0-9]+", "-", _name(run).lower()).strip("-")[:60] or "model")
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def _load_shipped(name: str) -> Subject:
    run = load(name)
    stored = {key: torch.from_numpy(array) for key, array in pretrained_samples(name).items()}
    samples = [
        _make_sample(stored["images"][i], stored["labels"][i], stored["parts"][i] if "parts" in stored else None)
        for i in range(len(stored["images"]))
    ]
    values = pretrained_card(name)
    card = Card(**{key: values[key] for key in Card.model_fields})
    return make_subject(name, TITLES[name], run.model, _image_task(run, name), samples, name in OF_DIGITS, card)


def _load_run(path: Path, id: str, data_dir: str | None) -> Subject:  # noqa: A002 - as in the interface
    run = load(path)
    task = _image_task(run, str(path))
    if run.recipe is None:  # a weights file alone does not say where its images are
        return make_subject(id, _name(path), run.model, task)
    data = run.recipe.data
    samples = _load_test_samples(run, data, task, data_dir)
    return make_subject(id, f"{_name(path)} ({data.name})", run.model, task, samples, data.name in OF_DIGITS)


def _image_task(run: Run, name: str) -> ImageTask:
    if isinstance(run.task, ImageTask):
        return run.task
    raise RunError(f"{name} reads words; the explorer shows images. `torchcaps predict` shows the words that decide.")


def _load_test_samples(run: Run, data: DataOptions, task: ImageTask, data_dir: str | None) -> list[Sample]:
    """Test pictures of a run before any preparation, the same at every start; none if its data is not at hand."""
    files = Files(data.dir if data_dir is None else data_dir)
    try:
        dataset = make_image_dataset(data).fit_to(task.image_shape, task.fit)
        files = open_split(run.folder, dataset, files, False, task.kind)
        source = evaluation_source(dataset, files=files, class_names=task.class_names, multi_label=task.multi_label)
    except DataError:
        return []
    if source.image_shape != task.image_shape or source.class_names != task.class_names:  # it is another by now
        return []
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(sub_seed(0, Stream.SAMPLES)))[:SAMPLES]
    batch = source.batch(order, 0)
    labels = batch.labels.view(len(order), -1)
    if task.multi_label:
        rows = [flags.nonzero()[:, 0] for flags in labels]
        return [_make_sample(batch.inputs[i], rows[i], None) for i in range(len(order))]
    parts = batch.targets if source.objects > 1 else None
    return [_make_sample(batch.inputs[i], labels[i], None if parts is None else parts[i]) for i in range(len(order))]


def _make_sample(picture: Tensor, labels: Tensor, parts: Tensor | None) -> Sample:
    return Sample(
        labels=labels.tolist(),
        pixels=to_base64(picture),
        parts=[] if parts is None else [to_base64(part) for part in parts],
    )
