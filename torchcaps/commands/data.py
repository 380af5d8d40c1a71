"""``torchcaps data list|get|check``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

from torchcaps.commands.base import Command, CommandError, say, user_errors

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
            return _list(arguments)
        if arguments.name is None:
            raise CommandError(
                f"which one? torchcaps data {arguments.action} NAME; `torchcaps data list` has the names."
            )
        return _check(arguments, download=arguments.action == "get")


def _list(arguments: argparse.Namespace) -> int:
    from torchcaps.data.files import data_folders
    from torchcaps.data.sources import COMPOSED, DATA_SETS

    found: dict[str, dict[str, str]] = {}
    for name, data_set in DATA_SETS.items():
        places = [folder / data_set.folder for folder in data_folders(arguments.data_dir) if data_set.folder]
        here = next((str(place) for place in places if place.is_dir() and any(place.iterdir())), None)
        state = "in the package" if not data_set.folder else here or "not here"
        found[name] = {"description": data_set.description, "where": state}
    found |= {name: {"description": text} for name, text in COMPOSED.items()}
    found |= _texts(arguments)
    if arguments.json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    for name, of in found.items():
        say(f"{name:<16}{of['description']}" + (f"  [{of['where']}]" if "where" in of else ""))
    return 0


def _texts(arguments: argparse.Namespace) -> dict[str, dict[str, str]]:
    from torchcaps.data.files import data_folders, find_file
    from torchcaps.data.datasets.text_benchmarks import BENCHMARKS

    folders = [folder / "text" for folder in data_folders(arguments.data_dir)]
    listed = {}
    for name, benchmark in BENCHMARKS.items():
        found = [find_file(folders, f"{file}.gz") for file in benchmark.files.values()]
        here = str(found[0].parent) if found and all(found) and found[0] else "not here, and not fetched"
        where = "in the package" if name == "mr-mini" else here
        listed[name] = {"description": benchmark.description, "where": where}
    return listed


def _show(arguments: argparse.Namespace, found: list[Checked]) -> int:
    """What was read of each split, and how often each class comes."""
    if arguments.json:
        say(json.dumps({of.split: of.numbers() for of in found}, indent=2, ensure_ascii=False))
        return 0
    for of in found:
        say(f"{arguments.name} {of.split}: {of.count:,} {of.kind} of {of.size}")
        say("  " + ", ".join(f"{label} {count:,}" for label, count in of.classes.items()))
    return 0


def _check_texts(arguments: argparse.Namespace) -> int:
    from torchcaps.data.options import DataOptions, TextOptions
    from torchcaps.data.text.texts import load_texts

    found = []
    for split in ("train", "test"):
        data = load_texts(DataOptions(name=arguments.name, dir=arguments.data_dir), TextOptions(), split)
        counts = data.labels.sum(dim=0) if data.multi_label else data.labels.bincount(minlength=len(data.class_names))
        words = sum(map(len, data.texts)) / max(len(data), 1)
        named = {label: count for label, count in zip(data.class_names, counts.tolist(), strict=True) if count}
        found.append(Checked(split, "texts", len(data), f"{words:.1f} words on average", named))
    return _show(arguments, found)


def _check(arguments: argparse.Namespace, download: bool) -> int:
    from torchcaps.data.files import print_progress
    from torchcaps.data.options import DataOptions
    from torchcaps.data.sources import COMPOSED, DATA_SETS, evaluation_source, load_images
    from torchcaps.data.text.texts import is_text

    name = arguments.name
    if is_text(name):
        if download:
            raise CommandError(
                f"there is nothing to fetch for {name}: text data sets are put into a data folder by hand, and mr-mini "
                "is in the package. `torchcaps data check` says what is missing."
            )
        return _check_texts(arguments)
    if download and name in DATA_SETS and not DATA_SETS[name].fetched:
        raise CommandError(f"{name} is not fetched: {DATA_SETS[name].description}.")
    if download and name not in DATA_SETS:
        raise CommandError(f"there is nothing to fetch for {name!r}; `torchcaps data list` has the names.")
    options = DataOptions(name=name, dir=arguments.data_dir, download=download, unreadable="skip")
    found, notices = [], sys.stderr if arguments.json else sys.stdout
    for split in ("train", "test"):
        data = load_images(options, split, print_progress, lambda text: say(f"  {text}", notices))
        shape = evaluation_source(options).image_shape if name in COMPOSED else data.image_shape
        counts = data.labels.bincount(minlength=len(data.class_names)).tolist()
        named = dict(zip(data.class_names, counts, strict=True))
        found.append(Checked(split, "images", len(data), "×".join(map(str, shape)), named))
        if name == "small-norb":
            from torchcaps.data.datasets.small_norb import small_norb_info  # which the other protocols need

            small_norb_info(split, arguments.data_dir, download=download, progress=print_progress)
    return _show(arguments, found)


DATA = Command("list, fetch or check data sets", EXAMPLES, _add_arguments, _run)
