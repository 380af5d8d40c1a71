"""What a backend of the convolution does: three passes, each of which may be served by another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import InputTypeError
from torchcaps.ops.backends import Backend, register_backend
from torchcaps.ops.conv.sizes import Sizes

PassName = Literal["forward", "images", "weight"]
"""The convolution, the gradient of its images, and that of its weight."""
PASSES: tuple[PassName, ...] = ("forward", "images", "weight")


class Pass(NamedTuple):
    """The plan of a call: which pass, and the sizes."""

    name: PassName
    sizes: Sizes


class ConvBackend(Backend):
    """Serves :func:`torchcaps.ops.conv2d`."""

    def forward(self, sizes: Sizes, images: Tensor, weight: Tensor, bias: Tensor | None, last: bool) -> Tensor:
        """The result ``[B, K, H', W']``; ``last`` asks for its channels to be last in memory."""
        raise InputTypeError(f"{type(self).__name__} must implement forward.")

    def image_gradient(self, sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        """Of the images, from that of the result; in memory as the images are."""
        raise InputTypeError(f"{type(self).__name__} must implement image_gradient.")

    def weight_gradient(
        self, sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor, bias: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Of the weight, contiguous; and of the bias ``[K]``, if that is asked for and comes along with it."""
        raise InputTypeError(f"{type(self).__name__} must implement weight_gradient.")


def are_channels_last(maps: Tensor) -> bool:
    """Whether the channels of ``[B, C, H, W]`` are last in memory, and not also in their usual place."""
    return not maps.is_contiguous() and maps.is_contiguous(memory_format=torch.channels_last)


def memory_format(last: bool) -> torch.memory_format:
    """What torch calls it."""
    return torch.channels_last if last else torch.contiguous_format


@register_backend("convolution")
class TorchConvolution(ConvBackend):
    """torch's own convolution."""

    name = "torch"

    def forward(self, sizes: Sizes, images: Tensor, weight: Tensor, bias: Tensor | None, last: bool) -> Tensor:
        """See :class:`ConvBackend`."""
        found = torch.conv2d(images, weight, bias, sizes.stride, sizes.padding)
        return found.contiguous(memory_format=memory_format(last))

    def image_gradient(self, sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        """See :class:`ConvBackend`."""
        found, _, _ = _gradients(sizes, grad, images, weight, [True, False, False])
        return found.contiguous(memory_format=memory_format(are_channels_last(images)))

    def weight_gradient(
        self, sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor, bias: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See :class:`ConvBackend`."""
        _, found, sums = _gradients(sizes, grad, images, weight, [False, True, bias])
        return found.contiguous(), sums if bias else None


def _gradients(sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor, wanted: list[bool]) -> Sequence[Tensor]:
    """Of images, weight and bias, by the op that autograd calls for torch's convolution."""
    plain = ((1, 1), False, (0, 0), 1)  # dilation, transposed, output padding, groups
    backward = torch.ops.aten.convolution_backward
    found: Sequence[Tensor] = backward(
        grad, images, weight, [sizes.out_channels], sizes.stride, sizes.padding, *plain, wanted
    )
    return found
