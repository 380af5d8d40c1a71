"""``torchcaps::conv2d``: the convolution as a custom op, forward and backward, each pass by the backend in use."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.ops.backends import choose_backend
from torchcaps.ops.conv import cpu as _cpu  # noqa: F401 - which registers the kernels
from torchcaps.ops.conv.backend import ConvBackend, Pass, PassName, are_channels_last, memory_format
from torchcaps.ops.conv.sizes import Pair, Sizes, sizes_of
from torchcaps.ops.precision import exact
from torchcaps.ops.transforms import call_each, fold, plain_needed, require_no_tangents, unfold

# Schemas are written out: which annotations torch can read instead depends on its version.
FORWARD = "(Tensor images, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, bool last) -> Tensor"
BACKWARD = (
    "(Tensor grad, Tensor images, Tensor weight, SymInt[] stride, SymInt[] padding, bool[] wanted)"
    " -> (Tensor, Tensor, Tensor)"
)


def serving(name: PassName, sizes: Sizes, tensors: Sequence[Tensor | None]) -> ConvBackend:
    """The backend that serves a pass."""
    backend = choose_backend("convolution", Pass(name, sizes), tensors, optional=True)
    assert isinstance(backend, ConvBackend)
    return backend


def _pair(numbers: Sequence[int]) -> Pair:
    return numbers[0], numbers[1]


def _forward(
    images: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int], last: bool
) -> Tensor:
    """The result [B, K, H', W'], its channels last in memory or not."""
    require_no_tangents("conv2d")
    sizes = sizes_of(images, weight, _pair(stride), _pair(padding))
    return serving("forward", sizes, (images, weight, bias)).forward(sizes, images, weight, bias, last)


def _fake_forward(
    images: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int], last: bool
) -> Tensor:
    sizes = sizes_of(images, weight, _pair(stride), _pair(padding))
    shape = (sizes.batch, sizes.out_channels, *sizes.out)
    return torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=memory_format(last))


conv2d_op = torch.library.custom_op("torchcaps::conv2d", _forward, mutates_args=(), schema=FORWARD)
conv2d_op.register_fake(_fake_forward)

# The same without autograd, for where no gradient is wanted: see torchcaps::routed_forward.
torch.library.define("torchcaps::conv2d_forward", FORWARD)
torch.library.impl("torchcaps::conv2d_forward", "default")(_forward)
torch.library.register_fake("torchcaps::conv2d_forward")(_fake_forward)


@torch.library.custom_op("torchcaps::conv2d_backward", mutates_args=(), schema=BACKWARD)
def conv2d_backward_op(
    grad: Tensor,
    images: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of images, weight and bias [K]; those that are not wanted are empty."""
    require_no_tangents("conv2d_backward")
    sizes = sizes_of(images, weight, _pair(stride), _pair(padding))
    tensors, none = (images, weight, grad), images.new_empty(0)
    dimages, dweight, dbias = none, none.clone(), None
    if wanted[0]:
        dimages = serving("images", sizes, tensors).image_gradient(sizes, grad, images, weight)
    if wanted[1]:
        backend = serving("weight", sizes, tensors)
        dweight, dbias = backend.weight_gradient(sizes, grad, images, weight, wanted[2])
    if wanted[2] and dbias is None:
        dbias = grad.sum(dim=(0, 2, 3))
    return dimages, dweight, none.clone() if dbias is None else dbias


@conv2d_backward_op.register_fake
def _(
    grad: Tensor,
    images: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    none = images.new_empty(0)
    dimages = torch.empty_like(images, memory_format=memory_format(are_channels_last(images)))
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    dbias = images.new_empty(weight.shape[0])
    found = (dimages, dweight, dbias)
    one, two, three = (tensor if asked else none.clone() for tensor, asked in zip(found, wanted, strict=True))
    return one, two, three


def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    images, weight, bias, ctx.stride, ctx.padding, _ = inputs
    ctx.save_for_backward(images, weight)
    ctx.bias = None if bias is None else list(bias.shape)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    images, weight = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:3])
    if torch.is_grad_enabled() or plain_needed():  # create_graph, or gradients of many outputs at once
        with exact(grad):
            backward, sizes = torch.ops.aten.convolution_backward, (ctx.bias, ctx.stride, ctx.padding)
            found = backward(grad, images, weight, *sizes, (1, 1), False, (0, 0), 1, wanted)
    else:
        found = conv2d_backward_op(grad, images, weight, ctx.stride, ctx.padding, wanted)
    return *(one if asked else None for one, asked in zip(found, wanted, strict=True)), None, None, None


conv2d_op.register_autograd(_backward, setup_context=_setup)


def _vmap(info, in_dims, images, weight, bias, *rest, op):  # type: ignore[no-untyped-def]
    """More images where the weights are the same for all, else one call for each."""
    size = info.batch_size
    if in_dims[1] is not None or in_dims[2] is not None:

        def call(*some):  # type: ignore[no-untyped-def]
            return (op(*some, *rest),)

        return call_each(call, in_dims[:3], size, images, weight, bias)[0], 0
    return unfold(op(fold(images, in_dims[0], size), weight, bias, *rest), 0, size), 0


torch.library.register_vmap("torchcaps::conv2d", functools.partial(_vmap, op=conv2d_op))
torch.library.register_vmap(
    "torchcaps::conv2d_forward", functools.partial(_vmap, op=torch.ops.torchcaps.conv2d_forward.default)
)
