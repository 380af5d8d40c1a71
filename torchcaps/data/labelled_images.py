"""A user's own images in a folder, with a file that says which label, or which labels, each of them has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchcaps.data.class_folders import count_files, walk_files
from torchcaps.data.dataset import Files
from torchcaps.data.image_arrays import check_class_names
from torchcaps.data.image_files import EXTENSIONS, FileImages, hash_files, read_image_files, refuse_files
from torchcaps.data.images import ImageSet, check_split
from torchcaps.data.items import Entry, Item
from torchcaps.data.label_files import LabelColumns, LabelRow, find_label_file, read_label_file
from torchcaps.data.labels import join_labels, make_flags, sort_names
from torchcaps.data.splits import NO_TEST, choose_entries
from torchcaps.errors import DataError
from torchcaps.io import make_printable


@dataclass(frozen=True)
class LabelledImages(FileImages):
    """One's own images in a folder with a file labels.csv, .tsv or .jsonl, of one label or several each.

    Names in the file are relative to its folder. A column ``split`` says train or test of each image; without it about
    a fifth is kept for the test. Where a label has several parts, or a list, images may have any number of labels.

    Args:
        path: the folder, or the file in it.
        image_size: side that the images are brought to; not given: their own if it is small and the same for all.
        unreadable: refuse or skip images that cannot be read, or are not there.
        fit: how images of another shape are brought to theirs, see :func:`~torchcaps.data.pictures.fit_image`.
        file_column: where the files are named; not given: file, filename, image, path and the like.
        label_column: where their labels are; not given: label, labels, class, tags and the like.
        label_separator: between the labels of one image; an empty text if each has one; not given: | or ; where any
            cell has one.
        image_shape: channels, height and width that a model was trained for; no option.
    """

    file_column: str | None = None
    label_column: str | None = None
    label_separator: str | None = None

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        check_split(split)
        there = self._list(class_names)
        entries = there.list_entries()
        fresh = files.record is None and not files.counted
        if there.missing and fresh and self.unreadable == "refuse":
            refuse_files(there.root, there.missing, len(there.rows) + len(there.missing))
        chosen = choose_entries(entries, split, files)
        if not chosen:
            raise DataError(NO_TEST.format(there.root, "image", "images"))
        if files.notice and fresh:
            for sentence in there.describe_left_out():
                files.notice(sentence)
        known = range(len(entries)) if files.record is None else files.record.list_known(entries)
        images, bad = read_image_files(there.root, there.names, known, chosen, self.reading, files)
        kept = [number for number in chosen if there.names[number] not in bad]
        if not kept:
            raise DataError(f"not one {split} image of {self.path} can be read. Replace the damaged files.")
        skipped = len(chosen) - len(kept)
        if skipped and files.notice:
            first = next(there.names[number] for number in chosen if there.names[number] in bad)
            files.notice(f"{skipped} unreadable images were skipped, for example {first}: {bad[first]}")
        items = tuple(Item(entries[number].key, entries[number].name) for number in kept)
        flags = make_flags([there.rows[number].labels for number in kept], there.class_names)
        labels = flags if there.multi_label else flags.int().argmax(dim=1)
        return ImageSet(images, labels, there.class_names, items)

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return self._list(class_names).list_entries()

    def judged_split(self) -> str:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return "test" if any(row.part for row in self._list(None, check=False).rows) else "all"

    def _list(self, class_names: Sequence[str] | None, check: bool = True) -> _Listed:
        """What the file of labels says, and which of its images are there."""
        path = Path(self.path)
        label_file = find_label_file(path) if path.is_dir() else path
        if label_file is None or not label_file.is_file():
            raise DataError(f"there is no file labels.csv, .tsv or .jsonl in {path}, which says what its images are.")
        columns = LabelColumns(self.file_column, self.label_column, self.label_separator)
        table = read_label_file(label_file, columns)
        root = label_file.parent
        missing = _find_missing(root, table.rows)
        rows = [row for row in table.rows if row.file not in missing]
        names = _name_classes(table.rows, class_names, label_file) if check else ()
        return _Listed(root, label_file, rows, names, table.multi_label, missing, table.unused, table.named)


class _Listed(NamedTuple):
    root: Path
    label_file: Path
    rows: list[LabelRow]
    class_names: tuple[str, ...]
    multi_label: bool
    missing: dict[str, str]  # names of files that are not there, and why
    unused: int  # images of a split that is not used
    named: frozenset[str]  # in the file of labels

    @property
    def names(self) -> list[str]:
        """Of the files."""
        return [row.file for row in self.rows]

    def list_entries(self) -> list[Entry]:
        keys = hash_files(self.root, self.names)
        return [
            Entry(
                key,
                make_printable(row.file),
                join_labels(row.labels),
                row.part,
                row.labels if self.multi_label else None,
            )
            for key, row in zip(keys, self.rows, strict=True)
        ]

    def describe_left_out(self) -> list[str]:
        """A sentence for each kind of what is left out."""
        said, where = [], self.label_file.name
        if self.missing:
            name, reason = next(iter(self.missing.items()))
            said.append(
                f"{count_files(len(self.missing))} that {where} names {_were(len(self.missing))} left out, such as "
                f"{make_printable(name)}: {reason}."
            )
        if self.unused:
            said.append(
                f"{count_files(self.unused)} of the split validation in {where} {_were(self.unused)} left out; what "
                "training is watched by is cut from train (data.validation)."
            )
        others = [name for name in _list_images(self.root) if name not in self.named]
        if others:
            said.append(
                f"{count_files(len(others))} in {self.root} that {where} does not name {_were(len(others))} left out, "
                f"such as {make_printable(others[0])}."
            )
        bare = sum(not row.labels for row in self.rows)
        if bare:
            said.append(f"{count_files(bare)} without any label {_were(bare)} taken to show none of the classes.")
        return said


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _list_images(root: Path) -> list[str]:
    names = []
    for place, files in walk_files(root, root):
        inside = "" if place == "." else f"{place}/"
        names += [f"{inside}{name}" for name in files if name.lower().endswith(EXTENSIONS) and name[0] != "."]
    return sorted(names)


def _find_missing(root: Path, rows: Sequence[LabelRow]) -> dict[str, str]:
    """Files that are not there, and why; one that a link leads out of the folder to is refused."""
    inside = os.path.realpath(root)
    missing = {}
    for row in rows:
        place = os.path.realpath(root / row.file)
        if not place.startswith(inside.rstrip(os.sep) + os.sep):
            raise DataError(
                f"{row.file} in {root} is a link that leads out of the folder, to {place}: it is not followed. Copy "
                "the image into the folder."
            )
        if not os.path.isfile(place):
            missing[row.file] = "there is no such file" if not os.path.exists(place) else "it is no file"
    for name in list(missing)[:1]:
        ending = next((ending for ending in EXTENSIONS if (root / f"{name}{ending}").is_file()), None)
        if ending is not None:
            missing[name] += f", but {name}{ending}: names need their endings"
    return missing


def _name_classes(rows: Sequence[LabelRow], given: Sequence[str] | None, path: Path) -> tuple[str, ...]:
    """The names of the classes: those given, else the labels of training."""
    there = {label for row in rows for label in row.labels}
    trained = {label for row in rows if row.part != "test" for label in row.labels}
    names = check_class_names(sort_names(trained) if given is None else given, path)
    unknown = sorted(there - set(names))
    if unknown:
        raise DataError(
            f"{path} has labels that {'training' if given is None else 'the model'} does not know: "
            f"{', '.join(unknown[:5])}; known are {', '.join(names[:10])}."
        )
    return names
