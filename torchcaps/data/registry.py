"""Data sets by name, or by the path of a user's own files, and their options checked."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torchcaps.checks import require_choice
from torchcaps.data.columns import TABLE_ENDINGS
from torchcaps.data.dataset import NO_OPTION, Dataset, ImageDataset, Kind, TextDataset
from torchcaps.data.image_arrays import ImageArrays
from torchcaps.data.image_folder import ImageFolder
from torchcaps.data.label_files import find_label_file, is_label_file
from torchcaps.data.labelled_images import LabelledImages
from torchcaps.data.options import IN_MEMORY, DataOptions
from torchcaps.data.text.files import OTHER_SUFFIXES, TextFile, explain_text_folder
from torchcaps.errors import DataError, InputError
from torchcaps.plain import shorten
from torchcaps.typed import describe_misfit, describe_type, field_types, fits

BUILT_IN = ("torchcaps.data.datasets", "torchcaps.data.synthetic")
"""Packages whose modules register the data sets of torchcaps."""
_DATASETS: dict[str, type[Dataset]] = {}
_imported: list[str] = []
Registered = TypeVar("Registered", bound=type[Dataset])


def register_dataset(name: str) -> Callable[[Registered], Registered]:
    """Decorator that makes a data set known by a name.

    It is put on a dataclass that derives from :class:`~torchcaps.data.dataset.ImageDataset` or
    :class:`~torchcaps.data.dataset.TextDataset`; its fields, all with defaults, are its options.

    Args:
        name: that recipes and commands use, such as "small-norb".
    """

    def register(cls: Registered) -> Registered:
        if not (isinstance(cls, type) and issubclass(cls, Dataset) and "__dataclass_fields__" in vars(cls)):
            raise InputError(
                f"a data set must be a dataclass that derives from ImageDataset or TextDataset, got {shorten(cls)}. "
                "Put @dataclass(frozen=True) below @register_dataset."
            )
        needed = [field.name for field in dataclasses.fields(cls) if _needs_value(field)]
        if needed:
            raise InputError(f"every option of a data set needs a default; {cls.__name__} has none for {needed[0]}.")
        if name in _DATASETS:
            raise InputError(f"a data set is registered as {name!r} already. Choose another name.")
        cls.name = name
        _DATASETS[name] = cls
        return cls

    return register


def list_datasets(kind: Kind | None = None) -> list[str]:
    """The names of all data sets that are registered, or of those of a kind, in the order in which they were."""
    _import_built_in()
    return [name for name, cls in _DATASETS.items() if kind in (None, cls.kind)]


def dataset_class(name: str) -> type[Dataset]:
    """The data set of a name; an unknown name is a :class:`DataError` with the nearest one."""
    _import_built_in()
    try:
        require_choice("data set", name, _DATASETS)
    except ValueError as error:
        raise DataError(
            f"{error} One's own data: a folder of class folders or with labels.csv, an .npz with x and y, or a .csv "
            "file.",
            option="data.name",
        ) from None
    return _DATASETS[name]


def find_dataset(name: str) -> type[Dataset]:
    """The data set of a name, or the class that reads a user's own files at a path."""
    _import_built_in()
    path = Path(name)
    if name == IN_MEMORY:
        raise DataError("the training data was in memory, which is not kept: give the data to use.", option="data.name")
    if name in _DATASETS:
        return _DATASETS[name]
    if path.suffix.lower() in TABLE_ENDINGS and is_label_file(path):
        return LabelledImages
    if path.suffix.lower() in TABLE_ENDINGS or any((path / f"train{suffix}").is_file() for suffix in TABLE_ENDINGS):
        return TextFile
    if path.suffix.lower() in OTHER_SUFFIXES and not path.is_dir():
        return TextFile  # which says what to do with it
    if path.is_dir():
        if find_label_file(path) is not None:
            return LabelledImages
        if (advice := explain_text_folder(path)) is not None:
            raise DataError(f"{name} has texts, but not as they are read: {advice}", option="data.name")
        return ImageFolder
    if path.exists() or path.suffix == ".npz":
        return ImageArrays
    if os.sep in name or path.suffix:
        raise DataError(f"{name} is not there: no such folder or .npz file.", option="data.name")
    return dataset_class(name)


def is_path(name: str) -> bool:
    """Whether data is a user's own files, given by their path."""
    return not find_dataset(name).name


def option_names(cls: type[Dataset]) -> list[str]:
    """The options of a data set; the path of a user's own files is none."""
    return [field.name for field in dataclasses.fields(cls) if field.name != "path" and field.metadata != NO_OPTION]


def make_dataset(options: DataOptions) -> Dataset:
    """The data set that is asked for, with its options.

    Args:
        options: ``name`` is that of a registered data set, or the path of a folder of class folders, of a folder of
            images with labels.csv, of an .npz with x and y, of a .csv, .tsv or .jsonl file of texts or of a folder with
            train.csv; ``options`` are its own.

    Raises:
        DataError: there is no such data, or it has no such option, or not with this value; the message lists those
            that there are.
    """
    cls = find_dataset(options.name)
    given = dict(options.options)
    _check_options(cls, given, options.name)
    if not cls.name:
        given["path"] = options.name
    try:
        return cls(**given)
    except DataError as error:
        if error.option is None:
            raise
        raise _make_error(cls, options.name, str(error), error.option) from None


def make_image_dataset(options: DataOptions) -> ImageDataset:
    """As :func:`make_dataset`, of images; texts are refused."""
    dataset = make_dataset(options)
    if not isinstance(dataset, ImageDataset):
        raise DataError(f"{options.name} has {dataset.kind}, but images are needed.", option="data.name")
    return dataset


def make_text_dataset(options: DataOptions) -> TextDataset:
    """As :func:`make_dataset`, of texts; images are refused."""
    dataset = make_dataset(options)
    if not isinstance(dataset, TextDataset):
        raise DataError(f"{options.name} has {dataset.kind}, but texts are needed.", option="data.name")
    return dataset


def keep_own_options(options: DataOptions) -> DataOptions:
    """The same without options that the data set lacks, which are left from another one."""
    known = option_names(find_dataset(options.name))
    return replace(options, options={key: value for key, value in options.options.items() if key in known})


def _needs_value(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _import_built_in() -> None:
    for package in BUILT_IN:
        if package not in _imported:
            _imported.append(package)
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
                importlib.import_module(module.name)


def _check_options(cls: type[Dataset], given: Mapping[str, Any], name: str) -> None:
    """Refuse options that a data set lacks, and values that are not of the type of theirs."""
    types_of = field_types(cls)
    for key, value in given.items():
        if key not in option_names(cls):
            near = difflib.get_close_matches(str(key), option_names(cls), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise _make_error(cls, name, f"{name} has no option {shorten(key)}.{hint}", str(key))
        if not fits(value, types_of[key]):
            raise _make_error(cls, name, describe_misfit(key, value, types_of[key]), key)


def _make_error(cls: type[Dataset], name: str, problem: str, option: str) -> DataError:
    types_of = field_types(cls)
    known = ", ".join(f"{key} ({describe_type(types_of[key])})" for key in option_names(cls))
    return DataError(f"{problem} Options of {name}: {known or 'none'}.", option=f"data.options.{option}")
