"""Which images lie in the class folders of a folder, and what else lies there and is left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from torchcaps.data.image_arrays import check_class_names
from torchcaps.data.image_files import EXTENSIONS
from torchcaps.data.splits import SPLITS
from torchcaps.errors import DataError
from torchcaps.io import make_printable

SPLIT_LIKE = {"train", "training", "test", "testing", "val", "valid", "validation"}
JUNK = {"thumbs.db", "desktop.ini", "ehthumbs.db"}
"""What systems leave in folders of images; whose names begin with a dot is left out anyway."""
OLD_EXTENSIONS = (".png", ".jpg", ".jpeg")
"""Those that version 0.1 read: its runs recorded nothing, so their data must be counted as it did."""
MOST_NAMED = 5


class ClassFile(NamedTuple):
    """An image file: its name relative to the user's folder with slashes, its class, and the split that it lies in."""

    name: str
    label: int
    part: str  # "train" or "test" if the folder has these, else empty


@dataclass
class LeftOut:
    """What is not read of a folder.

    Attributes:
        endings: of files in class folders that are no images by their names, and how many have each.
        outside: images that lie in no class folder.
        hidden: images whose names begin with a dot.
        folders: beside train/ and test/.
        odd_classes: folders that are read as classes, but are called as splits are.
    """

    endings: Counter[str] = field(default_factory=Counter)
    outside: list[str] = field(default_factory=list)
    hidden: int = 0
    folders: list[str] = field(default_factory=list)
    odd_classes: list[str] = field(default_factory=list)

    def describe(self) -> list[str]:
        """A sentence for each kind of what is left out."""
        said = []
        if self.endings:
            count = self.endings.total()
            files = f"{count_files(count, 'file')} in class folders {'is' if count == 1 else 'are'}"
            left = f"{'was' if count == 1 else 'were'} left out; images end in {', '.join(EXTENSIONS)}"
            said.append(f"{files} not of a format that is read ({describe_endings(self.endings)}) and {left}.")
        if self.outside:
            count = len(self.outside)
            said.append(
                f"{count_files(count)} in no class folder {'was' if count == 1 else 'were'} left out, such as "
                f"{make_printable(self.outside[0])}."
            )
        if self.hidden:
            verb = "whose name begins with a dot was" if self.hidden == 1 else "whose names begin with a dot were"
            said.append(f"{count_files(self.hidden)} {verb} left out.")
        if self.folders:
            named = ", ".join(f"{name}/" for name in self.folders[:MOST_NAMED])
            more = ", …" if len(self.folders) > MOST_NAMED else ""
            said.append(
                f"Beside train/ and test/ there is {named}{more}, of which nothing is read; what training is watched "
                "by is cut from train/ (data.validation)."
            )
        if self.odd_classes:
            named = ", ".join(f"{name}/" for name in self.odd_classes)
            said.append(f"{named} is read as a class like the other folders beside it, although it is called a split.")
        return said


class ClassFolders(NamedTuple):
    """The images of each class of "train" and "test", or of "" if they are not yet cut into these, and the rest."""

    parts: dict[str, dict[str, list[str]]]
    left_out: LeftOut


