"""``torchcaps data list|get|check``."""

from __future__ import annotations

import argparse
import sys

from torchcaps.commands.base import Command, CommandError, user_errors

EXAMPLES = """  torchcaps data list
  torchcaps data get fashion-mnist
  torchcaps data check mnist --data-dir DIR
  torchcaps data check photos/                       one's own images"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "get", "check"), help="list them, fetch one, or read and check one")
    parser.add_argument("name", nargs="?", help="a data set; for check also a folder of images or an .npz")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets, before TORCHCAPS_DATA and the cache")


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

    for name, data_set in DATA_SETS.items():
        places = [folder / data_set.folder for folder in data_folders(arguments.data_dir) if data_set.folder]
        here = next((str(place) for place in places if place.is_dir()), None)
        state = "in the package" if not data_set.folder else here or "not here"
        print(f"{name:<16}{data_set.description}  [{state}]")
    for name, text in COMPOSED.items():
        print(f"{name:<16}{text}")
    return 0


def _progress(name: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        part = f" of {total / 1e6:.1f}" if total else ""
        end = "\n" if total and done >= total else ""
        print(f"\r{name}: {done / 1e6:.1f}{part} MB", end=end, file=sys.stderr, flush=True)


def _check(arguments: argparse.Namespace, download: bool) -> int:
    from torchcaps.data.options import DataOptions
    from torchcaps.data.sources import DATA_SETS, load_images

    if download and arguments.name in DATA_SETS and not DATA_SETS[arguments.name].fetched:
        raise CommandError(f"{arguments.name} is not fetched: {DATA_SETS[arguments.name].description}.")
    if download and arguments.name not in DATA_SETS:
        raise CommandError(f"there is nothing to fetch for {arguments.name!r}; `torchcaps data list` has the names.")
    options = DataOptions(name=arguments.name, dir=arguments.data_dir, download=download, unreadable="skip")
    for split in ("train", "test"):
        data = load_images(options, split, progress=_progress, notice=lambda text: print(f"  {text}"))
        counts = data.labels.bincount(minlength=len(data.class_names)).tolist()
        print(f"{arguments.name} {split}: {len(data):,} images of {'×'.join(map(str, data.image_shape))}")
        print("  " + ", ".join(f"{name} {count:,}" for name, count in zip(data.class_names, counts, strict=True)))
    return 0


DATA = Command("list, fetch or check data sets", EXAMPLES, _add_arguments, _run)
