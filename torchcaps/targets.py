"""Which classes an image shows, in the three forms that people hold them in."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.errors import InputError, InputTypeError
from torchcaps.indices import asserts_in_graph, require_indices


def object_masks(target: Tensor, classes: int) -> Tensor:
    """One row of class flags per object.

    Args:
        target: class indices ``[B]`` (one object), class indices ``[B, M]`` (M objects), or flags ``[B, classes]``
            of bool or floating type (one row that may hold several classes).
        classes: number of classes.

    Shapes:
        → bool ``[B, 1, classes]``, ``[B, M, classes]`` or ``[B, 1, classes]``.
    """
    if not isinstance(target, Tensor):
        raise InputTypeError(f"target must be a torch.Tensor of class indices or flags, got {type(target).__name__}.")
    if target.dtype == torch.bool or target.is_floating_point():
        if target.dim() != 2 or target.shape[1] != classes:
            raise InputError(
                f"class flags must have shape [batch, {classes}], got {tuple(target.shape)} of {target.dtype}. "
                "Class indices are integers: target.long()."
            )
        return (target > 0.5)[:, None]
    if target.dim() not in (1, 2):
        raise InputError(f"class indices must have shape [batch] or [batch, objects], got {tuple(target.shape)}.")
    indices = target if target.dim() == 2 else target[:, None]
    if torch.compiler.is_compiling() and not asserts_in_graph(indices):
        return F.embedding(indices.long(), torch.eye(classes, device=target.device)).bool()  # which asserts by itself
    bounds = require_indices(indices, classes, f"labels must be in 0 … {classes - 1} for {classes} classes")
    if bounds is not None and bounds[1] <= 1 and target.dim() == 2 and target.shape[1] == classes:
        raise InputError(
            f"an integer target of shape {tuple(target.shape)} with only 0 and 1 looks like class flags, but "
            "integers are read as class indices. Use target.bool() for flags."
        )
    return index_masks(indices, classes)


def index_masks(indices: Tensor, classes: int) -> Tensor:
    """Bool ``[B, M, classes]``: one row of class flags per index ``[B, M]``, which is known to be one."""
    return indices[:, :, None] == torch.arange(classes, device=indices.device)


def class_flags(target: Tensor, classes: int) -> Tensor:
    """Bool ``[B, classes]``: True for every class that is present. ``target`` as in :func:`object_masks`."""
    return object_masks(target, classes).any(dim=1)
