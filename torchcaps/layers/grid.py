"""What capsules on a grid share: windows of children, votes, routing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.types import Device

from torchcaps.capsules import Capsules, require_capsules
from torchcaps.checks import require_choice, require_count
from torchcaps.errors import InputError, InputTypeError
from torchcaps.ops.em import COMPETITIONS
from torchcaps.ops.precision import cast, result_type
from torchcaps.ops.result import RoutingOutput
from torchcaps.ops.windows import Windows, window_votes, windows_present
from torchcaps.routing.registry import RoutingLike, resolve_routing

PoseShape = int | tuple[int, int]
"""The size of a vector pose, or rows and columns of a matrix pose."""


class GridCapsules(nn.Module):
    """Children on a grid vote for parents by windows; what all layers of this kind share.

    Args:
        in_types: T, types of children at every position.
        out_types: J, types of parents.
        in_pose: (rows, columns) of a matrix pose, or the size of a vector pose.
        out_pose: of the parents; None: like ``in_pose``.
        routing: a name, ``{"name": …, **options}`` or a :class:`~torchcaps.routing.Routing`.
        compete: among which parents a child chooses; None: as the routing has it.
        normalize: use W / ‖W‖_F; None: if the routing asks for it.
        places: in a window that have weights of their own.
        children: that a parent sees; None: any number, and then the weights are drawn as if it saw 16 positions.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        weight ``[W, T, J, d, C]``: a matrix per place in the window, type of child and type of parent.
    """

    weight: nn.Parameter

    if TYPE_CHECKING:

        def __call__(self, capsules: Capsules) -> Capsules:
            """See :meth:`forward`."""

    def __init__(
        self,
        in_types: int,
        out_types: int,
        *,
        in_pose: PoseShape,
        out_pose: PoseShape | None = None,
        routing: RoutingLike = "em",
        compete: str | None = None,
        normalize: bool | None = None,
        places: int = 1,
        children: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_count("in_types", in_types)
        require_count("out_types", out_types)
        self.in_types, self.out_types = in_types, out_types
        self.in_pose = in_pose
        self.out_pose = in_pose if out_pose is None else out_pose
        self.rows, inner, columns = _matrix_sizes(self.in_pose, self.out_pose)
        self.window_children = children
        self.routing = resolve_routing(routing)
        self.routing.build(children, out_types, self.rows * columns, device=device, dtype=dtype)
        self.compete = self.routing.competition if compete is None else compete
        require_choice("competition", self.compete, COMPETITIONS)
        self.normalize = self.routing.normalized_weights if normalize is None else normalize
        shape = (places, in_types, out_types, inner, columns)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights with the routing's :meth:`~torchcaps.routing.Routing.initial_std`."""
        parents, _, columns = self.weight.shape[-3:]
        count = 16 * self.in_types if self.window_children is None else self.window_children
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
        raise InputTypeError(f"{type(self).__name__} must implement windows(size).")

    def shift(self, size: tuple[int, ...], like: Tensor) -> Tensor | None:
        """What is added to the votes of each position; nothing here."""
        return None

    def route(
        self, capsules: Capsules, trace: bool = False, coupling: bool = True, iterations: int | None = None
    ) -> RoutingOutput:
        """The parents ``[B, P, J, ·]`` with the coupling ``[B, P, W, T, J]`` and, if asked for, every iteration.

        With ``iterations`` as many of them in place of the routing's own number.
        """
        poses, activation, mask = self.as_routed(capsules)
        size = tuple(capsules.activation.shape[1:-1])
        routing = self.routing.with_iterations(iterations)
        return routing.route_windows(
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
            raise InputError(
                "a mask and the layer's own padding do not go together: whether a window reaches into padding would "
                "depend on the batch. Use padding=0."
            )
        poses = poses.reshape(*poses.shape[:3], self.rows, self.weight.shape[-2])
        return poses, capsules.activation.flatten(1, -2), mask

    def forward(self, capsules: Capsules) -> Capsules:
        """The parents; votes are not stored by EM, dynamic and optimised routing."""
        output = self.route(capsules, coupling=False)
        windows = self.windows(tuple(capsules.activation.shape[1:-1]))
        dtype = result_type(capsules.pose, self.weight)
        pose, activation = cast(output.pose, dtype), cast(output.activation, dtype)
        if isinstance(self.out_pose, tuple):
            pose = torch.unflatten(pose, -1, self.out_pose)
        mask = None
        if capsules.mask is not None:
            present = windows_present(capsules.mask.flatten(1, -2), windows)
            mask = present[..., None].expand(activation.shape)
            mask = torch.unflatten(mask, 1, windows.out())
        pose, activation = (torch.unflatten(part, 1, windows.out()) for part in (pose, activation))
        return Capsules(pose, activation, mask)

    def _check(self, capsules: Capsules) -> None:
        arrangement = capsules.activation.dim()
        pose = self.in_pose if isinstance(self.in_pose, tuple) else (self.in_pose,)
        size = capsules.activation.shape[1:-1]
        dimensions = self.dimensions
        fits = dimensions is None or len(size) == dimensions
        if not fits or capsules.activation.shape[-1] != self.in_types or capsules.pose.shape[arrangement:] != pose:
            grid = {None: "*positions", 1: "length", 2: "height, width"}[dimensions]
            raise InputError(
                f"{type(self).__name__} expects capsules on a grid, pose [batch, {grid}, {self.in_types}, "
                f"{', '.join(map(str, pose))}] for {self.in_types} types; got pose {tuple(capsules.pose.shape)} and "
                f"activation {tuple(capsules.activation.shape)}."
            )
        windows = self.windows(tuple(size))
        if min(windows.out()) < 1:
            raise InputError(
                f"{type(self).__name__} slides a window of {windows.kernel} over {tuple(size)} positions, which is too "
                "small. Use a larger input, a smaller kernel or padding."
            )

    dimensions: int | None = None

    def extra_repr(self) -> str:
        """Show types and poses."""
        poses = [pose if isinstance(pose, int) else "×".join(map(str, pose)) for pose in (self.in_pose, self.out_pose)]
        return f"{self.in_types} types of {poses[0]} → {self.out_types} types of {poses[1]}, compete={self.compete!r}"


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
    raise InputError(
        f"poses are two vectors (sizes) or two matrices (rows, columns) with as many rows, since V = M W; "
        f"got {in_pose!r} and {out_pose!r}."
    )
