"""The convolution by the kernels in ``csrc/conv``, for float32 on the CPU."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import StateError
from torchcaps.ops.backends import register_backend, wanted_backend
from torchcaps.ops.backends.kernel import KernelBackend, KernelCall
from torchcaps.ops.backends.library import load_library
from torchcaps.ops.conv.backend import ConvBackend, Pass, are_channels_last, memory_format
from torchcaps.ops.conv.rule import FEW, MOST_SPECTRUM, Way, choose_way
from torchcaps.ops.conv.sizes import Sizes
from torchcaps.ops.memory import kept

CALL = "conv"
_NUMBERS = ("B", "C", "K", "size_h", "kernel_h", "stride_h", "padding_h", "out_h", "tile_h", "size_w", "kernel_w",
            "stride_w", "padding_w", "out_w", "tile_w", "first_block", "blocks", "images_last", "results_last",
            "threads")  # fmt: skip
_SPECTRA = ("image_spectrum", "weight_spectrum", "result_spectrum")
_TENSORS = ("images", "weight", "bias", "results", *_SPECTRA)
FIELDS = frozenset((*_NUMBERS, *_TENSORS))
MOST_ROOM = 1 << 27
"""Bytes of a spectrum of images at a time; more are taken in parts."""


class _Call(KernelCall):
    """A convolution of these sizes in tiles of this size."""

    def __init__(self, sizes: Sizes, way: Way, like: Tensor) -> None:
        self.sizes, self.way = sizes, way
        (height, width), (rows, columns) = sizes.image, sizes.kernel
        numbers = {
            "B": sizes.batch, "C": sizes.channels, "K": sizes.out_channels,
            "size_h": height, "kernel_h": rows, "stride_h": sizes.stride[0], "padding_h": sizes.padding[0],
            "out_h": sizes.out[0], "tile_h": way.tile[0],
            "size_w": width, "kernel_w": columns, "stride_w": sizes.stride[1], "padding_w": sizes.padding[1],
            "out_w": sizes.out[1], "tile_w": way.tile[1],
            "first_block": 0, "blocks": 0, "images_last": 0, "results_last": 0, "threads": torch.get_num_threads(),
        }  # fmt: skip
        super().__init__(CALL, like, {**dict.fromkeys(_TENSORS, 0), **numbers})
        self.lanes = self.run("conv_lanes")
        self.values["blocks"] = -(-sizes.channels // self.lanes)

    def put_maps(self, name: str, maps: Tensor) -> None:
        """Images or results, in either order of their dimensions."""
        last = are_channels_last(maps)
        self.values[f"{name}_last"] = int(last)
        ordered = maps.permute(0, 2, 3, 1) if last else maps
        self.put(name, ordered, tuple(ordered.shape))

    def put_room(self, name: str) -> Tensor:
        """Room for a spectrum."""
        room = kept.empty([self.room(name)], self.like.dtype)
        self.put(f"{name}_spectrum", room, tuple(room.shape))
        return room

    def room(self, name: str) -> int:
        """Numbers in a spectrum."""
        return self.run(f"conv_{name}_room")

    def transform(self, function: str) -> None:
        """Call a function that has the lengths of transform that the rule chooses from."""
        if self.run(function) < 0:
            raise StateError(f"the library of kernels has no transforms of {self.way.tile} numbers.")


class _Kept(NamedTuple):
    """A spectrum of a weight that had this digest."""

    digest: int
    spectrum: Tensor


class WeightSpectra:
    """Spectra of weights, kept until the weight is gone or other weights need the room.

    A spectrum is used again only if the weight still holds the same numbers: they are read again, which takes a small
    part of the time of the transform. A version, as autograd counts them, would not see ``weight.data`` change.
    """

    def __init__(self, most: int = 1 << 29) -> None:
        self.most = most
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()
        self._watched: set[tuple[object, ...]] = set()  # keys that go when their weight does
        self._lock = threading.RLock()

    def get(self, weight: Tensor, call: _Call) -> Tensor:
        """The spectrum of a weight, made if there is none."""
        own = weight.contiguous()
        call.put("weight", own, tuple(own.shape))
        digest = call.run("conv_digest")
        library, _ = load_library()
        variant = None if library is None else library.variant
        key = (
            weight.data_ptr(),
            weight.shape,
            weight.stride(),
            weight.dtype,
            call.way.tile,
            call.sizes.stride,
            variant,
        )
        with self._lock:
            found = self._kept.get(key)
            if found is not None and found.digest == digest:
                self._kept.move_to_end(key)
                call.put("weight_spectrum", found.spectrum, tuple(found.spectrum.shape))
                return found.spectrum
            self._kept.pop(key, None)
        found = None  # what it held may be given out again
        spectrum = call.put_room("weight")
        call.transform("conv_weight")
        self._keep(key, weight, _Kept(digest, spectrum))
        return spectrum

    def _keep(self, key: tuple[object, ...], weight: Tensor, new: _Kept) -> None:
        with self._lock:
            self._kept[key] = new
            while len(self._kept) > 1 and sum(one.spectrum.nbytes for one in self._kept.values()) > self.most:
                self._kept.popitem(last=False)
            if key in self._watched:
                return
            self._watched.add(key)
        weakref.finalize(weight, self._forget, key).atexit = False

    def _forget(self, key: tuple[object, ...]) -> None:
        self._watched.discard(key)
        self._kept.pop(key, None)

    def drop(self, weight: Tensor) -> None:
        """Forget the spectra of a weight."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == weight.data_ptr()]:
                del self._kept[key]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()


