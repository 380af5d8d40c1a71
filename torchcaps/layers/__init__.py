"""Capsule layers: each takes and gives :class:`torchcaps.Capsules`, so any can follow any other."""

from torchcaps.layers.decoder import ReconstructionDecoder
from torchcaps.layers.linear import CapsuleLinear
from torchcaps.layers.primary import PrimaryCapsules1d, PrimaryCapsules2d

__all__ = ["CapsuleLinear", "PrimaryCapsules1d", "PrimaryCapsules2d", "ReconstructionDecoder"]
