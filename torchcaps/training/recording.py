"""What a training remembers of a user's own data, so that its test items are never trained on, then or later."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.images import Source
from torchcaps.data.items import Entry, Item
from torchcaps.data.options import IN_MEMORY
from torchcaps.data.record import MOST_NAMED, SplitRecord, count_shared, list_contradictions, make_record, read_record
from torchcaps.data.registry import is_path
from torchcaps.data.splits import choose_entries
from torchcaps.errors import DataError
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import read_run_recipe


def settle_paths(recipe: Recipe) -> Recipe:
    """The same recipe with absolute paths: a run finds its data again from every folder."""
    data = recipe.data
    name = os.path.abspath(data.name) if data.name != IN_MEMORY and is_path(data.name) else data.name
    place = None if data.dir is None else os.path.abspath(data.dir)
    vectors = None if recipe.text.vectors is None else os.path.abspath(recipe.text.vectors)
    return replace(recipe, data=replace(data, name=name, dir=place), text=replace(recipe.text, vectors=vectors))


def require_data(folder: Path, recipe: Recipe) -> None:
    """Raise if the files of a run that goes on are not where they were."""
    name = recipe.data.name
    if os.path.isabs(name) and not os.path.lexists(name):
        raise RunError(
            f"the data of {folder} is not at {name} any more. If it was moved, give its new place as data.name.",
            option="data.name",
        )


def resume_split(folder: Path, recipe: Recipe, dataset: Dataset, files: Files, changed_data: bool) -> Files:
    """The same files with the split that a run recorded when it began.

    Args:
        folder: of the run.
        recipe: of the run, perhaps with another place of its data.
        dataset: the data as it is now.
        files: where it is looked for.
        changed_data: go on although the data is not what it was, with the recorded items that are still there.

    Raises:
        RunError: the data has changed; the message names what.
    """
    record = read_record(folder)
    if record is None:
        if _is_moved(folder, recipe):
            raise RunError(
                f"{folder} recorded no split of its data, so nobody can tell whether {recipe.data.name} holds the same "
                "items: resume it with the data where it was.",
                option="data.name",
            )
        return files._replace(counted=True)
    entries = dataset.list_entries()
    if entries is None:
        raise RunError(f"{folder} was trained on one's own data, which {recipe.data.name} is not.", option="data.name")
    said = record.compare(entries).describe()
    if said and not changed_data:
        raise RunError(
            f"the data of {folder} is not what it was: {said}. Put it back, train a new run, or go on with the items "
            "that are as they were (changed_data).",
            option="changed_data",
        )
    if said and files.notice:
        files.notice(f"The data has changed since this run began: {said}. It goes on with the items that it had.")
    return files._replace(record=record)


def _is_moved(folder: Path, recipe: Recipe) -> bool:
    """Whether a run's data is looked for elsewhere than it was."""
    try:
        return settle_paths(read_run_recipe(folder)).data.name != recipe.data.name
    except DataError:  # it is not there any more
        return True


def record_split(
    dataset: Dataset,
    train: Source,
    validation: Source | None,
    files: Files,
    before: frozenset[str] = frozenset(),
) -> SplitRecord | None:
    """Which items a training that begins has in which split; None for data sets that everyone has alike.

    Test items that are trained on, too, and equal items with different labels, are told.

    Args:
        dataset: all items.
        train: those to train on.
        validation: those to validate on.
        files: has the split, if it is known, and who is told.
        before: keys of items that the weights to begin with were trained on.
    """
    entries = dataset.list_entries()
    items = list_items(train)
    if entries is None or items is None:
        return None
    test = choose_entries(entries, "test", files)
    record = make_record(entries, items, () if validation is None else list_items(validation) or (), test)
    shared = count_shared(record)
    if shared and files.notice:
        files.notice(
            f"{len(shared):,} of the {len(test):,} test {train.kind} are among those to train on, too, with the same "
            f"content (such as {shared[0]}): the test will flatter."
        )
    twice = list_contradictions(entries)
    if twice and files.notice:
        files.notice(
            f"{len(twice):,} {train.kind} come more than once with different labels (such as {twice[0]}): no answer "
            "can be right for all of them."
        )
    seen = [row.name for row in record.rows if row.split == "test" and row.key in before - record.trained]
    if seen and files.notice:
        files.notice(
            f"{len(seen):,} of the {len(test):,} test {train.kind} were trained on by the weights to begin with (such "
            f"as {seen[0]}): the test will flatter."
        )
    return replace(record, before=before - record.trained)


def list_items(source: Source) -> tuple[Item, ...] | None:
    """The items of a source by their content, where they are known."""
    data = getattr(source, "data", None)
    return getattr(data, "items", None)


def open_split(folder: Path | None, dataset: Dataset, files: Files, with_new: bool, kind: str) -> Files:
    """The files with what a run recorded of its own data, to evaluate it; what has changed since is told."""
    record = None if folder is None else read_record(folder)
    entries = dataset.list_entries()
    if entries is None:
        return files
    tell: Callable[[str], None] = files.notice or (lambda _: None)
    if record is None:
        if folder is not None:
            tell(
                f"This run did not record which {kind} it was trained on. If any were added, removed or renamed since, "
                f"test {kind} may be among them: train it anew to be sure."
            )
        return files._replace(counted=folder is not None)
    _tell_changes(record, entries, with_new, kind, tell)
    return files._replace(record=replace(record, with_new=with_new))


def _tell_changes(
    record: SplitRecord, entries: list[Entry], with_new: bool, kind: str, tell: Callable[[str], None]
) -> None:
    changes = record.compare(entries)
    lost = changes._replace(new=()).describe()
    if lost:
        tell(f"The data has changed since training: {lost}. What is missing or changed is left out.")
    if changes.new:
        fate = "counted to the test" if with_new else "left out (new_items counts them to the test)"
        shown = ", ".join(changes.new[:MOST_NAMED])
        copies = len(changes.copies)
        but = f", but for {copies:,} with the same content as what was trained on" if with_new and copies else ""
        tell(f"{len(changes.new):,} {kind} came after training, such as {shown}: {fate}{but}.")
