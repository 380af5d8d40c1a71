"""What arrays are called in the .npz files that people have, and which of them are used."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from torchcaps.errors import DataError

ROLES: dict[str, tuple[str, ...]] = {
    "x": ("x", "x_train", "train_x", "xtrain", "images", "train_images", "images_train"),
    "y": ("y", "y_train", "train_y", "ytrain", "labels", "train_labels", "labels_train"),
    "x_test": ("x_test", "test_x", "xtest", "xt", "test_images", "images_test"),
    "y_test": ("y_test", "test_y", "ytest", "yt", "test_labels", "labels_test"),
    "class_names": ("class_names", "classes", "label_names"),
}
"""The names that an array of each role may have, whatever their case."""
WORDS = {
    "x": "images",
    "y": "labels",
    "x_test": "test images",
    "y_test": "test labels",
    "class_names": "names of the classes",
}


class ArrayNames(NamedTuple):
    """The arrays of a file.

    Attributes:
        used: what the array of each role that is there is called.
        others: those that have none.
    """

    used: dict[str, str]
    others: tuple[str, ...]

    def describe_others(self, path: object) -> list[str]:
        """A sentence on what is not used, if there is anything."""
        if not self.others:
            return []
        named = ", ".join(map(repr, self.others[:10])) + (", …" if len(self.others) > 10 else "")
        validation = any("val" in name.lower() for name in self.others)
        aside = "; what training is watched by is cut from the training images (data.validation)" if validation else ""
        return [f"{path} has arrays that are not used: {named}{aside}."]


def find_arrays(names: Collection[str], path: object, advice: str) -> ArrayNames:
    """Which array has which role.

    Args:
        names: of all arrays of a file.
        path: of the file, for messages.
        advice: how such a file is made.

    Raises:
        DataError: an array is missing, or there are two that could be meant.
    """
    used: dict[str, str] = {}
    for role, known in ROLES.items():
        there = [name for name in names if name.lower() in known]
        if len(there) > 1:
            raise DataError(
                f"{path} has {' and '.join(map(repr, sorted(there)))}, which both could be the {WORDS[role]}. Keep one."
            )
        if there:
            used[role] = there[0]
    for role in ("x", "y", *(("x_test", "y_test") if {"x_test", "y_test"} & used.keys() else ())):
        if role not in used:
            found = ", ".join(sorted(names)) or "nothing"
            raise DataError(
                f"{path} has no array {role!r}, the {WORDS[role]} (or {', '.join(ROLES[role][1:])}); found: {found}. "
                f"{advice}"
            )
    return ArrayNames(used, tuple(sorted(set(names) - set(used.values()))))
