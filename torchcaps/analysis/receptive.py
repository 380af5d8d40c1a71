"""Which part of an image the capsules below the classes see."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.layers import CapsuleConv2d
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.matrix_capsnet import MatrixCapsNet

ImageCapsules = CapsNet | MatrixCapsNet


def receptive_centres(model: ImageCapsules, size: tuple[int, int]) -> Tensor:
    """Row and column of the middle of what each child of the class capsules sees: ``[H, W, 2]``.

    A window of k with stride s and padding p, over a grid whose position i is at o + i·j, puts position i at
    o + j((k − 1)/2 − p) + i·j·s.
    """
    at, jump, _ = _receptive(model)
    rows, columns = (o + j * torch.arange(n) for o, j, n in zip(at, jump, size, strict=True))
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1)


def receptive_size(model: ImageCapsules) -> tuple[int, int]:
    """Height and width of what a child of the class capsules sees: 1 + Σ (k − 1)·j over the layers below it."""
    height, width = _receptive(model)[2]
    return height, width


def _receptive(model: ImageCapsules) -> tuple[list[float], list[int], list[int]]:
    """Down and across: where the first child's middle is, how far the next one is, and how much each sees."""
    at, jump, side = [0.0, 0.0], [1, 1], [1, 1]
    for layer in (*model.stem, model.primary.conv, *getattr(model, "conv_capsules", ())):
        if isinstance(layer, nn.ZeroPad2d):  # a small image on its canvas: left, right, top, bottom
            at = [at[0] - layer.padding[2], at[1] - layer.padding[0]]
        elif isinstance(layer, nn.Conv2d | CapsuleConv2d):
            assert not isinstance(layer.padding, str)  # no layer here is made with a name
            for dim, (kernel, padding) in enumerate(zip(layer.kernel_size, layer.padding, strict=True)):
                at[dim] += jump[dim] * ((kernel - 1) / 2 - padding)
                side[dim] += jump[dim] * (kernel - 1)
                jump[dim] *= layer.stride[dim]
    return at, jump, side
