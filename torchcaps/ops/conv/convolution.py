"""The same as torch's convolution, faster where it can be."""

from __future__ import annotations

import contextlib
import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.ops.backends import registrations, wanted_backend
from torchcaps.ops.conv.backend import PASSES, are_channels_last
from torchcaps.ops.conv.op import conv2d_op, serving
from torchcaps.ops.conv.sizes import Pair, Sizes
from torchcaps.ops.transforms import plain_needed

Ints = int | tuple[int, ...]
_LIKE = (torch.empty(0, device="cpu"),)
_torchs: set[object] = set()


def conv2d(
    input: Tensor,  # noqa: A002 - as torch calls it
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
    *,
    channels_last: bool | None = None,
) -> Tensor:
    r"""A convolution of images: the same result, and the same arguments, as :func:`torch.nn.functional.conv2d`.

    ::

        y[b, k, i, j] = bias_k + Σ_c Σ_uv x[b, c, i·s + u − p, j·s + v − p] w[k, c, u, v]

    Many channels and large kernels are computed by Fourier products, with up to five times fewer multiplications, and
    one to four input channels by a kernel of their own, both in the forward pass and for the gradients; torch's own
    convolution serves where it is faster, and for everything but float32 on the CPU. ``ops/conv/README.md`` derives
    the products and says how the choice is made. Where one of torch's transforms asks for more than a first
    derivative, torch's convolution serves (:mod:`torchcaps.ops.transforms`).

    The numbers differ from torch's by rounding only. A number that is not finite shows in more results than it would
    by the definition: in all of its tile of the image, never in another image.

    Args:
        input: images.
        weight: of the convolution.
        bias: added to every result.
        stride: distance of two windows.
        padding: zeros around the images; ``"valid"`` and ``"same"`` as torch has them.
        dilation: as torch has it; other than 1, torch serves.
        groups: as torch has it; other than 1, torch serves.
        channels_last: whether the channels of the result are last in memory, where that costs nothing. None: as torch
            does, if they are so in ``input``.

    Shapes:
        input ``[B, C, H, W]``, weight ``[K, C, kh, kw]``, bias ``[K]`` → ``[B, K, H', W']``.
    """
    compiling = torch.compiler.is_compiling()
    if not compiling:
        recorded = torch.is_grad_enabled()
        wanted = (recorded and input.requires_grad, recorded and weight.requires_grad)
        state = (torch.get_num_threads(), wanted_backend(), registrations())
        if _torch_serves(input.shape, weight.shape, stride, padding, wanted, state):
            return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    pairs = _pairs(stride, padding) if dilation in (1, (1, 1)) and groups == 1 else None
    if pairs is None or not _fit(input, weight, bias):
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    last = are_channels_last(input)
    if compiling:  # the graph may serve other sizes: the op chooses when it runs
        return conv2d_op(input, weight, bias, *pairs, last)  # type: ignore[no-any-return]
    ours = _ours(input.shape, weight.shape, *pairs, wanted, state)
    if not any(ours):
        _remember((input.shape, weight.shape, stride, padding, wanted, state))
        return F.conv2d(input, weight, bias, *pairs)
    last = last if channels_last is None or not ours[0] else channels_last
    if any(wanted) or (recorded and bias is not None and bias.requires_grad):
        return conv2d_op(input, weight, bias, *pairs, last)  # type: ignore[no-any-return]
    return torch.ops.torchcaps.conv2d_forward.default(input, weight, bias, *pairs, last)  # type: ignore[no-any-return]


def _torch_serves(*key: object) -> bool:
    """Whether torch is known to serve all passes of these sizes: small ones take less time than to ask again."""
    try:
        return key in _torchs
    except TypeError:  # a list, or a size that is a symbol
        return False


def _remember(key: object) -> None:
    if len(_torchs) > 4096:
        _torchs.clear()
    with contextlib.suppress(TypeError):  # see above
        _torchs.add(key)


def conv1d(
    input: Tensor,  # noqa: A002 - as torch calls it
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution along sequences, as :func:`torch.nn.functional.conv1d`: :func:`conv2d` of images one pixel high.

    Shapes:
        input ``[B, C, L]``, weight ``[K, C, k]``, bias ``[K]`` → ``[B, K, L']``.
    """
    pair = _pairs(_whole(stride), _whole(padding)) if dilation in (1, (1,)) and groups == 1 else None
    if pair is None or input.dim() != 3 or weight.dim() != 3:
        return F.conv1d(input, weight, bias, stride, padding, dilation, groups)
    (_, step), (_, around) = pair
    return conv2d(input[:, :, None], weight[:, :, None], bias, (1, step), (0, around))[:, :, 0]


def _whole(value: Ints | str) -> Ints | str:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def _pairs(stride: Ints | str, padding: Ints | str) -> tuple[Pair, Pair] | None:
    """Stride and padding of height and width; None for what torch is to look at."""
    steps = (stride, stride) if isinstance(stride, int) else stride
    around = 0 if padding == "valid" else padding
    around = (around, around) if isinstance(around, int) else around
    if isinstance(steps, str) or isinstance(around, str) or len(steps) != 2 or len(around) != 2:
        return None
    if min(steps) < 1 or min(around) < 0:
        return None
    return (steps[0], steps[1]), (around[0], around[1])


def _fit(images: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether these are tensors that a convolution of ours may serve; torch has its own words for what is wrong."""
    tensors = (images, weight) if bias is None else (images, weight, bias)
    return (
        all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
        and images.dim() == weight.dim() == 4
        and images.shape[1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and not plain_needed()
        and not torch.is_autocast_enabled("cpu")
    )


@functools.lru_cache(maxsize=4096)
def _ours(
    images: tuple[int, ...],
    weight: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    wanted: tuple[bool, ...],
    _state: tuple[object, ...],
) -> tuple[bool, bool, bool]:
    """Whether another backend than torch serves the result, and the gradients of images and weight if wanted."""
    batch, channels, height, width = images
    sizes = Sizes(batch, channels, (height, width), weight[0], (weight[2], weight[3]), stride, padding)
    if min(*images, *weight, *sizes.out) < 1:
        return False, False, False
    forward, dimages, dweight = (serving(name, sizes, _LIKE).name != "torch" for name in PASSES)
    return forward, dimages and wanted[0], dweight and wanted[1]


def forget_choices() -> None:
    """Ask again which backend serves which sizes: for measurements that change the rule."""
    _ours.cache_clear()
    _torchs.clear()