def count_files(count: int, what: str = "image") -> str:
    """How many there are, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def describe_endings(endings: Counter[str]) -> str:
    """Endings of names and how many files have each, the most frequent first."""
    shown = sorted(endings.items(), key=lambda pair: (-pair[1], pair[0]))
    named = ", ".join(f"{ending or 'no ending'} {count:,}" for ending, count in shown[: 2 * MOST_NAMED])
    return named + (", …" if len(shown) > 2 * MOST_NAMED else "")


def list_class_folders(root: Path, endings: tuple[str, ...] = EXTENSIONS) -> ClassFolders:
    """Look through a folder; only names are looked at.

    Args:
        root: the folder.
        endings: of the names of images.
    """
    if not root.exists():
        raise DataError(f"there is no folder {root}. Give the path of a folder with one folder of images per class.")
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Give a folder that has one folder of images per class.")
    folders = _list_subfolders(root)
    left_out = LeftOut()
    if all(split in folders and _list_subfolders(root / split) for split in SPLITS):
        left_out.folders = [name for name in folders if name not in SPLITS]
        _count_outside(root, "", left_out, endings)
        return ClassFolders({split: _list_classes(root, split, left_out, endings) for split in SPLITS}, left_out)
    alike = [folder for folder in folders if folder.lower() in SPLIT_LIKE]
    if folders and len(alike) == len(folders):  # classes they would silently become
        raise DataError(
            f"{root} has the folders {', '.join(folders)}, which look like splits, not classes. Name them train/ and "
            "test/ and put one folder of images per class into each, or put the class folders directly into it."
        )
    left_out.odd_classes = alike
    return ClassFolders({"": _list_classes(root, "", left_out, endings)}, left_out)


def number_class_files(
    root: Path, there: ClassFolders, class_names: Sequence[str] | None
) -> tuple[list[ClassFile], tuple[str, ...]]:
    """All files of both parts, sorted by class folder and name, and the names of the classes."""
    parts = there.parts
    classes = parts.get("", parts.get("train", {}))
    extra = sorted(set(parts.get("test", classes)) - set(classes))
    if extra:
        raise DataError(f"test/ in {root} has classes that train/ lacks: {', '.join(extra)}. Add them to train/ too.")
    names = check_class_names(list(classes) if class_names is None else class_names, root)
    unknown = sorted(set(classes) - set(names))
    if unknown:
        raise DataError(f"{root} has folders that are none of the classes {list(names)}: {', '.join(unknown)}.")
    empty = [f"{part}/{name}".strip("/") for part in parts for name, inside in parts[part].items() if not inside]
    if empty:
        others = there.left_out.endings
        found = f"; there are other files ({describe_endings(others)})" if others else ""
        raise DataError(
            f"these class folders in {root} hold no images: {', '.join(empty)}{found}. Delete them or put images into "
            f"them ({', '.join(EXTENSIONS)})."
        )
    number = {name: index for index, name in enumerate(names)}
    files = [
        ClassFile(file, number[name], part) for part in parts for name in parts[part] for file in parts[part][name]
    ]
    return files, names


def _list_subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _list_classes(root: Path, part: str, left_out: LeftOut, endings: tuple[str, ...]) -> dict[str, list[str]]:
    """The images of each class folder in a part of the root, as sorted names relative to the root."""
    place = root / part
    images = {name: _list_images(root, place / name, left_out, endings) for name in _list_subfolders(place)}
    outside = _count_outside(root, part, left_out, endings)
    if not images and outside:
        raise DataError(
            f"{place} has images but no class folders. Put the images into one folder per class, or a file labels.csv "
            "with the columns file and label beside them."
        )
    if not any(images.values()):
        others = f" It has other files ({describe_endings(left_out.endings)})." if left_out.endings else ""
        raise DataError(
            f"{place} holds no images at all.{others} Put one folder per class into it, with images "
            f"({', '.join(EXTENSIONS)})."
        )
    return images


def _count_outside(root: Path, part: str, left_out: LeftOut, endings: tuple[str, ...]) -> int:
    """Remember the images that lie beside the class folders."""
    with os.scandir(root / part) as entries:
        names = sorted(entry.name for entry in entries if entry.name.lower().endswith(endings) and entry.is_file())
    shown = [name for name in names if not name.startswith(".")]
    left_out.hidden += len(names) - len(shown)
    left_out.outside += [f"{part}/{name}".removeprefix("/") for name in shown]
    return len(shown)


def walk_files(root: Path, folder: Path) -> Iterable[tuple[str, list[str]]]:
    """Every folder inside of one, hidden ones left out, relative to the root with slashes, and the files in it."""

    def refuse(error: OSError) -> NoReturn:
        raise DataError(f"{error.filename} cannot be opened: {error.strerror}.") from error

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield os.path.relpath(place, root).replace(os.sep, "/"), files


def _list_images(root: Path, folder: Path, left_out: LeftOut, endings: tuple[str, ...]) -> list[str]:
    paths = []
    for place, files in walk_files(root, folder):
        for name in files:
            is_image, hidden = name.lower().endswith(endings), name.startswith(".")
            if is_image and not hidden:
                paths.append(f"{place}/{name}")
            elif is_image:
                left_out.hidden += 1
            elif not hidden and name.lower() not in JUNK:
                left_out.endings[os.path.splitext(name)[1].lower()[:20]] += 1
    return sorted(paths)  # as text: the order of paths differs between systems