spectra = WeightSpectra()


@register_backend("convolution", "cpu")
class KernelConvolution(KernelBackend, ConvBackend):
    """The kernels, where they are faster than torch."""

    call, fields = CALL, FIELDS

    def supports(self, plan: Pass, tensors: Sequence[Tensor | None]) -> str | None:
        """Float32 only, and if nobody asks for the kernels by name, where the rule says that they are faster."""
        if any(tensor is not None and tensor.dtype != torch.float32 for tensor in tensors):
            return "it computes in float32"
        reason = self.unavailable()
        if reason is None and choose_way(plan, torch.get_num_threads(), wanted_backend() == self.name) is None:
            return "torch's own is faster for these sizes"
        return reason

    def forward(self, sizes: Sizes, images: Tensor, weight: Tensor, bias: Tensor | None, last: bool) -> Tensor:
        """See :class:`ConvBackend`."""
        way = self._way("forward", sizes)
        images, result = _ordered(images), _empty_maps(sizes.batch, sizes.out_channels, sizes.out, last, images)
        bias = None if bias is None else bias.contiguous()
        if way.name == FEW:
            call = _Call(sizes, way, images)
            call.put_maps("images", images)
            call.put_maps("results", result)
            call.put("weight", weight.contiguous(), tuple(weight.shape))
            call.put("bias", bias, (sizes.out_channels,))
            call.run("conv_few_forward")
            return result
        spectrum = spectra.get(weight, _Call(sizes, way, images))
        for part in _parts(sizes, way, images):
            call = _Call(sizes._replace(batch=part.stop - part.start), way, images)
            call.put("weight_spectrum", spectrum, tuple(spectrum.shape))
            call.put("bias", bias, (sizes.out_channels,))
            call.put_maps("images", images[part])
            call.put_maps("results", result[part])
            call.put_room("image"), call.put_room("result")
            call.transform("conv_forward")
            del call  # the next part takes its room
        return result

    def image_gradient(self, sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor) -> Tensor:
        """See :class:`ConvBackend`."""
        way, grad = self._way("images", sizes), _ordered(grad)
        found = _empty_maps(sizes.batch, sizes.channels, sizes.image, are_channels_last(images), grad)
        spectrum = spectra.get(weight, _Call(sizes, way, grad))
        for part in _parts(sizes, way, grad):
            call = _Call(sizes._replace(batch=part.stop - part.start), way, grad)
            call.put("weight_spectrum", spectrum, tuple(spectrum.shape))
            call.put_maps("results", grad[part])
            call.put_maps("images", found[part])
            call.put_room("image"), call.put_room("result")
            call.transform("conv_results")
            call.transform("conv_image_gradients")
            del call
        spectra.drop(weight)  # which a training step is about to change: the gradient of the weight takes its room
        return found

    def weight_gradient(
        self, sizes: Sizes, grad: Tensor, images: Tensor, weight: Tensor, bias: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See :class:`ConvBackend`."""
        way, grad, images = self._way("weight", sizes), _ordered(grad), _ordered(images)
        found = kept.empty(weight.shape, images.dtype)
        if way.name == FEW:
            call = _Call(sizes, way, images)
            call.put_maps("images", images)
            call.put_maps("results", grad)
            call.put("weight", found, tuple(weight.shape))
            sums = call.new("bias", (sizes.out_channels,)) if bias else None
            call.run("conv_few_weight_gradients")
            return found, sums
        for part in _parts(sizes, way, images):
            call = _Call(sizes._replace(batch=part.stop - part.start), way, images)
            call.put_maps("images", images[part])
            call.put_maps("results", grad[part])
            call.put_room("image"), call.put_room("result")
            call.transform("conv_images")
            call.transform("conv_results")
            target = found if part.start == 0 else kept.empty(weight.shape, images.dtype)
            self._weight_in_parts(call, target)
            del call
            if part.start > 0:
                found += target
        return found, None

    def _weight_in_parts(self, call: _Call, target: Tensor) -> None:
        """From the spectra of images and results, some blocks of input channels at a time."""
        call.put("weight", target, tuple(target.shape))
        blocks = call.values["blocks"]
        parts = min(blocks, -(-call.room("weight") * call.like.itemsize // MOST_SPECTRUM))
        call.values["blocks"] = -(-blocks // parts)
        call.put_room("weight")
        for first in range(0, blocks, step := call.values["blocks"]):
            call.values |= {"first_block": first, "blocks": min(step, blocks - first)}
            call.transform("conv_weight_gradients")

    def _way(self, name: str, sizes: Sizes) -> Way:
        way = choose_way(Pass(name, sizes), torch.get_num_threads(), asked=True)  # type: ignore[arg-type]
        assert way is not None
        return way


def _ordered(maps: Tensor) -> Tensor:
    """Maps in one of the two orders that the kernels read."""
    return maps if maps.is_contiguous(memory_format=torch.channels_last) else maps.contiguous()


def _empty_maps(batch: int, channels: int, size: tuple[int, int], last: bool, like: Tensor) -> Tensor:
    return kept.empty((batch, channels, *size), like.dtype, memory_format(last))


def _parts(sizes: Sizes, way: Way, like: Tensor) -> Iterator[slice]:
    """Images whose spectra are not too large, nearly as many in each part."""
    room = _Call(sizes, way, like).room("image") * like.itemsize
    count = min(sizes.batch, -(-room // MOST_ROOM))
    for n in range(count):
        yield slice(sizes.batch * n // count, sizes.batch * (n + 1) // count)
