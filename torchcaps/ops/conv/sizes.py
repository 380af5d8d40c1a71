"""The sizes of a convolution, and what follows from them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

Pair = tuple[int, int]


class Sizes(NamedTuple):
    """B images of C channels, K output channels; pairs are height and width."""

    batch: int
    channels: int
    image: Pair
    out_channels: int
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def out(self) -> Pair:
        """Height and width of the result."""
        down, across = (
            (size + 2 * around - kernel) // stride + 1
            for size, kernel, stride, around in zip(self.image, self.kernel, self.stride, self.padding, strict=True)
        )
        return down, across

    @property
    def products(self) -> int:
        """Multiplications of the convolution as it is defined; each of its gradients has as many."""
        (down, across), (rows, columns) = self.out, self.kernel
        return self.batch * self.channels * self.out_channels * down * across * rows * columns


def sizes_of(images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Sizes:
    """Of images ``[B, C, H, W]`` and weight ``[K, C, kh, kw]``."""
    batch, channels, *image = images.shape
    out_channels, _, *kernel = weight.shape
    return Sizes(batch, channels, (image[0], image[1]), out_channels, (kernel[0], kernel[1]), stride, padding)
