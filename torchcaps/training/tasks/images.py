"""Images of one class each, or of several objects."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from torchcaps.data.dataset import Dataset, Files, ImageDataset, Kind
from torchcaps.data.images import ImageSource
from torchcaps.data.memory import is_picture, list_pixels
from torchcaps.data.options import CROPS
from torchcaps.data.pictures import fit_image, read_image
from torchcaps.data.preparation import Preparation
from torchcaps.data.sources import evaluation_source, training_sources
from torchcaps.models.registry import Reads, model_factory
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.tasks.base import InputBatch, Prepared, Task
from torchcaps.training.tasks.headers import MOST_SIDE, read_class_names, read_preparation, read_shape

AT_A_TIME = 256
"""Images that a model is asked about together."""


@dataclass(frozen=True)
class ImageTask(Task):
    """Which class does an image show, or which several?

    Args:
        class_names: what the classes are called.
        image_shape: of an image before it is prepared: channels, height, width.
        preparation: what is done to it before the model sees it.
        objects: how many things an image shows.
    """

    kind: ClassVar[Kind] = "images"
    reads: ClassVar[Reads] = "images"
    item_name: ClassVar[str] = "file"

    image_shape: tuple[int, int, int]
    preparation: Preparation = field(default_factory=Preparation)
    objects: int = 1

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """What the model sees of an image: channels, height, width."""
        return self.preparation.input_shape(self.image_shape)

    @property
    def patches(self) -> int:
        """Of each image, whose scores are averaged."""
        return self.preparation.crops

    @classmethod
    def prepare(cls, recipe: Recipe, dataset: Dataset, files: Files) -> Prepared:
        """See :class:`Task`."""
        images = cast(ImageDataset, dataset)
        train, validation = training_sources(images, recipe.data, recipe.training.seed, files)
        preparation = Preparation.from_options(recipe.data)
        task = cls(train.class_names, train.image_shape, preparation, train.objects)
        return Prepared(task, train, validation)

    def model_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Several objects per image are told to the models that can decode them."""
        chosen = dict(options)
        if self.objects > 1 and "objects" in inspect.signature(model_factory(name)).parameters:
            chosen.setdefault("objects", self.objects)
        return chosen

    def to_header(self) -> dict[str, Any]:
        """See :class:`Task`."""
        return {
            "image_shape": list(self.input_shape),
            "class_names": list(self.class_names),
            "preparation": asdict(self.preparation),
            "picture_shape": list(self.image_shape),
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
        return cls(read_class_names(values), shape, preparation, known)

    def evaluation_source(
        self, dataset: Dataset, split: str, files: Files, crops: int | None = None, own: bool = True
    ) -> ImageSource:
        """See :class:`Task`."""
        if dataset.kind != self.kind:
            raise RunError(f"{dataset.title} has {dataset.kind}, but this model reads images.")
        images = cast(ImageDataset, dataset)
        if not own:
            images = images.fit_to(self.image_shape)
        if crops in CROPS[1:] and self.preparation.crop is None:
            raise RunError(f"crops {crops} is for runs that were trained with data.crop, and this was not.", "crops")
        preparation = self.preparation if crops is None else replace(self.preparation, crops=crops)
        source = evaluation_source(images, preparation, split, files, self.class_names)
        if source.image_shape != self.image_shape or source.class_names != self.class_names:
            raise RunError(
                f"{dataset.title} has images of {source.image_shape} of {', '.join(source.class_names)}, but this "
                f"model was trained for {self.image_shape} of {', '.join(self.class_names)}."
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

    def read_items(self, items: Sequence[Any]) -> Iterator[InputBatch]:
        """See :class:`Task`."""
        for start in range(0, len(items), AT_A_TIME):
            places = range(start, min(start + AT_A_TIME, len(items)))
            images = torch.stack([self._read(items[place]) for place in places])
            yield InputBatch(places, self.prepare_images(images))

    def _read(self, item: Any) -> Tensor:
        if isinstance(item, (str, os.PathLike)):
            return read_image(Path(item), self.image_shape)
        if is_picture(item):
            return fit_image(item, self.image_shape)
        if tuple(item.shape) != self.image_shape:
            raise RunError(
                f"this model was trained for images of {self.image_shape} (channels, height, width), got "
                f"{tuple(item.shape)}. Files and images of Pillow are brought to that size."
            )
        return cast(Tensor, item)

    def prepare_images(self, images: Tensor) -> Tensor:
        """Images uint8 ``[B, C, H, W]`` as the model sees them: float ``[B, P, C, h, w]``, P patches of each."""
        return self.preparation.cut_patches(self.preparation.resize_images(images))
