"""Images of one class each, of several objects, or of any number of labels."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from torchcaps.data.dataset import Dataset, Files, ImageDataset, Kind
from torchcaps.data.images import ImageSource
from torchcaps.data.memory import is_picture, list_pixels
from torchcaps.data.options import CROPS, DataOptions
from torchcaps.data.pictures import Fit, fit_image, read_image
from torchcaps.data.preparation import Preparation
from torchcaps.data.sources import evaluation_source, training_sources
from torchcaps.errors import DataError, TorchcapsError
from torchcaps.models.registry import Reads, model_factory
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.tasks.base import InputBatch, OnBadItem, Prepared, Task
from torchcaps.training.tasks.headers import (
    MOST_SIDE,
    read_class_names,
    read_fit,
    read_preparation,
    read_shape,
    read_value,
)

READERS = max(2, min(4, os.cpu_count() or 2))
"""Threads that read files: Pillow decodes in parallel."""


@dataclass(frozen=True)
class ImageTask(Task):
    """Which class does an image show, or which several?

    Args:
        class_names: what the classes are called.
        image_shape: of an image before it is prepared: channels, height, width.
        preparation: what is done to it before the model sees it.
        objects: how many things an image shows.
        fit: how an image of another shape is brought to that one.
        multi_label: an image may have any number of classes.
    """

    kind: ClassVar[Kind] = "images"
    reads: ClassVar[Reads] = "images"
    item_name: ClassVar[str] = "file"
    at_a_time: ClassVar[int] = 64

    image_shape: tuple[int, int, int]
    preparation: Preparation = field(default_factory=Preparation)
    objects: int = 1
    fit: Fit = "letterbox"
    multi_label: bool = False

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """What the model sees of an image: channels, height, width."""
        return self.preparation.input_shape(self.image_shape)

    @property
    def patches(self) -> int:
        """Of each image, whose scores are averaged."""
        return self.preparation.crops

    @property
    def size_option(self) -> str:
        """See :class:`Task`."""
        return "resize" if self.preparation.crop is None else "crop"

    def resize_to(self, side: int) -> ImageTask:
        """See :class:`Task`: images whose shorter side is so long, or patches of that side."""
        prepared = self.preparation
        smaller = replace(prepared, resize=side) if prepared.crop is None else replace(prepared, crop=side)
        return replace(self, preparation=smaller)

    @classmethod
    def prepare(cls, recipe: Recipe, dataset: Dataset, files: Files) -> Prepared:
        """See :class:`Task`."""
        images = cast(ImageDataset, dataset)
        train, validation = training_sources(images, recipe.data, recipe.training.seed, files)
        preparation = Preparation.from_options(recipe.data)
        multi_label = bool(getattr(train, "multi_label", False))
        task = cls(train.class_names, train.image_shape, preparation, train.objects, images.fit, multi_label)
        return Prepared(task, train, validation)

    def model_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Several objects per image are told to the models that can decode them."""
        chosen = dict(options)
        if self.objects > 1 and "objects" in inspect.signature(model_factory(name)).parameters:
            chosen.setdefault("objects", self.objects)
        return chosen

    def to_keys(self, data_options: Collection[str]) -> dict[str, Any]:
        """See :class:`Task`: the same preparation, and of a folder the same size of the images."""
        known = {each.name for each in fields(DataOptions)}
        keys = {f"data.{key}": value for key, value in asdict(self.preparation).items() if key in known}
        if self.preparation.crop is not None:
            keys["data.shift"] = 0  # a patch from a random place is a shift already
        _, height, width = self.image_shape
        if "image_size" in data_options and height == width:
            keys["data.options.image_size"] = height
        return keys

    def match(self, known: Task, dataset: Dataset) -> dict[str, Any]:
        """See :class:`Task`: another ``resize``, unless somebody has asked for one."""
        if not isinstance(known, ImageTask) or self.preparation != known.preparation:
            return {}
        _, height, width = known.input_shape
        if self.input_shape[1:] == (height, width):
            return {}
        wanted = replace(self.preparation, resize=min(height, width), crop=None, crops=1)
        if wanted.input_shape(self.image_shape)[1:] != (height, width):
            return {}
        try:
            cast(ImageDataset, dataset).check_preparation(wanted)
        except DataError:  # it has a canvas of its own
            return {}
        return {"resize": wanted.resize, "crop": None, "crops": 1}

    def describe_inputs(self, known: Task, matched: bool) -> str:
        """See :class:`Task`."""
        if matched:
            _, height, width = self.input_shape
            return f"Images are brought to {height}×{width}, the size that the model was trained for."
        here, there = ("×".join(map(str, shape)) for shape in (self.input_shape, known.input_shape))
        return f"Images are {here} here (channels × height × width), and the model was trained for {there}."

    def to_header(self) -> dict[str, Any]:
        """See :class:`Task`."""
        return {
            "image_shape": list(self.input_shape),
            "class_names": list(self.class_names),
            "preparation": asdict(self.preparation),
            "picture_shape": list(self.image_shape),
            # Only what is not as it was in 0.1: the same model gives the same file.
            **({"fit": self.fit} if self.fit != "letterbox" else {}),
            **({"multi_label": True} if self.multi_label else {}),
        }

    @classmethod
    def from_header(cls, values: Mapping[str, Any]) -> ImageTask:
        """See :class:`Task`; a header from before there was a preparation has none."""
        seen = read_shape(values, "image_shape")
        shape = read_shape(values, "picture_shape") if "picture_shape" in values else seen
        preparation = Preparation(**read_preparation(values.get("preparation", {})))
        resized = preparation.resize_shape(shape)
        if max(resized[1:]) > MOST_SIDE:
            raise RunError(f"images would be resized to {resized}.")
        if preparation.input_shape(shape) != seen:
            raise RunError(f"images of {shape} do not become {seen} by its preparation.")
        objects = values.get("options", {}).get("objects", 1)
        known = objects if isinstance(objects, int) and not isinstance(objects, bool) and objects > 0 else 1
        multi_label = bool(read_value(values, "multi_label", bool, False))
        return cls(read_class_names(values), shape, preparation, known, read_fit(values), multi_label)

    def evaluation_source(
        self, dataset: Dataset, split: str, files: Files, crops: int | None = None, own: bool = True
    ) -> ImageSource:
        """See :class:`Task`."""
        if dataset.kind != self.kind:
            raise RunError(f"{dataset.title} has {dataset.kind}, but this model reads images.")
        images = cast(ImageDataset, dataset).fit_to(self.image_shape, self.fit)
        if crops in CROPS[1:] and self.preparation.crop is None:
            raise RunError(f"crops {crops} is for runs that were trained with data.crop, and this was not.", "crops")
        preparation = self.preparation if crops is None else replace(self.preparation, crops=crops)
        source = evaluation_source(images, preparation, split, files, self.class_names, self.multi_label)
        if source.image_shape != self.image_shape or source.class_names != self.class_names:
            raise RunError(
                f"{dataset.title} has images of {source.image_shape} of {', '.join(source.class_names)}, but this "
                f"model was trained for {self.image_shape} of {', '.join(self.class_names)}."
            )
        if bool(getattr(source, "multi_label", False)) and not self.multi_label:
            raise RunError(
                f"the images of {dataset.title} may have several labels, but this model was trained for one class each."
            )
        return source

    def list_items(self, inputs: Any) -> list[Any]:
        """Files, images of Pillow, arrays and tensors: one, a list of them, or many in one array."""
        if isinstance(inputs, (str, os.PathLike)) or is_picture(inputs):
            return [inputs]
        if isinstance(inputs, (list, tuple)):
            return [item for each in inputs for item in self.list_items(each)]
        return list_pixels(inputs)

    def name_item(self, item: Any, place: int) -> str:
        """The file's name, or the image's number."""
        return os.fspath(item) if isinstance(item, (str, os.PathLike)) else f"image {place + 1}"

    def read_items(self, items: Sequence[Any], on_error: OnBadItem | None = None) -> Iterator[InputBatch]:
        """See :class:`Task`; files are read side by side."""
        if all(isinstance(item, Tensor) for item in items):
            tried = [self._try_to_read(item) for item in items]
        else:
            with ThreadPoolExecutor(READERS) as readers:
                tried = list(readers.map(self._try_to_read, items))
        images = {}
        for place, image in enumerate(tried):
            if isinstance(image, Tensor):
                images[place] = image
            elif on_error is None:
                raise image
            else:
                on_error(place, image)
        if images:
            yield InputBatch(list(images), self.prepare_images(torch.stack(list(images.values()))))

    def _try_to_read(self, item: Any) -> Tensor | TorchcapsError:
        try:
            return self._read(item)
        except TorchcapsError as error:
            return error

    def _read(self, item: Any) -> Tensor:
        if isinstance(item, (str, os.PathLike)):
            return read_image(Path(item), self.image_shape, self.fit)
        if is_picture(item):
            return fit_image(item, self.image_shape, self.fit)
        if tuple(item.shape) != self.image_shape:
            raise RunError(
                f"this model was trained for images of {self.image_shape} (channels, height, width), got "
                f"{tuple(item.shape)}. Files and images of Pillow are brought to that size."
            )
        return cast(Tensor, item)

    def prepare_images(self, images: Tensor) -> Tensor:
        """Images uint8 ``[B, C, H, W]`` as the model sees them: float ``[B, P, C, h, w]``, P patches of each."""
        return self.preparation.cut_patches(self.preparation.resize_images(images))
