"""Capsules on a grid: convolutional capsules, and class capsules that look at the whole grid."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, require_capsules
from torchcaps.checks import require_choice, require_count
from torchcaps.ops.em import COMPETITIONS
from torchcaps.ops.result import RoutingOutput, RoutingTrace
from torchcaps.ops.windows import Windows, window_votes, windows_present
from torchcaps.routing.base import RoutingLike, resolve_routing

PoseShape = int | tuple[int, int]
"""The size of a vector pose, or rows and columns of a matrix pose."""


class _GridCapsules(nn.Module):
    """Children on a grid vote for parents by windows; what all layers of this kind share.

    Weights ``[W, T, J, d, C]``: a matrix per place in the window, type of child and type of parent.
    """

    weight: nn.Parameter

    def __init__(
        self,
        in_types: int,
        out_types: int,
        in_pose: PoseShape,
        out_pose: PoseShape | None,
        routing: RoutingLike,
        compete: str | None,
        normalize: bool | None,
        places: int,
        children: int | None,
    ) -> None:
        super().__init__()
        require_count("in_types", in_types)
        require_count("out_types", out_types)
        self.in_types, self.out_types = in_types, out_types
        self.in_pose = in_pose
        self.out_pose = in_pose if out_pose is None else out_pose
        self.rows, inner, columns = _matrix_sizes(self.in_pose, self.out_pose)
        self.routing = resolve_routing(routing)
        self.routing.build(children, out_types, self.rows * columns)
        self.compete = self.routing.competition if compete is None else compete
        require_choice("competition", self.compete, COMPETITIONS)
        self.normalize = self.routing.normalized_weights if normalize is None else normalize
        self.weight = nn.Parameter(torch.empty(places, in_types, out_types, inner, columns))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights with the routing's :meth:`~torchcaps.routing.Routing.initial_std`.

        In the class layer, whose children may be any number, they are drawn as if there were 16 positions.
        """
        places, types, parents, _, columns = self.weight.shape[-5:]
        count = types * (16 if places == 1 else places)
        if self.rows == 1:
            std = self.routing.initial_std(count, parents, columns)
        else:
            std = self.routing.initial_matrix_std(count, parents, self.rows, columns)
        nn.init.normal_(self.weight, std=std)

    def effective_weight(self) -> Tensor:
        """The weights as the votes use them: normalised if the layer does so."""
        if not self.normalize:
            return self.weight
        return nn.functional.normalize(self.weight.flatten(-2), dim=-1).view_as(self.weight)

    def windows(self, size: tuple[int, ...]) -> Windows:
        """The windows over a grid of that size."""
        raise TypeError(f"{type(self).__name__} must implement windows(size).")

    def shift(self, size: tuple[int, ...], like: Tensor) -> Tensor | None:
        """What is added to the votes of each position; nothing here."""
        return None

    def route(self, capsules: Capsules, trace: bool = False, coupling: bool = True) -> RoutingOutput:
        """The parents ``[B, P, J, ·]`` with the coupling ``[B, P, W, T, J]`` and, if asked for, every iteration."""
        poses, activation, mask = self.as_routed(capsules)
        size = tuple(capsules.activation.shape[1:-1])
        return self.routing.route_windows(
            poses,
            self.effective_weight(),
            activation,
            self.windows(size),
            shift=self.shift(size, poses),
            mask=mask,
            compete=self.compete,
            coupling=coupling,
            trace=trace,
        )

    def votes(self, capsules: Capsules) -> Tensor:
        """The votes of every window's children for its parents ``[B, P, W, T, J, D]``, stored: to look at them."""
        poses, _, _ = self.as_routed(capsules)
        size = tuple(capsules.activation.shape[1:-1])
        return window_votes(poses, self.effective_weight(), self.windows(size), self.shift(size, poses)).flatten(-2)

    def as_routed(self, capsules: Capsules) -> tuple[Tensor, Tensor, Tensor | None]:
        """Checked capsules as routings take them: poses ``[B, Q, T, R, d]``, activation and mask ``[B, Q, T]``."""
        require_capsules(type(self).__name__, capsules)
        self._check(capsules)
        poses = capsules.pose.flatten(1, capsules.activation.dim() - 2)
        mask = None if capsules.mask is None else capsules.mask.flatten(1, -2)
        if mask is not None and any(self.windows(tuple(capsules.activation.shape[1:-1])).padding):
            raise ValueError(
                "a mask and the layer's own padding do not go together: whether a window reaches into padding would "
                "depend on the batch. Use padding=0."
            )
        return poses.reshape(*poses.shape[:3], self.rows, -1), capsules.activation.flatten(1, -2), mask

    def forward(self, capsules: Capsules) -> Capsules:
        """The parents; votes are not stored by EM, dynamic and optimised routing."""
        output = self.route(capsules, coupling=False)
        windows = self.windows(tuple(capsules.activation.shape[1:-1]))
        pose = output.pose
        if isinstance(self.out_pose, tuple):
            pose = torch.unflatten(pose, -1, self.out_pose)
        mask = None
        if capsules.mask is not None:
            present = windows_present(capsules.mask.flatten(1, -2), windows)
            mask = present[..., None].expand(output.activation.shape)
            mask = torch.unflatten(mask, 1, windows.out)
        pose, activation = (torch.unflatten(part, 1, windows.out) for part in (pose, output.activation))
        return Capsules(pose, activation, mask)

    def _check(self, capsules: Capsules) -> None:
        arrangement = capsules.activation.dim()
        pose = self.in_pose if isinstance(self.in_pose, tuple) else (self.in_pose,)
        size = capsules.activation.shape[1:-1]
        dimensions = self.dimensions
        fits = dimensions is None or len(size) == dimensions
        if not fits or capsules.activation.shape[-1] != self.in_types or capsules.pose.shape[arrangement:] != pose:
            grid = {None: "*positions", 1: "length", 2: "height, width"}[dimensions]
            raise ValueError(
                f"{type(self).__name__} expects capsules on a grid, pose [batch, {grid}, {self.in_types}, "
                f"{', '.join(map(str, pose))}] for {self.in_types} types; got pose {tuple(capsules.pose.shape)} and "
                f"activation {tuple(capsules.activation.shape)}."
            )
        windows = self.windows(tuple(size))
        if min(windows.out) < 1:
            raise ValueError(
                f"{type(self).__name__} slides a window of {windows.kernel} over {tuple(size)} positions, which is too "
                "small. Use a larger input, a smaller kernel or padding."
            )

    dimensions: int | None = None

    def extra_repr(self) -> str:
        """Show types and poses."""
        poses = [pose if isinstance(pose, int) else "×".join(map(str, pose)) for pose in (self.in_pose, self.out_pose)]
        return f"{self.in_types} types of {poses[0]} → {self.out_types} types of {poses[1]}, compete={self.compete!r}"


