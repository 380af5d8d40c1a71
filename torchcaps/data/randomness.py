"""Random numbers that belong to a seed and an index: the same in any order, batch or process."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number


def _mix(bits: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit of the input moves every bit of the output."""
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)


def random_bits(seed: int, indices: Tensor, count: int) -> Tensor:
    """``count`` random numbers of 62 bits for every index, int64 ``[N, count]``."""
    start = _mix(torch.tensor(seed, dtype=torch.int64) * _GOLDEN + 1)
    streams = _mix(start + indices.to(torch.int64)[:, None] * _GOLDEN)
    numbers = torch.arange(1, count + 1, dtype=torch.int64)
    return (_mix(streams + numbers * _GOLDEN) >> 1) & 0x3FFFFFFFFFFFFFFF


def random_integers(seed: int, indices: Tensor, count: int, below: int) -> Tensor:
    """``count`` integers in 0 … below − 1 for every index, ``[N, count]``."""
    return random_bits(seed, indices, count) % below


def random_uniform(seed: int, indices: Tensor, count: int) -> Tensor:
    """``count`` numbers in [0, 1) for every index, float32 ``[N, count]``."""
    return (random_bits(seed, indices, count) >> 38).float() / (1 << 24)


class Stream(Enum):
    """What random numbers are for. Every purpose has a stream of its own, so that no two share their numbers.

    The numbers belong to runs that were made with them: a new purpose gets a new one, an old one keeps its own.
    """

    ORDER = 1  # of the training items, per epoch
    AUGMENTATION = 2  # per epoch
    VALIDATION = 3  # which items are kept aside
    DROPOUT = 4  # and all else that torch draws in a training step, per step and process
    WORD_VECTORS = 5
    EXPLAINED = 11  # which test items a report shows
    SAMPLES = 12  # which test images the explorer offers


def sub_seed(seed: int, stream: Stream, *path: int) -> int:
    """A seed of its own for a purpose, and within it for an epoch, a step and so on."""
    for step in (stream.value, *path):
        seed = numbered_seed(seed, step)
    return seed


def numbered_seed(seed: int, number: int) -> int:
    """A seed for each of several things under a seed that nothing else has: classes cut into folds, restarts."""
    return int(random_bits(seed, torch.tensor([number]), 1)[0, 0])
