"""``torchcaps data list|get|check``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.commands.base import Command, CommandError, say, say_json, user_errors

if TYPE_CHECKING:
    from torchcaps.data.dataset import Dataset

EXAMPLES = """  torchcaps data list
  torchcaps data get fashion-mnist
  torchcaps data check mnist --data-dir DIR
  torchcaps data check photos/                       one's own images
  torchcaps data check reviews.csv                   one's own texts"""


@dataclass(frozen=True)
class Checked:
    """What was read of a split: how many images or texts, of which size in words, and how many of each class."""

    split: str
    kind: str
    count: int
    size: str
    classes: dict[str, int]

    def numbers(self) -> dict[str, object]:
        """For JSON."""
        return {self.kind: self.count, "size": self.size, "classes": self.classes}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "get", "check"), help="list them, fetch one, or read and check one")
    parser.add_argument("name", nargs="?", help="a data set; for check also one's own images or texts")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets, before TORCHCAPS_DATA and the cache")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with user_errors():
        if arguments.action == "list":
            if arguments.name is not None:
                raise CommandError(
                    "`torchcaps data list` lists all and takes no name; `torchcaps data check` takes one."
                )
            return _list(arguments)
        if arguments.name is None:
            raise CommandError(
                f"which one? torchcaps data {arguments.action} NAME; `torchcaps data list` has the names."
            )
        return _check(arguments, download=arguments.action == "get")


def _list(arguments: argparse.Namespace) -> int:
    from torchcaps.data.registry import dataset_class, list_datasets

    entries: dict[str, dict[str, str]] = {}
    for name in [*list_datasets("images"), *list_datasets("texts")]:
        cls = dataset_class(name)
        where = _find_place(cls, arguments.data_dir)
        entries[name] = {"description": cls.description(), **({"where": where} if where else {})}
    if arguments.json:
        say_json(entries)
        return 0
    for name, entry in entries.items():
        say(f"{name:<16}{entry['description']}" + (f"  [{entry['where']}]" if "where" in entry else ""))
    return 0


def _find_place(cls: type[Dataset], data_dir: str | None) -> str:
    """Where the files of a data set are; nothing if it is made from those of another."""
    from torchcaps.data.dataset import Files, ImageDataset
    from torchcaps.data.datasets.text_benchmarks import TextBenchmark
    from torchcaps.data.files import data_folders

    if issubclass(cls, TextBenchmark):
        files = list(cls.find_files(Files(data_dir)).values())
        return str(files[0].parent) if all(files) and files[0] else "not here, and not fetched"
    if not cls.folder:
        return "" if issubclass(cls, ImageDataset) and cls.makes_canvas else "in the package"
    places = [folder / cls.folder for folder in data_folders(data_dir)]
    return next((str(place) for place in places if place.is_dir() and any(place.iterdir())), "not here")


def _show(arguments: argparse.Namespace, splits: list[Checked]) -> int:
    """What was read of each split, and how often each class comes."""
    if arguments.json:
        say_json({checked.split: checked.numbers() for checked in splits})
        return 0
    for checked in splits:
        say(f"{arguments.name} {checked.split}: {checked.count:,} {checked.kind} of {checked.size}")
        say("  " + ", ".join(f"{label} {count:,}" for label, count in checked.classes.items()))
    return 0


def _check_texts(arguments: argparse.Namespace) -> int:
    from torchcaps.data.dataset import Files
    from torchcaps.data.options import DataOptions, TextOptions
    from torchcaps.data.registry import make_text_dataset
    from torchcaps.data.text.notices import tell_losses, tell_scripts

    splits, notices = [], sys.stderr if arguments.json else sys.stdout
    for split in ("train", "test"):
        files = Files(arguments.data_dir, notice=lambda text: say(f"  {text}", notices))
        data = make_text_dataset(DataOptions(name=arguments.name)).load(split, files)
        tell_losses(data, TextOptions().max_length, lambda text: say(f"  {text}", notices), f"{split} texts")
        if split == "train":
            tell_scripts(data.texts, TextOptions().units, lambda text: say(f"  {text}", notices))
        counts = data.labels.sum(dim=0) if data.multi_label else data.labels.bincount(minlength=len(data.class_names))
        words = sum(map(len, data.texts)) / max(len(data), 1)
        named = {label: count for label, count in zip(data.class_names, counts.tolist(), strict=True) if count}
        splits.append(Checked(split, "texts", len(data), f"{words:.1f} words on average", named))
    return _show(arguments, splits)


def _check(arguments: argparse.Namespace, download: bool) -> int:
    from torchcaps.data.dataset import Files
    from torchcaps.data.files import print_progress
    from torchcaps.data.options import DataOptions
    from torchcaps.data.preparation import Preparation
    from torchcaps.data.registry import find_dataset, list_datasets, make_image_dataset, option_names

    name = arguments.name
    if download and name not in list_datasets() and not Path(name).exists():
        raise CommandError(f"there is nothing to fetch for {name!r}; `torchcaps data list` has the names.")
    cls = find_dataset(name)
    if cls.kind == "texts":
        if download:
            raise CommandError(
                f"there is nothing to fetch for {name}: text data sets are put into a data folder by hand, and mr-mini "
                "is in the package. `torchcaps data check` says what is missing."
            )
        return _check_texts(arguments)
    if download and cls.name and not cls.downloads:
        raise CommandError(f"{name} is not fetched: {cls.description()}.")
    if download and not cls.name:
        raise CommandError(f"there is nothing to fetch for {name!r}; `torchcaps data list` has the names.")
    dataset = make_image_dataset(
        DataOptions(name=name, options={"unreadable": "skip"} if "unreadable" in option_names(cls) else {})
    )
    splits, notices = [], sys.stderr if arguments.json else sys.stdout
    told: set[str] = set()  # what is true of all images is told for each split

    def notice(text: str) -> None:
        if text not in told:
            told.add(text)
            say(f"  {text}", notices)

    files = Files(arguments.data_dir, download, print_progress, notice)
    for split in ("train", "test"):
        data = dataset.load(split, files)
        shape = dataset.evaluation_source(data, Preparation()).image_shape
        counts = data.labels.sum(dim=0) if data.multi_label else data.labels.bincount(minlength=len(data.class_names))
        named = dict(zip(data.class_names, counts.tolist(), strict=True))
        splits.append(Checked(split, "images", len(data), "×".join(map(str, shape)), named))
        dataset.check_files(split, files)
    return _show(arguments, splits)


DATA = Command("list, fetch or check data sets", EXAMPLES, _add_arguments, _run)
