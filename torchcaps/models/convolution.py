"""Sizes of convolutions, known before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn


class Conv(NamedTuple):
    """A convolution: output channels, kernel size, stride, padding."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def size(self, size: int) -> int:
        """Output size for an input of that size; below 1 if it does not fit."""
        return (size + 2 * self.padding - self.kernel) // self.stride + 1

    def least(self, size: int) -> int:
        """Input size needed for an output of that size."""
        return (size - 1) * self.stride + self.kernel - 2 * self.padding


def output_size(model: str, image_shape: tuple[int, int, int], convs: Sequence[Conv]) -> tuple[int, int]:
    """Height and width after all convolutions; an error that names the smallest image if it does not fit."""
    _, height, width = image_shape
    least = 1
    for conv in reversed(convs):
        least = max(1, conv.least(least))
    if min(height, width) < least:
        raise ValueError(
            f"{model} needs images of at least {least}×{least} pixels, got {height}×{width}. "
            "Pad or enlarge the images, or use a model with smaller kernels."
        )
    for conv in convs:
        height, width = conv.size(height), conv.size(width)
    return height, width


def conv_stack(in_channels: int, convs: Sequence[Conv]) -> nn.Sequential:
    """Convolutions, each followed by ReLU."""
    layers: list[nn.Module] = []
    for conv in convs:
        layers += [nn.Conv2d(in_channels, conv.channels, conv.kernel, conv.stride, conv.padding), nn.ReLU()]
        in_channels = conv.channels
    return nn.Sequential(*layers)
