"""Measurements that several experiments share."""

from __future__ import annotations

import os
from dataclasses import replace

from torch import nn

from torchcaps.data.dataset import Files
from torchcaps.data.images import Images, ImageSet, ImageSource
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.data.synthetic.composed import AffineDigits
from torchcaps.experiments.base import Context, Setting
from torchcaps.training.evaluation import measure
from torchcaps.training.runs import load_model

Run = str | os.PathLike[str]


def error_percent(model: nn.Module, source: ImageSource, context: Context) -> float:
    """Test error; of several objects per image all must be right."""
    return float(measure(model, source, context.progress)["error_percent"])


def error_of_run(run: Run, context: Context, data: str) -> float:
    """Error of a run on the test images of a data set."""
    model, _ = load_model(run)
    options = context.setting.data_options(data)
    source = evaluation_source(make_image_dataset(options), files=Files(options.dir))
    return error_percent(model, source, context)


def images_of(setting: Setting, data: str, split: str = "test") -> ImageSet:
    """The images of a data set; of a composed one those that it is made from."""
    options = setting.data_options(data)
    return make_image_dataset(options).load(split, Files(options.dir))


def affine_error(run: Run, context: Context, data: str) -> float:
    """Error on affine versions of the test images, on a canvas of their own size.

    Rotated by up to 20°, sheared by up to 0.2, scaled by 0.8 to 1.2 in each direction and shifted by up to 2 pixels.
    """
    model, _ = load_model(run)
    images = images_of(context.setting, data)
    return error_percent(model, AffineDigits(images, canvas=images.image_shape[1], shift=2), context)


def first_images(data: ImageSet, number: int) -> Images:
    """The first images of a set as a source: test sets are in random order already."""
    count = min(number, len(data))
    return Images(replace(data, images=data.images[:count], labels=data.labels[:count]))
