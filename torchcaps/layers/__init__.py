"""Capsule layers: each takes and gives :class:`torchcaps.Capsules`, so any can follow any other."""

from torchcaps.layers.classes import ClassCapsules
from torchcaps.layers.conv import Conv1d, Conv2d
from torchcaps.layers.convolutional import CapsuleConv1d, CapsuleConv2d
from torchcaps.layers.decoder import ReconstructionDecoder
from torchcaps.layers.linear import CapsuleLinear
from torchcaps.layers.matrix import MatrixPrimaryCapsules2d
from torchcaps.layers.primary import PrimaryCapsules1d, PrimaryCapsules2d

__all__ = [
    "CapsuleConv1d",
    "CapsuleConv2d",
    "CapsuleLinear",
    "ClassCapsules",
    "Conv1d",
    "Conv2d",
    "MatrixPrimaryCapsules2d",
    "PrimaryCapsules1d",
    "PrimaryCapsules2d",
    "ReconstructionDecoder",
]
