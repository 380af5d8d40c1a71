"""Convolutions as modules, by :func:`torchcaps.ops.conv2d`."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.ops.conv import conv1d, conv2d


class Conv2d(nn.Conv2d):
    """``nn.Conv2d``, with :func:`torchcaps.ops.conv2d` behind it: the same arguments, parameters and state dict.

    In place of torch's own in any network: it is faster where many channels and large kernels meet on a CPU, and the
    same everywhere else. Another padding than zeros is torch's.
    """

    channels_last: bool | None = None
    """Whether the channels of the result are last in memory, where that costs nothing; None: as torch does."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        if self.padding_mode != "zeros" or input.dim() != 4:
            found: Tensor = super()._conv_forward(input, weight, bias)
            return found
        return conv2d(
            input,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            channels_last=self.channels_last,
        )


class Conv1d(nn.Conv1d):
    """``nn.Conv1d``, with :func:`torchcaps.ops.conv1d` behind it: see :class:`Conv2d`."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        if self.padding_mode != "zeros" or input.dim() != 3:
            found: Tensor = super()._conv_forward(input, weight, bias)
            return found
        return conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
