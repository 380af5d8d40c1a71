"""Explain a trained run: a page with pictures and numbers, the pictures as files, and the numbers as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import torch
from torch import nn

from torchcaps.analysis.explain.header import facts_of_run, head_of_images, head_of_texts
from torchcaps.analysis.explain.subject import Subject, load_subject
from torchcaps.analysis.pages import Section, page
from torchcaps.data.options import DataOptions
from torchcaps.errors import FileError
from torchcaps.io import read_json, require_inside, write_bytes, write_text
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import (
    ModelSpec,
    RunError,
    TextSpec,
    load_model,
    read_run_recipe,
)
from torchcaps.version import __version__

EXPLAIN = "explain"
PAGE, NUMBERS, PICTURES = "report.html", "numbers.json", "pictures"
MOST_SEEDS = 2**62  # what fits into a number of 64 bits with room for a sign and a step

Step = tuple[str, Callable[[], Section]]
"""What is measured, in a word or two, and the call that does it."""

Progress = Callable[[str, int, int], None]
"""Told what comes next, its number and how many there are."""


class Report(NamedTuple):
    """What was written.

    Attributes:
        page: the file to open.
        numbers: all that is shown, as in ``numbers.json``.
    """

    page: Path
    numbers: dict[str, Any]


def explain(
    run: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    overrides: DataOptions | None = None,
    images: int = 500,
    seed: int = 0,
    command: str = "",
    progress: Progress | None = None,
) -> Report:
    """Measure a run, and write ``report.html``, ``numbers.json`` and ``pictures/``.

    Args:
        run: a run folder.
        output: where to write; not given: ``explain`` in the run folder. What else is there is left alone.
        overrides: other data than the run's own.
        images: how many test images or texts are used; all if there are no more.
        seed: decides which.
        command: how it was called, to be shown.
        progress: told before every step.
    """
    _require_sensible(images, seed)
    recipe = read_run_recipe(run)
    with torch.random.fork_rng(devices=[]):  # a new model draws weights, which the caller's numbers shall not feel
        model, spec = load_model(run)
    told: Progress = progress or (lambda *_: None)
    facts = {
        "run": Path(run).resolve().name,
        "command": command or f"torchcaps explain {Path(run).name}",
        "version": __version__,
        "seed": seed,
        **facts_of_run(Path(run), recipe, model, spec, (overrides or recipe.data).name),
    }
    if output is None:
        require_inside(Path(run), EXPLAIN)
    with _made(Path(output) if output is not None else Path(run) / EXPLAIN) as folder:
        if isinstance(spec, TextSpec):
            head, sections, more = _of_texts(run, recipe, model, spec, overrides, images, seed, told, facts)
        else:
            head, sections, more = _of_images(run, recipe, model, spec, overrides, images, seed, told, facts)
        pictures = [f"{picture.name}.png" for section in sections for picture in section.pictures]
        measured = {section.id: section.numbers for section in sections}
        numbers = _plain({**facts, **more, **measured, "pictures": pictures})
        return Report(_write(folder, head, sections, numbers), numbers)


def _require_sensible(images: int, seed: int) -> None:
    if images < 1:
        raise RunError(f"--images is a number of test images or texts, at least 1; got {images}.")
    if not 0 <= seed < MOST_SEEDS:
        raise RunError(f"--seed is a whole number, at least 0 and below 2^62; got {seed}.")


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """The folder of the report. It is made and written to before anything is measured: nobody is to wait for an error.

    If nothing comes of the report, a folder that was made for it goes away again.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_inside(folder, PAGE, NUMBERS, PICTURES)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(f"the report's folder {folder} cannot be made or written to: {error.strerror}.") from error
    try:
        yield folder
    except BaseException:
        if new and not any(folder.iterdir()):
            folder.rmdir()
        raise


def _of_images(
    run: str | os.PathLike[str], recipe: Recipe, model: nn.Module, spec: ModelSpec, overrides: DataOptions | None,
    images: int, seed: int, told: Progress, facts: Mapping[str, Any],
) -> tuple[str, list[Section], dict[str, Any]]:  # fmt: skip
    told("answers", 0, 1)
    subject = load_subject(run, recipe, model, spec, overrides, images, seed)
    steps = image_steps(subject)
    sections = []
    for number, (name, measure) in enumerate(steps):
        told(name, number + 1, len(steps) + 1)
        sections.append(measure())
    head, more = head_of_images(subject, facts, sections, overrides is None)
    return head, sections, more


def image_steps(subject: Subject) -> list[Step]:
    """The sections that a model allows, in their order."""
    from torchcaps.analysis.explain.cases import section_of_cases
    from torchcaps.analysis.explain.dimensions import section_of_dimensions
    from torchcaps.analysis.explain.movements import section_of_movements
    from torchcaps.analysis.explain.routing import section_of_routing

    steps: list[Step] = [("cases", partial(section_of_cases, subject))]
    if subject.decoder is not None:
        steps.append(("pose numbers", partial(section_of_dimensions, subject)))
    if subject.capsules is not None:
        steps.append(("routing", partial(section_of_routing, subject)))
        steps.append(("movements", partial(section_of_movements, subject)))
    return steps


def _of_texts(
    run: str | os.PathLike[str], recipe: Recipe, model: nn.Module, spec: TextSpec, overrides: DataOptions | None,
    count: int, seed: int, told: Progress, facts: Mapping[str, Any],
) -> tuple[str, list[Section], dict[str, Any]]:  # fmt: skip
    from torchcaps.analysis.explain.words import section_of_words, text_answers

    told("answers", 0, 2)
    answers = text_answers(recipe, model, spec, overrides, count, seed)
    told("words", 1, 2)
    section = section_of_words(run, model, spec, answers)
    head, more = head_of_texts(answers, facts)
    return head, [section], more


def _write(folder: Path, head: str, sections: Sequence[Section], numbers: dict[str, Any]) -> Path:
    """Pictures first and the page last: a page that is there is complete."""
    pictures = [picture for section in sections for picture in section.pictures]
    if pictures:
        (folder / PICTURES).mkdir(exist_ok=True)
    for picture in pictures:
        write_bytes(folder / PICTURES / f"{picture.name}.png", picture.png)
    for name in _listed_pictures(folder) - set(numbers["pictures"]):
        (folder / PICTURES / name).unlink(missing_ok=True)
    write_text(folder / NUMBERS, json.dumps(numbers, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    title = f"{numbers['model']} on {numbers['data']}, explained"
    write_text(folder / PAGE, page(title, head, sections, _foot()))
    return folder / PAGE


def _listed_pictures(folder: Path) -> set[str]:
    """The pictures that an earlier report in this folder says it wrote: plain names of PNG files, nothing else."""
    try:
        listed = read_json(folder / NUMBERS)["pictures"]
    except (FileError, KeyError, TypeError):
        return set()
    names = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    return {name for name in names if name.endswith(".png") and Path(name).name == name}


def _foot() -> str:
    return (
        f"<p>Made by torchcaps {__version__}. All numbers are in <code>{NUMBERS}</code>, the pictures in "
        f"<code>{PICTURES}</code>, beside this page.</p>"
    )


def _plain(value: Any) -> Any:
    """As JSON can hold it: what is no number becomes null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
