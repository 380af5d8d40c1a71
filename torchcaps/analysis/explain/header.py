"""The top of a report: what was trained and how, how well it does, and the few numbers that say most."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from torchcaps.analysis import pages
from torchcaps.analysis.explain.subject import Subject
from torchcaps.analysis.pages import Section, text
from torchcaps.errors import FileError
from torchcaps.io import MOST_JSON, read_json, read_text, require_inside
from torchcaps.models.cnn import parameter_count
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import METRICS, Spec

if TYPE_CHECKING:
    from torchcaps.analysis.explain.words import TextAnswers

Tile = tuple[str, str, str]
NUMERALS = ("none", "one", "two", "three", "four")


def facts_of_run(folder: Path, recipe: Recipe, model: nn.Module, spec: Spec, data: str) -> dict[str, Any]:
    """The essentials of a run as plain data: its recipe, and how much of it was done."""
    optimizer, training = recipe.optimizer, recipe.training
    return {
        "model": spec.name,
        "model_options": dict(spec.options),
        "parameters": parameter_count(model),
        "data": Path(data).name if Path(data).exists() else data,
        "trained_on": Path(recipe.data.name).name if Path(recipe.data.name).exists() else recipe.data.name,
        "classes": list(spec.class_names),
        "epochs_trained": _epochs_trained(folder),
        "recipe": {
            "loss": recipe.loss.kind,
            "reconstruction_scale": recipe.loss.reconstruction_scale if getattr(model, "decoder", None) else 0.0,
            "lr": optimizer.lr,
            "schedule": optimizer.schedule,
            "epochs": training.epochs,
            "batch_size": training.batch_size,
            "shift": recipe.data.shift,
            "seed": training.seed,
        },
    }


def _epochs_trained(folder: Path) -> int | None:
    """By the summary that ends a training; of one that was interrupted by its epochs' rows; None without either."""
    try:
        return int(_own_json(folder, "summary.json")["epochs"])
    except (FileError, ValueError, KeyError, TypeError, OverflowError):
        pass
    try:
        require_inside(folder, METRICS)
        return sum(1 for _ in csv.DictReader(read_text(folder / METRICS, MOST_JSON).splitlines()))
    except (FileError, csv.Error):
        return None


def _own_json(folder: Path, name: str) -> Any:
    require_inside(folder, name)
    return read_json(folder / name)


def head_of_images(
    subject: Subject, facts: Mapping[str, Any], sections: Sequence[Section], own_data: bool
) -> tuple[str, dict[str, Any]]:
    """HTML, and the numbers in it that no section has."""
    count, total = len(subject.indices), len(subject.source)
    accuracy = float(subject.right.double().mean())
    numbers: dict[str, Any] = {"images": count, "test_images": total, "accuracy": accuracy}
    hits = (subject.labels[:, :, None] == subject.predictions[:, None]).any(dim=2).double()
    remark = f"on {_of(count, total, 'image')}"
    if subject.objects > 1:
        numbers["share_of_objects_found"] = float(hits.mean())
        remark += f", all objects right; {pages.percent(float(hits.mean()))} of the objects found"
    if subject.patches > 1:  # another measure than that of `torchcaps evaluate`, so the two are not compared
        numbers["patches_per_image"] = 1
        remark += f"; one central patch per image, not {subject.patches} as in <code>torchcaps evaluate</code>"
    of_all = _whole_test(subject.folder) if own_data and count < total and subject.patches == 1 else None
    if of_all is not None:
        numbers["accuracy_of_whole_test"] = of_all
        remark += f"; {pages.percent(of_all[0], 2)} on all {of_all[1]:,}"
    tiles: list[Tile] = [(pages.percent(accuracy, 2), "test accuracy", remark), _parameters(facts)]
    tiles += [tile for section in sections for tile in _tile(section)]
    return _head(facts, tiles), numbers


