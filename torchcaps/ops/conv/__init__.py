"""Convolutions: what torch has, by Fourier products where that is faster."""

from torchcaps.ops.conv.convolution import conv1d, conv2d
from torchcaps.ops.conv.reference import conv2d_reference

__all__ = ["conv1d", "conv2d", "conv2d_reference"]