class _CapsuleConv(_GridCapsules):
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
    ) -> None:
        self.kernel_size = _per_dimension("kernel_size", kernel_size, self.dimensions, 1)
        self.stride = _per_dimension("stride", stride, self.dimensions, 1)
        self.padding = _per_dimension("padding", padding, self.dimensions, 0)
        places = math.prod(self.kernel_size)
        super().__init__(in_types, out_types, in_pose, out_pose, routing, compete, normalize, places, places * in_types)

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
        positions: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_types, out_types, kernel_size, stride, padding, **options)
        self.positions = positions
        if positions is None:
            return
        require_count("positions", positions)
        if padding or self.compete != "types":
            raise ValueError(
                "weights of their own for every position go with padding=0 and compete='types' only; got "
                f"padding={padding}, compete={self.compete!r}."
            )
        self.weight = nn.Parameter(torch.empty(positions, *self.weight.shape))
        self.reset_parameters()

    def votes(self, capsules: Capsules) -> Tensor:
        """See above."""
        if self.positions is None:
            return super().votes(capsules)
        poses, _, _ = self.as_routed(capsules)
        table = self.windows(tuple(capsules.activation.shape[1:-1])).table(poses.device)
        weight = self.effective_weight()[: len(table)]
        return torch.einsum("bpwtrd,pwtjdc->bpwtjrc", poses[:, table], weight).flatten(-2)

    def route(self, capsules: Capsules, trace: bool = False, coupling: bool = True) -> RoutingOutput:
        """See :class:`CapsuleConv2d`; with ``positions`` the windows at each position are routed on their own."""
        if self.positions is None:
            return super().route(capsules, trace, coupling)
        poses, activation, mask = self.as_routed(capsules)
        (width,), (stride,) = self.kernel_size, self.stride
        (out,) = self.windows(tuple(capsules.activation.shape[1:-1])).out
        if out > self.positions:
            raise ValueError(
                f"CapsuleConv1d has weights for {self.positions} positions of parents; a sequence of "
                f"{capsules.activation.shape[1]} gives {out}. Shorten it, or share the weights: positions=None."
            )
        alone, weight, found = Windows((width,), (width,), (1,), (0,)), self.effective_weight(), []
        for at in range(out):
            here = slice(at * stride, at * stride + width)
            seen = None if mask is None else mask[:, here]
            children = (poses[:, here], weight[at], activation[:, here], alone)
            found.append(self.routing.route_windows(*children, mask=seen, coupling=coupling, trace=trace))
        return _joined(found)


