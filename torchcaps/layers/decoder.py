"""From capsules back to an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.types import Device

from torchcaps.capsules import Capsules, require_capsules
from torchcaps.checks import require_count, require_float_type
from torchcaps.errors import InputError
from torchcaps.targets import index_masks, object_masks


class ReconstructionDecoder(nn.Module):
    """Decode an image from the capsules of the classes it shows; all others are set to zero.

    Fully connected layers with ReLU, and a sigmoid at the end (Sabour et al. 2017, §4.1).

    Args:
        capsules: J, number of class capsules.
        dim: D, size of their poses.
        image_shape: shape of the image, such as ``(1, 28, 28)``.
        hidden: widths of the layers between.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        pose ``[B, J, D]`` → ``[B, *image_shape]``, or ``[B, M, *image_shape]`` for M objects.
    """

    if TYPE_CHECKING:

        def __call__(self, capsules: Capsules, target: Tensor | None = None, objects: int = 1) -> Tensor:
            """See :meth:`forward`."""

    def __init__(
        self,
        capsules: int,
        dim: int,
        image_shape: Sequence[int],
        hidden: Sequence[int] = (512, 1024),
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_float_type(dtype)
        self.capsules, self.dim, self.image_shape = capsules, dim, tuple(image_shape)
        layers: list[nn.Module] = []
        width = capsules * dim
        for size in hidden:
            require_count("hidden", size)
            layers += [nn.Linear(width, size, device=device, dtype=dtype), nn.ReLU()]
            width = size
        last = nn.Linear(width, math.prod(self.image_shape), device=device, dtype=dtype)
        self.layers = nn.Sequential(*layers, last, nn.Sigmoid())

    def forward(self, capsules: Capsules, target: Tensor | None = None, objects: int = 1) -> Tensor:
        """Decode what ``target`` names, or else the longest capsules.

        Args:
            capsules: pose ``[B, J, D]``.
            target: class indices ``[B]``: one image each; indices ``[B, M]``: M images, one per object; class flags
                ``[B, J]``: one image from all flagged capsules together.
            objects: without a target, how many of the longest capsules to decode, one image each.
        """
        require_capsules("the decoder", capsules)
        self._check_poses(capsules.pose)
        if target is not None and target.shape[:1] != capsules.pose.shape[:1]:
            raise InputError(f"targets for {target.shape[0]} images, but capsules of {capsules.pose.shape[0]}.")
        if target is None:
            require_count("objects", objects)
            if objects > self.capsules:
                raise InputError(f"cannot decode the {objects} longest of {self.capsules} capsules.")
            masks = index_masks(capsules.activation.topk(objects, dim=1).indices, self.capsules)  # [B, M, J]
            several = objects > 1
        else:
            masks = object_masks(target, self.capsules)
            several = target.dim() == 2 and target.dtype != torch.bool and not target.is_floating_point()
        images = self.decode(capsules.pose[:, None] * masks[..., None])  # [B, M, *image]
        return images if several else images[:, 0]

    def decode(self, pose: Tensor) -> Tensor:
        """Decode poses as they are, masked by the caller: ``[..., J, D]`` → ``[..., *image_shape]``."""
        self._check_poses(pose)
        decoded: Tensor = self.layers(pose.flatten(-2))
        return decoded.view(*decoded.shape[:-1], *self.image_shape)

    def _check_poses(self, pose: Tensor) -> None:
        if pose.shape[-2:] != (self.capsules, self.dim):
            raise InputError(
                f"the decoder expects poses of {self.capsules} capsules of size {self.dim}, got {tuple(pose.shape)}."
            )