def head_of_texts(answers: TextAnswers, facts: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """HTML, and the numbers in it that the section does not have."""
    count, total = len(answers.indices), len(answers.source)
    accuracy = float(answers.right.double().mean())
    remark = f"on {_of(count, total, 'text')}"
    if answers.source.multi_label:
        remark += ", exactly the right labels"
    tiles = [(pages.percent(accuracy, 2), "test accuracy", remark), _parameters(facts)]
    return _head(facts, tiles), {"texts": count, "test_texts": total, "accuracy": accuracy}


def _of(count: int, total: int, kind: str) -> str:
    if count == total:
        return f"the only test {kind}" if total == 1 else f"all {total:,} test {kind}s"
    return f"{count:,} of {total:,} test {kind}s"


def _whole_test(folder: Path) -> tuple[float, int] | None:
    """What ``torchcaps evaluate`` has found on all test images, if it was run."""
    try:
        found = _own_json(folder, "evaluation.json")
        accuracy, images = float(found["accuracy"]), int(found["images"])
        return (accuracy, images) if 0 <= accuracy <= 1 else None
    except (FileError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _parameters(facts: Mapping[str, Any]) -> Tile:
    return f"{facts['parameters']:,}", "parameters", text(str(facts["model"]))


def _tile(section: Section) -> list[Tile]:
    """The number of a section that says most."""
    numbers = section.numbers
    if section.id == "reconstructions":
        other = _baseline(numbers, "images")
        return [(f"{numbers['error_per_pixel']:.4f}", "squared error per pixel, drawn", other)]
    if section.id == "segmentation":
        other = _baseline(numbers, "objects")
        return [(f"{numbers['error_per_pixel_of_each_object']:.4f}", "squared error per pixel, each object", other)]
    if section.id == "routing":
        last = numbers["layers"][-1]
        first, end = last["polarisation"][0], last["polarisation"][-1]
        count = len(last["polarisation"])
        alone = "one iteration" if last["iterates"] else "decided without iterations"
        remark = f"{first:.2f} in the first of {count} iterations" if count > 1 else alone
        return [(f"{end:.2f}", "polarisation of the class routing", remark)]
    if section.id == "movements":
        judged = [kind for kind in numbers["kinds"] if not math.isnan(kind["probe_r2"])]
        if not judged:
            return []
        best = max(judged, key=lambda kind: float(kind["probe_r2"]))
        if best["probe_r2"] <= 0:
            return []  # nothing is read off; the section says so
        chosen = f"the best of {NUMERALS[len(judged)]}; " if len(judged) > 1 else ""
        remark = f"{chosen}linear probe on other images; {pages.number(best['shuffled_r2'], 2)} if shuffled"
        return [(pages.number(best["probe_r2"], 2), f"R² of reading {text(best['kind'])} off the pose", remark)]
    return []


def _baseline(numbers: Mapping[str, Any], kind: str) -> str:
    error = numbers.get("error_of_mean_image")
    return "" if error is None else f"the mean of the other {kind} has {error:.4f}"


def _head(facts: Mapping[str, Any], tiles: Sequence[Tile]) -> str:
    recipe = facts["recipe"]
    options = ", ".join(f"{name}={value}" for name, value in facts["model_options"].items()) or "as the model has them"
    loss = recipe["loss"]
    if recipe["reconstruction_scale"]:
        loss += f" + {recipe['reconstruction_scale']:g} × reconstruction"
    shown = {
        "data": _data(facts),
        "model options": text(options),
        "loss": text(loss),
        "optimiser": f"Adam, learning rate {recipe['lr']:g}, {text(recipe['schedule'])}",
        "training": f"{_epochs(facts)}, batches of {recipe['batch_size']}, seed {recipe['seed']}",
        "made by": f"{_command(facts['command'])} · torchcaps {text(facts['version'])}",
    }
    title = f"{text(facts['model'])} on {text(facts['data'])}"
    lead = "What a trained model answers, what it sees, and how it comes to it. All numbers are measured on test data."
    return f'<h1>{title}</h1><p class="lead">{lead}</p>{pages.tiles(tiles)}{pages.facts(shown)}'


def _epochs(facts: Mapping[str, Any]) -> str:
    """Those that were done, and if they are fewer than the recipe has, of how many."""
    done, wanted = facts["epochs_trained"], facts["recipe"]["epochs"]
    if done is None:
        return f"{pages.counted(wanted, 'epoch')} by the recipe"
    return pages.counted(done, "epoch") if done >= wanted else f"{done:,} of {pages.counted(wanted, 'epoch')}"


def _command(command: str) -> str:
    """As code that is not broken inside of an option's name."""
    words = [f"<span>{text(word)}</span>" if word.startswith("--") else text(word) for word in command.split(" ")]
    return f"<code>{' '.join(words)}</code>"


def _data(facts: Mapping[str, Any]) -> str:
    names = facts["classes"]
    shown = ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:11])}, …"
    other = "" if facts["trained_on"] == facts["data"] else f", trained on {facts['trained_on']}"
    return text(f"{facts['data']}{other}; {len(names)} classes: {shown}")
