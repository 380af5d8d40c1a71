"""The first matrix capsules of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.types import Device

from torchcaps.capsules import Capsules
from torchcaps.checks import require_count, require_finite, require_float_type
from torchcaps.layers.conv import Conv2d
from torchcaps.layers.primary import require_features


class MatrixPrimaryCapsules2d(nn.Module):
    """A convolution that makes matrix capsules: poses as they are, activations by a sigmoid (Hinton et al. 2018).

    Args:
        in_channels: C, channels of the features.
        types: T, kinds of capsules at every position.
        pose: rows and columns of a pose.
        kernel_size: of the convolution.
        stride: of the convolution.
        padding: of the convolution.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        features ``[B, C, H, W]`` → pose ``[B, H', W', T, *pose]``, activation ``[B, H', W', T]``.
    """

    if TYPE_CHECKING:

        def __call__(self, features: Tensor) -> Capsules:
            """See :meth:`forward`."""

    def __init__(
        self,
        in_channels: int,
        types: int,
        pose: tuple[int, int] = (4, 4),
        kernel_size: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_count("types", types)
        for size in pose:
            require_count("pose", size)
        require_float_type(dtype)
        self.types, self.pose = types, pose
        channels = types * (pose[0] * pose[1] + 1)
        self.conv = Conv2d(in_channels, channels, kernel_size, stride, padding, device=device, dtype=dtype)
        self.conv.channels_last = True  # then poses need not be copied into their order
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw poses larger than torch would, with a variance of about one for features of that size.

        Weights of a capsule layer then need not be large to make votes differ, and Adam moves all alike.
        """
        self.conv.reset_parameters()
        poses = self.types * self.pose[0] * self.pose[1]
        with torch.no_grad():
            self.conv.weight[:poses] *= 4
            self.conv.bias[:poses] *= 4  # type: ignore[index]

    def forward(self, features: Tensor) -> Capsules:
        """Make capsules of features."""
        require_features(type(self).__name__, features, self.conv)
        require_finite("features", features)
        maps = self.conv(features)  # [B, T·(R·C + 1), H', W']: first all poses, then all activations
        size = self.pose[0] * self.pose[1]
        poses, activations = maps.split([self.types * size, self.types], dim=1)
        # A capsule is the channels of ONE type at ONE position: split the channels, then bring them last.
        pose = poses.unflatten(1, (self.types, *self.pose)).permute(0, 4, 5, 1, 2, 3)
        return Capsules(pose, torch.sigmoid(activations).permute(0, 2, 3, 1))

    def extra_repr(self) -> str:
        """Show types and pose."""
        return f"types={self.types}, pose={self.pose}"
