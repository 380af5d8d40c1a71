"""Which part of an image the capsules below the classes see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import InputError

_POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.LPPool2d)
_PADDING = (nn.ZeroPad2d, nn.ConstantPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d)


class Window(NamedTuple):
    """What one output of a layer sees of the layer's input along a dimension: ``before`` is the padding in front."""

    kernel: int
    stride: int
    before: int


class Field(NamedTuple):
    """What the positions of a grid see of the image along a dimension, in pixels.

    Attributes:
        first: the middle of what the first position sees.
        jump: from a position to the next.
        side: how much each sees.
    """

    first: float = 0.0
    jump: int = 1
    side: int = 1

    def under(self, window: Window) -> Field:
        """Of a grid whose positions see windows of this one: o + j((k − 1)/2 − p), j·s and n + (k − 1)·j."""
        kernel, stride, before = window
        first = self.first + self.jump * ((kernel - 1) / 2 - before)
        return Field(first, self.jump * stride, self.side + self.jump * (kernel - 1))


Fields = tuple[Field, Field]
"""Down and across."""


def centre_positions(fields: Fields, size: Sequence[int]) -> Tensor:
    """Row and column of the middle of what each position of a grid sees: ``[H, W, 2]``."""
    rows, columns = (field.first + field.jump * torch.arange(n) for field, n in zip(fields, size, strict=True))
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1)


def widen(fields: Fields, windows: Sequence[Window]) -> Fields:
    """The fields of a grid above, by a window for each dimension."""
    down, across = (field.under(window) for field, window in zip(fields, windows, strict=True))
    return down, across


class FieldsBySize:
    """The fields of feature maps, told by their height and width.

    Layers are met in the order in which they run, so a layer's input is the last map of its size. Where two ways lead
    to maps of one size, as around a residual block, the one that sees more counts.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self._fields: dict[tuple[int, int], Fields] = {size: (Field(), Field())}

    def __getitem__(self, size: tuple[int, int]) -> Fields:
        if size in self._fields:
            return self._fields[size]
        known = ", ".join(f"{height}×{width}" for height, width in self._fields)
        raise InputError(
            f"it is not known what features of {size[0]}×{size[1]} see of the image: no layer was met that makes them "
            f"(maps of {known} were). Use modules such as nn.MaxPool2d in place of functions that change the size."
        )

    def pass_through(self, layer: nn.Module, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Note what a layer makes of maps of one size."""
        windows = _windows(layer, before, after)
        if windows is None:
            return
        fields = widen(self[before], windows)
        known = self._fields.get(after)
        if known is None or all(new.side >= old.side for new, old in zip(fields, known, strict=True)):
            self._fields[after] = fields


@contextmanager
def watch_fields(model: nn.Module, size: tuple[int, int]) -> Iterator[FieldsBySize]:
    """What the feature maps see that a model makes within this context, of images of that height and width."""
    fields = FieldsBySize(size)

    def note(layer: nn.Module, given: tuple[object, ...], made: object) -> None:
        before, after = _map_size(given[0] if given else None), _map_size(made)
        if before is not None and after is not None:
            fields.pass_through(layer, before, after)

    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    try:
        yield fields
    finally:
        for handle in handles:
            handle.remove()


def _map_size(maps: object) -> tuple[int, int] | None:
    """Height and width of feature maps ``[B, C, H, W]``; None for anything else."""
    if not isinstance(maps, Tensor) or maps.dim() != 4:
        return None
    return maps.shape[2], maps.shape[3]


def _windows(layer: nn.Module, before: tuple[int, int], after: tuple[int, int]) -> list[Window] | None:
    """A window for each dimension; None for a layer that looks at every position alone."""
    if isinstance(layer, nn.Conv2d):
        return [_convolution(layer, dim) for dim in (0, 1)]
    if isinstance(layer, _POOLING):
        return [_pooling(layer, dim) for dim in (0, 1)]
    if isinstance(layer, _PADDING):
        left, _, top, _ = layer.padding
        return [Window(1, 1, top), Window(1, 1, left)]
    if before == after:
        return None
    if isinstance(layer, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d) and not any(map(int.__mod__, before, after)):
        return [Window(n // out, n // out, 0) for n, out in zip(before, after, strict=True)]
    raise InputError(
        f"a {type(layer).__name__} makes features of {after} from {before}, and it is not known which of them its "
        "outputs see. What parts see is followed through convolutions, pooling and padding."
    )


def _convolution(layer: nn.Conv2d, dim: int) -> Window:
    kernel = layer.dilation[dim] * (layer.kernel_size[dim] - 1) + 1
    if isinstance(layer.padding, str):
        before = (kernel - 1) // 2 if layer.padding == "same" else 0
    else:
        before = layer.padding[dim]
    return Window(kernel, layer.stride[dim], before)


def _pooling(layer: nn.Module, dim: int) -> Window:
    sizes = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    given = {name: getattr(layer, name, default) for name, default in sizes.items()}
    if given["stride"] is None:
        given["stride"] = given["kernel_size"]
    kernel, stride, padding, dilation = (v if isinstance(v, int) else v[dim] for v in given.values())
    return Window(dilation * (kernel - 1) + 1, stride, padding)
