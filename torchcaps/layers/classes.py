"""Class capsules: parents that see the whole grid."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.types import Device

from torchcaps.capsules import Capsules
from torchcaps.errors import InputError
from torchcaps.layers.grid import GridCapsules, PoseShape
from torchcaps.ops.constants import constant
from torchcaps.ops.precision import cast, compute_type, result_type
from torchcaps.ops.windows import Windows
from torchcaps.routing.registry import RoutingLike, resolve_routing


class ClassCapsules(GridCapsules):
    r"""One parent per class that sees every capsule of a grid of any size, with the same weights at all positions.

    So that position is not lost, the (row, column) of a child, scaled to 0 … 1, is added to two numbers of its votes:
    the first two of the last column of a matrix, the last two of a vector (coordinate addition, Hinton et al. 2018).

    Args:
        in_types: T, types of children at every position.
        classes: number of parents.
        in_pose: (rows, columns) of a matrix pose, or the size of a vector pose.
        out_pose: of the parents. Not given: like ``in_pose``.
        routing: a name, ``{"name": …, **options}`` or a :class:`~torchcaps.routing.Routing`. EM routing without a λ of
            its own takes ``authors-class`` in this layer, a quarter of ``authors``, however it is given.
        coordinates: add them.
        normalize: use W / ‖W‖_F. None: if the routing asks for it.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        routing = resolve_routing(routing).for_classes()
        super().__init__(
            in_types, classes, in_pose=in_pose, out_pose=out_pose, routing=routing, normalize=normalize,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.coordinates = coordinates
        size = self.out_pose if isinstance(self.out_pose, int) else min(self.out_pose[0], 2)
        if coordinates and size < 2:
            raise InputError(
                f"coordinates need two numbers of the pose, {self.out_pose} has one: use coordinates=False."
            )

    def windows(self, size: tuple[int, ...]) -> Windows:
        """One window over everything."""
        return Windows.whole(size)

    def shift(self, size: tuple[int, ...], like: Tensor) -> Tensor | None:
        """The coordinates of every position, at their place in a vote: ``[Q, R, C]``."""
        if not self.coordinates:
            return None
        shape = (self.rows, self.weight.shape[-1])
        return constant(
            _coordinates, (size, shape, isinstance(self.out_pose, int), compute_type(like, self.weight)), like.device
        )

    def forward(self, capsules: Capsules) -> Capsules:
        """The classes as a plain set; children that are padding take no part, none of the classes is."""
        output = self.route(capsules, coupling=False)
        dtype = result_type(capsules.pose, self.weight)
        pose, activation = cast(output.pose[:, 0], dtype), cast(output.activation[:, 0], dtype)
        if isinstance(self.out_pose, tuple):
            pose = torch.unflatten(pose, -1, self.out_pose)
        return Capsules(pose, activation)


def _coordinates(key: tuple[tuple[int, ...], tuple[int, int], bool, torch.dtype], device: torch.device) -> Tensor:
    size, shape, vector, dtype = key
    centres = [(torch.arange(n, dtype=dtype, device=device) + 0.5) / n for n in (1, *size)[-2:]]
    grid = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)  # [Q, 2]: row, column
    shift = grid.new_zeros(grid.shape[0], *shape)
    if vector:
        shift[:, 0, -2:] = grid
    else:
        shift[:, :2, -1] = grid
    return shift
