"""The top of a report: what was trained and how, how well it does, and the few numbers that say most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.analysis.reconstruction import compare_errors
from torchcaps.report.facts import Facts
from torchcaps.report.formats import count_nouns, format_number, format_percent
from torchcaps.report.given import GivenImages, GivenTexts
from torchcaps.report.rendering import Section, Tile

NUMERALS = ("none", "one", "two", "three", "four")


class ReportHeader(NamedTuple):
    """What stands above the sections.

    Attributes:
        title: of the page.
        tiles: the few numbers that say most.
        facts: names and values.
        command: how the report was asked for.
        numbers: in the tiles that no section has.
    """

    title: str
    tiles: Sequence[Tile]
    facts: Mapping[str, str]
    command: str
    numbers: Mapping[str, Any]


def head_images(given: GivenImages, sections: Sequence[Section], parameters: int) -> ReportHeader:
    """Of a model of images."""
    answers, facts = given.answers, given.facts
    count, total = len(answers.indices), answers.total
    numbers: dict[str, Any] = {"images": count, "test_images": total, "accuracy": answers.accuracy}
    remark = f"on {_describe_share(count, total, 'image')}"
    if answers.objects > 1:
        numbers["share_of_objects_found"] = answers.share_of_objects
        remark += f", all objects right; {format_percent(answers.share_of_objects)} of the objects found"
    if answers.multi_label:
        remark += ", exactly the right labels"
    if given.patches > 1:  # another measure than that of `torchcaps evaluate`, so the two are not compared
        numbers["patches_per_image"] = 1
        remark += f"; one central patch per image, not {given.patches} as in torchcaps evaluate"
    elif facts.whole_test is not None and count < total:
        numbers["accuracy_of_whole_test"] = facts.whole_test
        remark += f"; {format_percent(facts.whole_test[0], 2)} on all {facts.whole_test[1]:,}"
    tiles = [Tile(format_percent(answers.accuracy, 2), "test accuracy", remark), _count_parameters(parameters, facts)]
    for section in sections:
        tile = TILES[section.id](section.numbers) if section.id in TILES else None
        tiles += [] if tile is None else [tile]
    return _make_header(facts, answers.class_names, tiles, numbers)


def head_texts(given: GivenTexts, _: Sequence[Section], parameters: int) -> ReportHeader:
    """Of a model of texts."""
    answers = given.answers
    count, total = len(answers.indices), answers.total
    remark = f"on {_describe_share(count, total, 'text')}"
    if answers.multi_label:
        remark += ", exactly the right labels"
    accuracy = Tile(format_percent(answers.accuracy, 2), "test accuracy", remark)
    numbers = {"texts": count, "test_texts": total, "accuracy": answers.accuracy}
    tiles = [accuracy, _count_parameters(parameters, given.facts)]
    return _make_header(given.facts, answers.class_names, tiles, numbers)


def _describe_share(count: int, total: int, kind: str) -> str:
    if count == total:
        return f"the only test {kind}" if total == 1 else f"all {total:,} test {kind}s"
    return f"{count:,} of {total:,} test {kind}s"


def _count_parameters(parameters: int, facts: Facts) -> Tile:
    return Tile(f"{parameters:,}", "parameters", facts.model)


def _tile_of_reconstructions(numbers: Mapping[str, Any]) -> Tile:
    other = _describe_baseline(numbers, "error_per_pixel", "images")
    return Tile(f"{numbers['error_per_pixel']:.4f}", "squared error per pixel, drawn", other)


def _tile_of_segmentation(numbers: Mapping[str, Any]) -> Tile:
    other = _describe_baseline(numbers, "error_per_pixel_of_each_object", "objects")
    return Tile(f"{numbers['error_per_pixel_of_each_object']:.4f}", "squared error per pixel, each object", other)


def _describe_baseline(numbers: Mapping[str, Any], key: str, kind: str) -> str:
    other = numbers.get("error_of_mean_image")
    if other is None:
        return ""
    return f"the mean of the other {kind} has {other:.4f}: {compare_errors(numbers[key], other)}"


def _tile_of_routing(numbers: Mapping[str, Any]) -> Tile:
    last = numbers["layers"][-1]
    first, end, count = last["polarisation"][0], last["polarisation"][-1], len(last["polarisation"])
    alone = "one iteration" if last["iterates"] else "decided without iterations"
    remark = f"{first:.2f} in the first of {count} iterations" if count > 1 else alone
    return Tile(f"{end:.2f}", "polarisation of the class routing", remark)


def _tile_of_movements(numbers: Mapping[str, Any]) -> Tile | None:
    judged = [kind for kind in numbers["kinds"] if not math.isnan(kind["probe_r2"])]
    best = max(judged, key=lambda kind: float(kind["probe_r2"]), default=None)
    if best is None or best["probe_r2"] <= 0:
        return None  # nothing is read off; the section says so
    chosen = f"the best of {NUMERALS[len(judged)]}; " if len(judged) > 1 else ""
    remark = f"{chosen}linear probe on other images; {format_number(best['shuffled_r2'], 2)} if shuffled"
    return Tile(format_number(best["probe_r2"], 2), f"R² of reading {best['kind']} off the pose", remark)


TILES: dict[str, Callable[[Mapping[str, Any]], Tile | None]] = {
    "reconstructions": _tile_of_reconstructions,
    "segmentation": _tile_of_segmentation,
    "routing": _tile_of_routing,
    "movements": _tile_of_movements,
}
"""The number of a section that says most."""


def _make_header(
    facts: Facts, class_names: Sequence[str], tiles: Sequence[Tile], numbers: Mapping[str, Any]
) -> ReportHeader:
    options = ", ".join(f"{name}={value}" for name, value in facts.model_options.items())
    shown = {"data": _describe_data(facts, class_names), "model options": options or "as the model has them"}
    if facts.recipe is not None:
        recipe = facts.recipe
        loss = recipe["loss"]
        if recipe["reconstruction_scale"]:
            loss += f" + {recipe['reconstruction_scale']:g} × reconstruction"
        shown["loss"] = loss
        shown["optimiser"] = f"Adam, learning rate {recipe['lr']:g}, {recipe['schedule']}"
        epochs = _describe_epochs(facts.epochs_trained, recipe["epochs"])
        shown["training"] = f"{epochs}, batches of {recipe['batch_size']}, seed {recipe['seed']}"
    return ReportHeader(f"{facts.model} on {facts.data}", tiles, shown, facts.command, numbers)


def _describe_epochs(done: int | None, wanted: int) -> str:
    """Those that were done, and if they are fewer than the recipe has, of how many."""
    if done is None:
        return f"{count_nouns(wanted, 'epoch')} by the recipe"
    return count_nouns(done, "epoch") if done >= wanted else f"{done:,} of {count_nouns(wanted, 'epoch')}"


def _describe_data(facts: Facts, names: Sequence[str]) -> str:
    shown = ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:11])}, …"
    other = "" if facts.trained_on in (None, facts.data) else f", trained on {facts.trained_on}"
    return f"{facts.data}{other}; {len(names)} classes: {shown}"
