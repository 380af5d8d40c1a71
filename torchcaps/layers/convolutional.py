"""Convolutional capsules: parents on a grid see windows of children."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.types import Device

from torchcaps.capsules import Capsules
from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.layers.grid import GridCapsules, PoseShape
from torchcaps.ops.precision import exact, widen
from torchcaps.ops.result import RoutingOutput, RoutingTrace
from torchcaps.ops.windows import Windows
from torchcaps.routing.registry import RoutingLike


class _CapsuleConv(GridCapsules):
    """A convolution of capsules in any number of dimensions."""

    dimensions: int

    def __init__(
        self,
        in_types: int,
        out_types: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        *,
        in_pose: PoseShape = (4, 4),
        out_pose: PoseShape | None = None,
        routing: RoutingLike = "em",
        compete: str | None = None,
        normalize: bool | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.kernel_size = _per_dimension("kernel_size", kernel_size, self.dimensions, 1)
        self.stride = _per_dimension("stride", stride, self.dimensions, 1)
        self.padding = _per_dimension("padding", padding, self.dimensions, 0)
        places = math.prod(self.kernel_size)
        super().__init__(
            in_types, out_types, in_pose=in_pose, out_pose=out_pose, routing=routing, compete=compete,
            normalize=normalize, places=places, children=places * in_types, device=device, dtype=dtype,
        )  # fmt: skip

    def windows(self, size: tuple[int, ...]) -> Windows:
        """The windows over a grid of that size."""
        return Windows(size, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """Show types, poses and the window."""
        return f"{super().extra_repr()}, kernel {self.kernel_size}, stride {self.stride}, padding {self.padding}"


class CapsuleConv2d(_CapsuleConv):
    r"""A convolution of capsules: a parent sees the children in a window, and every child votes for every type.

    ::

        V_ij = M_i W_kj          k: place of child i in the window of parent j
        parents = routing(V)

    Hinton, Sabour, Frosst 2018, "Matrix Capsules with EM Routing" (ICLR). The weights are shared by all positions, so
    a shifted input gives shifted parents.

    Args:
        in_types: T, types of children at every position.
        out_types: J, types of parents.
        kernel_size: of the window, one number or one per dimension.
        stride: of the window.
        padding: positions without children around the grid.
        in_pose: (rows, columns) of a matrix pose, or the size of a vector pose.
        out_pose: of the parents; a matrix pose keeps its rows. Not given: like ``in_pose``.
        routing: a name, ``{"name": …, **options}`` or a :class:`~torchcaps.routing.Routing`.
        compete: a child chooses among all parents that see it, at all ``positions``, or at each position among its
            ``types``. Not given: positions for EM, types for all other routings, which know nothing else.
        normalize: use W / ‖W‖_F. None: if the routing asks for it.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        pose ``[B, H, W, T, *in_pose]``, activation and mask ``[B, H, W, T]`` → pose ``[B, H', W', J, *out_pose]``,
        activation ``[B, H', W', J]``. A parent is masked if its window holds a position where all children are.
        weight ``[places, T, J, d, C]`` with d×C matrices.
    """

    dimensions = 2


class CapsuleConv1d(_CapsuleConv):
    """The same along a sequence, such as a sentence: :class:`CapsuleConv2d` has the other arguments.

    Args:
        positions: give the windows at every position weights of their own, for up to so many positions. Not given:
            weights are shared along the sequence, which may have any length.

    Shapes:
        pose ``[B, L, T, *in_pose]``, activation and mask ``[B, L, T]`` → pose ``[B, L', J, *out_pose]``, activation
        ``[B, L', J]``. weight ``[places, T, J, d, C]``, with ``positions`` one more dimension in front.
    """

    dimensions = 1

    def __init__(
        self,
        in_types: int,
        out_types: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        in_pose: PoseShape = (4, 4),
        out_pose: PoseShape | None = None,
        routing: RoutingLike = "em",
        compete: str | None = None,
        normalize: bool | None = None,
        positions: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_types, out_types, kernel_size, stride, padding, in_pose=in_pose, out_pose=out_pose, routing=routing,
            compete=compete, normalize=normalize, device=device, dtype=dtype,
        )  # fmt: skip
        self.positions = positions
        if positions is None:
            return
        require_count("positions", positions)
        if padding or self.compete != "types":
            raise InputError(
                "weights of their own for every position go with padding=0 and compete='types' only; got "
                f"padding={padding}, compete={self.compete!r}."
            )
        self.weight = nn.Parameter(self.weight.new_empty(positions, *self.weight.shape))
        self.reset_parameters()

    def votes(self, capsules: Capsules) -> Tensor:
        """See above."""
        if self.positions is None:
            return super().votes(capsules)
        poses, _, _ = self.as_routed(capsules)
        table = self.windows(tuple(capsules.activation.shape[1:-1])).table(poses.device)
        weight = self.effective_weight()[: table.shape[0]]
        with exact(poses):
            return torch.einsum("bpwtrd,pwtjdc->bpwtjrc", widen(poses)[:, table], widen(weight)).flatten(-2)

    def route(
        self, capsules: Capsules, trace: bool = False, coupling: bool = True, iterations: int | None = None
    ) -> RoutingOutput:
        """See :class:`CapsuleConv2d`; with ``positions`` the windows at each position are routed on their own."""
        if self.positions is None:
            return super().route(capsules, trace, coupling, iterations)
        routing = self.routing.with_iterations(iterations)
        poses, activation, mask = self.as_routed(capsules)
        (width,), (stride,) = self.kernel_size, self.stride
        (out,) = self.windows(tuple(capsules.activation.shape[1:-1])).out()
        if out > self.positions:
            raise InputError(
                f"CapsuleConv1d has weights for {self.positions} positions of parents; a sequence of "
                f"{capsules.activation.shape[1]} gives {out}. Shorten it, or share the weights: positions=None."
            )
        alone, weight, outputs = Windows((width,), (width,), (1,), (0,)), self.effective_weight(), []
        for at in range(out):
            here = slice(at * stride, at * stride + width)
            seen = None if mask is None else mask[:, here]
            children = (poses[:, here], weight[at], activation[:, here], alone)
            outputs.append(routing.route_windows(*children, mask=seen, coupling=coupling, trace=trace))
        return _join(outputs)


def _join(parts: list[RoutingOutput]) -> RoutingOutput:
    """The parents at all positions from those at each."""
    traces = [part.trace for part in parts if part.trace is not None]
    joined = None
    if traces:
        joined = RoutingTrace(
            torch.cat([trace.coupling for trace in traces], dim=2),
            torch.cat([trace.pose for trace in traces], dim=2),
            torch.cat([trace.activation for trace in traces], dim=2),
            torch.stack([trace.objective for trace in traces]).sum(dim=0),
        )
    shares = [part.coupling for part in parts if part.coupling is not None]
    return RoutingOutput(
        torch.cat([part.pose for part in parts], dim=1),
        torch.cat([part.activation for part in parts], dim=1),
        torch.cat(shares, dim=1) if shares else None,
        joined,
    )


def _per_dimension(name: str, value: int | tuple[int, ...], dimensions: int, least: int) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,) * dimensions
    if len(values) != dimensions:
        raise InputError(f"{name} must be one number or {dimensions}, got {value!r}.")
    for number in values:
        require_count(name, number, least)
    return values
