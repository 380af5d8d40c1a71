"""A convolution as it is defined, one result at a time: the text that the others are tested against."""

from __future__ import annotations

import torch
from torch import Tensor


def conv2d_reference(
    images: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """y[b, k, i, j] = bias_k + Σ_c Σ_uv x[b, c, i·s + u − p, j·s + v − p] w[k, c, u, v]; x is zero outside."""
    (batch, _, height, width), (out_channels, _, rows, columns) = images.shape, weight.shape
    down = (height + 2 * padding[0] - rows) // stride[0] + 1
    across = (width + 2 * padding[1] - columns) // stride[1] + 1
    results = []
    for i in range(down):
        for j in range(across):
            total = images.new_zeros(batch, out_channels)
            for u in range(rows):
                for v in range(columns):
                    y, x = i * stride[0] + u - padding[0], j * stride[1] + v - padding[1]
                    if 0 <= y < height and 0 <= x < width:
                        total = total + images[:, :, y, x] @ weight[:, :, u, v].T
            results.append(total if bias is None else total + bias)
    return torch.stack(results, dim=-1).view(batch, out_channels, down, across)
