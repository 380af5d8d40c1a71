"""Measurements that several experiments share."""

from __future__ import annotations

from dataclasses import replace

from torchcaps.data.dataset import Files
from torchcaps.data.images import Images, ImageSet
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.synthetic.composed import AffineDigits
from torchcaps.experiments.base import Context, Setting
from torchcaps.run import Run


def measure_error(run: Run, context: Context, data: str) -> float:
    """Error in percent of a run on the test images of a data set; of several objects per image all must be right."""
    return float(run.evaluate(context.setting.data_options(data), progress=context.progress)["error_percent"])


def load_images(setting: Setting, data: str, split: str = "test") -> ImageSet:
    """The images of a data set; of a composed one those that it is made from."""
    options = setting.data_options(data)
    return make_image_dataset(options).load(split, Files(options.dir))


def measure_affine_error(run: Run, context: Context, data: str) -> float:
    """Error on affine versions of the test images, on a canvas of their own size.

    Rotated by up to 20°, sheared by up to 0.2, scaled by 0.8 to 1.2 in each direction and shifted by up to 2 pixels.
    """
    images = load_images(context.setting, data)
    source = AffineDigits(images, canvas=images.image_shape[1], shift=2)
    return float(run.measure(source, context.progress)["error_percent"])


def take_first(data: ImageSet, number: int) -> Images:
    """The first images of a set as a source: test sets are in random order already."""
    count = min(number, len(data))
    return Images(replace(data, images=data.images[:count], labels=data.labels[:count]))
