"""Primary capsules: from feature maps to the first capsules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from torchcaps.capsules import Capsules
from torchcaps.checks import (
    require_choice,
    require_count,
    require_finite,
    require_float,
    require_float_type,
    require_mask,
)
from torchcaps.errors import InputError
from torchcaps.layers.conv import Conv1d, Conv2d
from torchcaps.ops.squash import SQUASH_KINDS, squash


def require_features(layer: str, features: Tensor, conv: nn.Conv1d | nn.Conv2d) -> None:
    """Raise unless the layer's convolution can take these features ``[B, C, *positions]``."""
    require_float("features", features)
    dimensions = len(conv.kernel_size)
    if features.dim() != 2 + dimensions or features.shape[1] != conv.in_channels:
        sizes = "length" if dimensions == 1 else "height, width"
        raise InputError(
            f"{layer} expects features of shape [batch, {conv.in_channels}, {sizes}], got {tuple(features.shape)}."
        )
    padding = conv.padding if isinstance(conv.padding, tuple) else (0,) * dimensions
    sizes_and_kernels = zip(features.shape[2:], conv.kernel_size, padding, strict=True)
    if any(size + 2 * around < kernel for size, kernel, around in sizes_and_kernels):
        raise InputError(
            f"{layer} slides a window of {tuple(conv.kernel_size)} over features of size {tuple(features.shape[2:])}, "
            "which is too small. Use a larger input, a smaller kernel or padding."
        )


class _PrimaryCapsules(nn.Module):
    """What the one- and two-dimensional layer share; ``spatial`` is their number of dimensions."""

    spatial: int
    conv: nn.Conv1d | nn.Conv2d

    @property
    def padding(self) -> tuple[int, ...]:
        """Zeros around the features, per dimension."""
        padding = self.conv.padding
        if isinstance(padding, str):
            raise InputError(f"padding must be a number of zeros, got {padding!r}.")
        return padding

    if TYPE_CHECKING:

        def __call__(self, features: Tensor, mask: Tensor | None = None) -> Capsules:
            """See :meth:`forward`."""

    def __init__(self, types: int, dim: int, squash: str) -> None:
        super().__init__()
        require_count("types", types)
        require_count("dim", dim)
        require_choice("squash kind", squash, SQUASH_KINDS)
        self.types, self.dim, self.squash = types, dim, squash

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Capsules:
        """Make capsules of features ``[B, C, *positions]``; mask ``[B, *positions]`` marks padding with False.

        A capsule whose window touches padding is masked, so padding never influences a result.
        """
        require_features(type(self).__name__, features, self.conv)
        if mask is not None:
            require_mask("mask", mask, (features.shape[0], *features.shape[2:]), meaning="[batch, *positions]")
            if any(self.padding):
                raise InputError(
                    "a mask and the convolution's own padding do not go together: whether a window reaches into "
                    "padding would depend on the batch. Use padding=0, and pad the features where needed."
                )
            features = features.masked_fill(~mask[:, None], 0)
        require_finite("features", features)
        maps = self.conv(features)  # [B, T·D, *positions]
        # A capsule is the D channels of ONE type at ONE position: split the channels, then bring them last.
        # Splitting without the permutation would mix positions into a capsule.
        pose = maps.unflatten(1, (self.types, self.dim)).movedim((1, 2), (-2, -1))  # [B, *positions, T, D]
        pose = squash(pose, self.squash)
        if mask is None:
            return Capsules.from_pose(pose)
        valid = self._windows_without_padding(mask)
        return Capsules.from_pose(pose, valid[..., None].expand(pose.shape[:-1]))

    def _windows_without_padding(self, mask: Tensor) -> Tensor:
        window = torch.ones(1, 1, *self.conv.kernel_size, device=mask.device)
        convolve = F.conv1d if self.spatial == 1 else F.conv2d
        touched = convolve((~mask)[:, None].float(), window, None, self.conv.stride)
        return touched[:, 0] == 0

    def extra_repr(self) -> str:
        """Show types and pose size."""
        return f"types={self.types}, dim={self.dim}, squash={self.squash!r}"


class PrimaryCapsules2d(_PrimaryCapsules):
    """A convolution whose channels are grouped into capsules, squashed (Sabour et al. 2017, §4).

    Args:
        in_channels: C, channels of the features.
        types: T, kinds of capsules at every position.
        dim: D, size of a pose.
        kernel_size: of the convolution.
        stride: of the convolution.
        padding: of the convolution.
        squash: a kind of :func:`torchcaps.ops.squash`.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        features ``[B, C, H, W]`` → pose ``[B, H', W', T, D]``, activation ``[B, H', W', T]``.
    """

    spatial = 2

    def __init__(
        self,
        in_channels: int,
        types: int,
        dim: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        squash: str = "sabour",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(types, dim, squash)
        require_float_type(dtype)
        self.conv = Conv2d(in_channels, types * dim, kernel_size, stride, padding, device=device, dtype=dtype)
        self.conv.channels_last = True  # then poses need not be copied into their order
        _ = self.padding  # refuses names of paddings


class PrimaryCapsules1d(_PrimaryCapsules):
    """The same along a sequence, such as a sentence.

    Args:
        in_channels: C, channels of the features.
        types: T, kinds of capsules at every position.
        dim: D, size of a pose.
        kernel_size: of the convolution.
        stride: of the convolution.
        padding: of the convolution.
        squash: a kind of :func:`torchcaps.ops.squash`.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        features ``[B, C, L]`` → pose ``[B, L', T, D]``, activation ``[B, L', T]``.
    """

    spatial = 1

    def __init__(
        self,
        in_channels: int,
        types: int,
        dim: int,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int = 0,
        squash: str = "sabour",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(types, dim, squash)
        require_float_type(dtype)
        self.conv = Conv1d(in_channels, types * dim, kernel_size, stride, padding, device=device, dtype=dtype)
        _ = self.padding  # refuses names of paddings