def _joined(parts: list[RoutingOutput]) -> RoutingOutput:
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
    return RoutingOutput(
        torch.cat([part.pose for part in parts], dim=1),
        torch.cat([part.activation for part in parts], dim=1),
        torch.cat([part.coupling for part in parts], dim=1),
        joined,
    )


class ClassCapsules(_GridCapsules):
    r"""One parent per class that sees every capsule of a grid of any size, with the same weights at all positions.

    So that position is not lost, the (row, column) of a child, scaled to 0 … 1, is added to two numbers of its votes:
    the first two of the last column of a matrix, the last two of a vector (coordinate addition, Hinton et al. 2018).

    Args:
        in_types: T, types of children at every position.
        classes: number of parents.
        in_pose: (rows, columns) of a matrix pose, or the size of a vector pose.
        out_pose: of the parents. Not given: like ``in_pose``.
        routing: a name, ``{"name": …, **options}`` or a :class:`~torchcaps.routing.Routing`. For EM the authors use a
            quarter of λ in this layer: ``{"name": "em", "inverse_temperature": "authors-class"}``, the default.
        coordinates: add them.
        normalize: use W / ‖W‖_F. None: if the routing asks for it.

    Shapes:
        pose ``[B, *positions, T, *in_pose]`` → pose ``[B, classes, *out_pose]``, activation ``[B, classes]``.
        weight ``[1, T, classes, d, C]``.
    """

    def __init__(
        self,
        in_types: int,
        classes: int,
        *,
        in_pose: PoseShape = (4, 4),
        out_pose: PoseShape | None = None,
        routing: RoutingLike = "em",
        coordinates: bool = True,
        normalize: bool | None = None,
    ) -> None:
        if routing == "em":
            routing = {"name": "em", "inverse_temperature": "authors-class"}
        super().__init__(in_types, classes, in_pose, out_pose, routing, None, normalize, 1, None)
        self.coordinates = coordinates
        size = self.out_pose if isinstance(self.out_pose, int) else min(self.out_pose[0], 2)
        if coordinates and size < 2:
            raise ValueError(
                f"coordinates need two numbers of the pose, {self.out_pose} has one: use coordinates=False."
            )

    def windows(self, size: tuple[int, ...]) -> Windows:
        """One window over everything."""
        return Windows.whole(size)

    def shift(self, size: tuple[int, ...], like: Tensor) -> Tensor | None:
        """The coordinates of every position, at their place in a vote: ``[Q, R, C]``."""
        if not self.coordinates:
            return None
        centres = [(torch.arange(n, dtype=like.dtype, device=like.device) + 0.5) / n for n in (1, *size)[-2:]]
        grid = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)  # [Q, 2]: row, column
        shift = like.new_zeros(len(grid), self.rows, self.weight.shape[-1])
        if isinstance(self.out_pose, int):
            shift[:, 0, -2:] = grid
        else:
            shift[:, :2, -1] = grid
        return shift

    def forward(self, capsules: Capsules) -> Capsules:
        """The classes as a plain set; children that are padding take no part, none of the classes is."""
        output = self.route(capsules, coupling=False)
        pose = output.pose[:, 0]
        if isinstance(self.out_pose, tuple):
            pose = torch.unflatten(pose, -1, self.out_pose)
        return Capsules(pose, output.activation[:, 0])


def _matrix_sizes(in_pose: PoseShape, out_pose: PoseShape) -> tuple[int, int, int]:
    """Rows of a pose, rows and columns of a weight; a vector is a pose with one row."""
    if isinstance(in_pose, int) and isinstance(out_pose, int):
        require_count("in_pose", in_pose)
        require_count("out_pose", out_pose)
        return 1, in_pose, out_pose
    if isinstance(in_pose, tuple) and isinstance(out_pose, tuple) and len(in_pose) == len(out_pose) == 2:
        for name, value in zip(("rows", "columns", "rows", "columns"), (*in_pose, *out_pose), strict=True):
            require_count(f"{name} of a pose", value)
        if in_pose[0] == out_pose[0]:
            return in_pose[0], in_pose[1], out_pose[1]
    raise ValueError(
        f"poses are two vectors (sizes) or two matrices (rows, columns) with as many rows, since V = M W; "
        f"got {in_pose!r} and {out_pose!r}."
    )


def _per_dimension(name: str, value: int | tuple[int, ...], dimensions: int, least: int) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,) * dimensions
    if len(values) != dimensions:
        raise ValueError(f"{name} must be one number or {dimensions}, got {value!r}.")
    for number in values:
        require_count(name, number, least)
    return values
