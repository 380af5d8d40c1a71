"""Explain a trained model: a page with pictures and numbers, the pictures as files, and the numbers as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from torch import nn

from torchcaps.analysis.answers import answer_images, answer_texts
from torchcaps.analysis.gradients import evaluating
from torchcaps.errors import FileError
from torchcaps.io import make_folders, make_plain, read_json, require_inside, write_bytes, write_json, write_text
from torchcaps.models.base import CapsuleModel
from torchcaps.models.cnn import parameter_count
from torchcaps.report.cases import show_cases
from torchcaps.report.dimensions import show_dimensions
from torchcaps.report.facts import Facts
from torchcaps.report.given import GivenImages, GivenTexts
from torchcaps.report.header import ReportHeader, head_images, head_texts
from torchcaps.report.measures import show_measures
from torchcaps.report.movements import show_movements
from torchcaps.report.rendering import Section, render
from torchcaps.report.routing import show_routing
from torchcaps.report.texts import show_words
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import MOST_SEEDS
from torchcaps.training.tasks import Task
from torchcaps.version import __version__

EXPLAIN = "explain"
"""Where a run has its report."""
PAGE, NUMBERS, PICTURES = "report.html", "numbers.json", "pictures"

StepProgress = Callable[[str, int, int], None]
"""Told what comes next, its number and how many there are."""


class Report(NamedTuple):
    """What was written.

    Attributes:
        page: the file to open.
        numbers: all that is shown, as in ``numbers.json``.
    """

    page: Path
    numbers: dict[str, Any]


class Kind(NamedTuple):
    """How a kind of task is explained.

    Attributes:
        answer: ask the model about so many items of a source, which a seed decides.
        given: what the sections are made from.
        choose_steps: the sections that a model allows, each with a name for the progress.
        head: the top of the page.
    """

    answer: Callable[[nn.Module, Any, int, int], Any]
    given: Callable[[nn.Module, Any, Any, Facts, int], Any]
    choose_steps: Callable[[Any], list[tuple[str, Callable[[Any], Section]]]]
    head: Callable[[Any, Sequence[Section], int], ReportHeader]


def choose_image_steps(given: GivenImages) -> list[tuple[str, Callable[[GivenImages], Section]]]:
    """The sections that a model of images allows, in their order."""
    steps: list[tuple[str, Callable[[GivenImages], Section]]] = [("cases", show_cases), ("measures", show_measures)]
    if given.answers.capsules is None:
        return steps
    labelled = bool(given.answers.label_flags.any())  # of any number of labels all images may have none
    if given.decoder is not None and labelled:
        steps.append(("pose numbers", show_dimensions))
    if isinstance(given.model, CapsuleModel):
        steps.append(("routing", show_routing))
    return [*steps, ("movements", show_movements)] if labelled else steps


KINDS = {
    "images": Kind(answer_images, GivenImages, choose_image_steps, head_images),
    "texts": Kind(answer_texts, GivenTexts, lambda _: [("words", show_words), ("measures", show_measures)], head_texts),
}
"""By the kind of a task."""


def explain(
    model: nn.Module,
    task: Task,
    source: Any,
    folder: str | os.PathLike[str],
    *,
    facts: Facts,
    images: int = 500,
    seed: int = 0,
    progress: StepProgress | None = None,
) -> Report:
    """Measure a model, and write ``report.html``, ``numbers.json`` and, of images, ``pictures/``.

    Args:
        model: any; one that is a :class:`~torchcaps.models.base.CapsuleModel` is looked into.
        task: what it is for, :class:`~torchcaps.training.tasks.ImageTask` or ``TextTask``.
        source: test images or texts, a :class:`~torchcaps.data.images.Source`.
        folder: where to write; what else is there is left alone.
        facts: what is to be said about the model that cannot be measured.
        images: how many test images or texts are used; all if there are no more.
        seed: decides which.
        progress: told before every step.
    """
    require_sensible(images, seed)
    kind, tell = KINDS[task.kind], progress or (lambda *_: None)
    with make_folder(Path(folder)) as made, evaluating(model):
        tell("answers", 0, 1)
        given = kind.given(model, task, kind.answer(model, source, images, seed), facts, seed)
        steps, sections = kind.choose_steps(given), []
        for number, (name, show) in enumerate(steps):
            tell(name, number + 1, len(steps) + 1)
            sections.append(show(given))
        header = kind.head(given, sections, parameter_count(model))
        numbers = _list_numbers(facts, header, sections, given.answers.class_names, parameter_count(model), seed)
        return Report(_write(made, header, sections, numbers), numbers)


def require_sensible(images: int, seed: int) -> None:
    """Raise unless a report can be made of so many images, chosen by this seed."""
    if images < 1:
        raise RunError(f"images is a number of test images or texts, at least 1; got {images}.", option="images")
    if not 0 <= seed < MOST_SEEDS:
        raise RunError(f"seed is a whole number, at least 0 and below 2^62; got {seed}.", option="seed")


@contextmanager
def make_folder(folder: Path) -> Iterator[Path]:
    """The folder of the report. It is made and written to before anything is measured: nobody is to wait for an error.

    If nothing comes of the report, a folder that was made for it goes away again.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(make_folders(folder))
        except FileError as error:
            raise RunError(error) from error
        require_inside(folder, PAGE, NUMBERS, PICTURES)
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise RunError(f"the report's folder {folder} cannot be made or written to: {error.strerror}.") from error
        yield folder


def _list_numbers(
    facts: Facts, header: ReportHeader, sections: Sequence[Section], classes: Sequence[str], parameters: int, seed: int
) -> dict[str, Any]:
    """All that is shown, as JSON can hold it."""
    about = {
        "run": facts.run,
        "command": facts.command,
        "version": __version__,
        "seed": seed,
        "model": facts.model,
        "model_options": facts.model_options,
        "parameters": parameters,
        "data": facts.data,
        "trained_on": facts.trained_on or facts.data,
        "classes": classes,
        "epochs_trained": facts.epochs_trained,
        "recipe": facts.recipe,
    }
    measured = {section.id: section.numbers for section in sections}
    pictures = [f"{picture.name}.png" for section in sections for picture in section.pictures]
    numbers: dict[str, Any] = make_plain({**about, **header.numbers, **measured, "pictures": pictures})
    return numbers


def _write(folder: Path, header: ReportHeader, sections: Sequence[Section], numbers: dict[str, Any]) -> Path:
    """Pictures first and the page last: a page that is there is complete."""
    pictures = [picture for section in sections for picture in section.pictures]
    if pictures:
        (folder / PICTURES).mkdir(exist_ok=True)
    for picture in pictures:
        write_bytes(folder / PICTURES / f"{picture.name}.png", picture.content)
    for name in list_pictures(folder) - set(numbers["pictures"]):
        (folder / PICTURES / name).unlink(missing_ok=True)
    write_json(folder / NUMBERS, numbers)
    files = {"numbers": NUMBERS, "pictures": PICTURES if pictures else None, "version": __version__}
    write_text(folder / PAGE, render("report.html", header=header, sections=sections, **files))
    return folder / PAGE


def list_pictures(folder: Path) -> set[str]:
    """The pictures that an earlier report in this folder says it wrote: plain names of PNG files, nothing else."""
    try:
        listed = read_json(folder / NUMBERS)["pictures"]
    except (FileError, KeyError, TypeError):
        return set()
    names = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    return {name for name in names if name.endswith(".png") and Path(name).name == name}
