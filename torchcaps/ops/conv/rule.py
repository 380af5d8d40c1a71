"""When which way of a convolution is taken: the one that measured costs predict to be the fastest.

A way of ours is a sum of work of a few kinds, and the costs of a unit of each were measured (``costs.json``, which
``python -m benchmarks.convolution calibrate`` makes). Of torch's convolution only the least time is known that it can
take: its multiplications at the best rate that was seen. A way of ours is taken if it is predicted to need less than
that, with a margin. So it is not taken everywhere where it would be faster, but hardly ever where it would not.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchcaps.ops.conv.sizes import Pair, Sizes

if TYPE_CHECKING:
    from torchcaps.ops.conv.backend import Pass

FEW, FOURIER = "few channels", "Fourier"
LENGTHS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
"""Of transforms that the library has: csrc/conv/tile.h."""
FEW_CHANNELS = 4
"""Input channels up to which :data:`FEW` is considered."""
MOST_SPECTRUM = 1 << 28
"""Bytes that the spectrum of a weight may have."""
CACHE = 1 << 24
"""Bytes of a spectrum above which it is written to memory, past the caches: csrc/conv/problem.h."""
FRESH = 1 << 25
"""Bytes above which malloc gives fresh pages, every time."""
MARGIN, CALL = 1.15, 1e-4
"""Part by which ours must be predicted to be faster, and seconds that it takes to come to a pass at all."""
LANES = 16
Costs = dict[str, Any]
"""Seconds of a thread per unit of work, by way and pass; of torch, per multiplication and per byte of fresh memory."""


class Way(NamedTuple):
    """How a pass is computed: by which kernels, and for :data:`FOURIER` in tiles of which size."""

    name: str
    tile: Pair = (1, 1)


@functools.lru_cache(maxsize=4096)
def choose_way(plan: Pass, threads: int, asked: bool = False) -> Way | None:
    """The way that is the fastest of ours for a pass; None if torch's convolution is likely to be faster.

    Args:
        plan: which pass, and the sizes.
        threads: that compute.
        asked: ours is wanted, even if it is slower.
    """
    costs = load_costs()
    predicted = [(predict(plan, way, costs, threads), way) for way in list_ways(plan)]
    if not predicted:
        return None
    seconds, way = min(predicted)
    least = predict_torch(plan, costs, threads)
    return way if asked or seconds * MARGIN + CALL < least else None


def list_ways(plan: Pass) -> Iterator[Way]:
    """The ways that a pass can be computed in."""
    sizes = plan.sizes
    if sizes.channels <= FEW_CHANNELS and plan.name != "images":
        yield Way(FEW)
    down, across = (_lengths(*axis) for axis in zip(sizes.kernel, sizes.stride, sizes.out, strict=True))
    for height in down:
        for width in across:
            work = Work(sizes, (height, width))
            if work.weight_bytes <= MOST_SPECTRUM:
                yield Way(FOURIER, (height, width))


def _lengths(kernel: int, stride: int, out: int) -> list[int]:
    """Lengths of a tile that hold a phase of the kernel; none that is longer than one tile for the whole needs."""
    taps = -(-kernel // stride)
    enough = next((length for length in LENGTHS if length >= out + taps - 1), LENGTHS[-1])
    return [length for length in LENGTHS if taps <= length <= enough]


class Work:
    """What Fourier products of these sizes in tiles of this size have to do, in units of each kind."""

    def __init__(self, sizes: Sizes, tile: Pair) -> None:
        taps = [-(-kernel // stride) for kernel, stride in zip(sizes.kernel, sizes.stride, strict=True)]
        tiles = [-(-out // (n - t + 1)) for out, n, t in zip(sizes.out, tile, taps, strict=True)]
        phases = math.prod(map(min, sizes.kernel, sizes.stride))
        self.rows, self.columns, self.numbers = sizes.batch * math.prod(tiles), phases * sizes.channels, math.prod(tile)
        real = min(tile[0], 2) * min(tile[1], 2)
        self.matrices = real + (self.numbers - real) // 2 * 3
        self.blocks, self.out_blocks = -(-sizes.channels // LANES), -(-sizes.out_channels // LANES)
        self.out_channels, self.channels, self.phases = sizes.out_channels, sizes.channels, phases
        self.weight_bytes = 4 * self.matrices * self.columns * LANES * self.out_blocks

    def products(self, rows: int, depth: int, columns: int) -> list[float]:
        """Multiplications with whole vectors, and pieces of the result that are held in registers."""
        vectors = -(-columns // LANES)
        pieces = -(-rows // 12) * -(-vectors // 2)
        return [self.matrices * rows * depth * vectors * LANES, self.matrices * pieces]

    def transforms(self, count: int, channels: int, rest: int) -> list[float]:
        """Numbers transformed, lines written to or read from caches and memory, and channels that fill no vector."""
        lines = count * self.matrices
        far = lines * 64 > CACHE
        return [count * self.numbers, 0 if far else lines, lines if far else 0, rest * (channels % LANES)]

    def terms(self, name: str) -> list[float]:
        """The work of a pass, kind by kind."""
        of_images = self.transforms(
            self.rows * self.phases * self.blocks, self.channels, self.rows * self.phases * self.numbers
        )
        of_results = self.transforms(self.rows * self.out_blocks, self.out_channels, self.rows * self.numbers)
        of_weight = self.transforms(self.columns * self.out_blocks, self.out_channels, self.columns * self.numbers)
        products = {
            "forward": self.products(self.rows, self.columns, self.out_channels),
            "images": self.products(self.rows, self.out_channels, self.columns),
            "weight": self.products(self.columns, self.rows, self.out_channels),
        }
        return [1.0, *products[name], *of_images, *of_results, *of_weight]


def work_of(plan: Pass, way: Way) -> list[float]:
    """The work of a way, kind by kind; the first is that of the call."""
    sizes = plan.sizes
    if way.name == FOURIER:
        return Work(sizes, way.tile).terms(plan.name)
    results = sizes.batch * math.prod(sizes.out) * -(-sizes.out_channels // LANES) * LANES
    return [1.0, results * sizes.channels * math.prod(sizes.kernel), results, sizes.batch * sizes.out_channels]


def predict(plan: Pass, way: Way, costs: Costs, threads: int) -> float:
    """Seconds that a way of ours takes."""
    each: list[float] = costs[way.name][plan.name]
    call, *rest = (cost * work for cost, work in zip(each, work_of(plan, way), strict=True))
    return call + sum(rest) / threads


def predict_torch(plan: Pass, costs: Costs, threads: int) -> float:
    """Seconds that torch's convolution takes at least.

    It computes whole vectors of eight output channels or more, or of input channels for the gradient of images, skips
    what is outside of the image, and pays for fresh memory for a large result, and for gradients of large maps.
    """
    sizes = plan.sizes
    lanes = {
        "forward": sizes.out_channels,
        "images": sizes.channels,
        "weight": max(sizes.channels, sizes.out_channels),
    }[plan.name]
    inside = math.prod(map(_inside, sizes.kernel, sizes.stride, sizes.padding, sizes.image, sizes.out))
    products = sizes.batch * sizes.channels * sizes.out_channels * inside * (-(-lanes // 8) * 8 / lanes)
    maps = [sizes.batch * sizes.out_channels * math.prod(sizes.out)]
    if plan.name != "forward":
        maps.append(sizes.batch * sizes.channels * math.prod(sizes.image))
    fresh = sum(4 * count for count in maps if 4 * count > FRESH)
    of_torch: dict[str, float] = costs["torch"]
    return (products * of_torch["product"] + fresh * of_torch["fresh"]) / threads


def _inside(kernel: int, stride: int, padding: int, size: int, out: int) -> int:
    """Pairs of a result and a tap of the kernel, along one axis, that meet a number of the image."""
    starts = (n * stride - padding for n in range(out))
    return sum(min(size, start + kernel) - max(0, start) for start in starts)


@functools.cache
def load_costs() -> Costs:
    """The measured costs."""
    found: Costs = json.loads((Path(__file__).parent / "costs.json").read_text(encoding="utf-8"))
    return found
