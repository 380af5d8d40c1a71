"""Sizes of convolutions, known before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from torchcaps.errors import InputError
from torchcaps.layers import Conv2d


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


def convolution(name: str, sizes: Sequence[int]) -> Conv:
    """A convolution of the numbers that a user has given; refuses what is none, by the option's name."""
    least = (1, 1, 1, 0)
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    if not whole or not 2 <= len(sizes) <= len(least) or any(map(int.__lt__, sizes, least)):
        raise InputError(
            f"{name} takes convolutions as [channels, kernel], and if wanted stride and padding behind, in whole "
            f"numbers; got {sizes!r}."
        )
    return Conv(*sizes)


class ConvTrunk(nn.Sequential):
    """Convolutions, each followed by ReLU, with or without batch normalisation between, for images of any size.

    Images that are too small for the kernels are centred on a black canvas of the least size that fits.

    Args:
        image_shape: channels, height, width.
        convs: the convolutions.
        ahead: further convolutions that the result must be large enough for.
        normalised: each channel has mean 0 and variance 1 over the batch before the ReLU (Ioffe and Szegedy 2015).

    Attributes:
        channels: after ``convs``.
        size: height and width after ``convs``.
        final_size: height and width after ``convs`` and ``ahead``.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        convs: Sequence[Conv],
        ahead: Sequence[Conv] = (),
        normalised: bool = False,
    ) -> None:
        channels, height, width = image_shape
        least = 1
        for conv in reversed((*convs, *ahead)):
            least = max(1, conv.least(least))
        margins = [(max(0, least - n) // 2, (max(0, least - n) + 1) // 2) for n in (width, height)]
        layers: list[nn.Module] = []
        if any(map(sum, margins)):
            layers.append(nn.ZeroPad2d((*margins[0], *margins[1])))
        for conv in convs:
            layer = Conv2d(channels, conv.channels, conv.kernel, conv.stride, conv.padding)
            layer.channels_last = True  # as the kernels for convolutions write and read them
            layers.append(layer)
            channels = conv.channels
            relu = nn.ReLU(inplace=True)  # nothing else needs what a convolution gives, and it may be large
            layers += [nn.BatchNorm2d(channels), relu] if normalised else [relu]
        super().__init__(*layers)
        self.channels = channels
        canvas = (max(height, least), max(width, least))
        self.size = self._after(canvas, convs)
        self.final_size = self._after(self.size, ahead)

    @staticmethod
    def _after(size: tuple[int, int], convs: Sequence[Conv]) -> tuple[int, int]:
        height, width = size
        for conv in convs:
            height, width = conv.size(height), conv.size(width)
        return height, width
