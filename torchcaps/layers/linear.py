"""Fully connected capsules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.types import Device

from torchcaps.capsules import Capsules, require_capsules
from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.ops.coupling import linear_votes
from torchcaps.ops.precision import cast, result_type
from torchcaps.ops.result import RoutingOutput
from torchcaps.ops.windows import Windows
from torchcaps.routing.registry import RoutingLike, resolve_routing


class CapsuleLinear(nn.Module):
    r"""Every child votes for every parent; a routing decides whose votes count.

    ::

        û_ij = u_i W_ij          (shared: û_ij = u_i W_j)
        v = routing(û)

    Sabour et al. 2017, arXiv 1710.09829, eq. 2.

    Args:
        in_capsules: I, number of children. With ``shared=True`` it may be None: any number.
        in_dim: d, size of a child's pose.
        out_capsules: J, number of parents.
        out_dim: D, size of a parent's pose.
        routing: a name, ``{"name": …, **options}`` or a :class:`~torchcaps.routing.Routing`.
        shared: one W_j per parent for all children instead of one W_ij per pair.
        normalize: use W_ij / ‖W_ij‖_F (Wang & Liu 2018). None: if the routing asks for it, as ``optimized`` does.
        device: of the weights, as in torch's own layers.
        dtype: of the weights.

    Shapes:
        pose ``[B, I, d]`` in any arrangement with I capsules (matrix poses are read as vectors), activation and
        mask likewise → pose ``[B, J, D]``, activation ``[B, J]``.
        weight ``[I, J, d, D]``, or ``[J, d, D]`` if shared.
    """

    if TYPE_CHECKING:

        def __call__(self, capsules: Capsules) -> Capsules:
            """See :meth:`forward`."""

    def __init__(
        self,
        in_capsules: int | None,
        in_dim: int,
        out_capsules: int,
        out_dim: int,
        routing: RoutingLike = "dynamic",
        *,
        shared: bool = False,
        normalize: bool | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if in_capsules is not None:
            require_count("in_capsules", in_capsules)
        elif not shared:
            raise InputError("without shared=True every child has its own weights: in_capsules must be given.")
        for name, value in (("in_dim", in_dim), ("out_capsules", out_capsules), ("out_dim", out_dim)):
            require_count(name, value)
        self.in_capsules, self.in_dim, self.out_capsules, self.out_dim = (
            in_capsules,
            in_dim,
            out_capsules,
            out_dim,
        )
        self.shared = shared
        self.routing = resolve_routing(routing)
        self.routing.build(in_capsules, out_capsules, out_dim, device=device, dtype=dtype)
        self.normalize = self.routing.normalized_weights if normalize is None else normalize
        shape: tuple[int, ...] = (out_capsules, in_dim, out_dim)
        shape = shape if in_capsules is None or shared else (in_capsules, *shape)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights with the routing's :meth:`~torchcaps.routing.Routing.initial_std`.

        Shared weights of an open number of children are drawn as if there were 64.
        """
        std = self.routing.initial_std(self.in_capsules or 64, self.out_capsules, self.out_dim)
        nn.init.normal_(self.weight, std=std)

    def effective_weight(self) -> Tensor:
        """The weights as the votes use them: normalised if the layer does so."""
        if not self.normalize:
            return self.weight
        return nn.functional.normalize(self.weight.flatten(-2), dim=-1).view_as(self.weight)

    def windows(self, size: tuple[int, ...]) -> Windows:
        """One window over everything, whatever grid of that size the children are on."""
        return Windows.whole(size)

    def votes(self, capsules: Capsules) -> Tensor:
        """û ``[B, I, J, D]`` from children in any arrangement; zero for masked ones."""
        return self._votes(self._check(capsules))

    def route(self, capsules: Capsules, trace: bool = False, iterations: int | None = None) -> RoutingOutput:
        """The parents together with the coupling and, if asked for, every iteration; or another number of them."""
        children = self._check(capsules)
        routing = self.routing.with_iterations(iterations)
        return routing.route_votes(self._votes(children), children.pose, children.activation, children.mask, trace)

    def forward(self, capsules: Capsules) -> Capsules:
        """The parents; votes are not stored by routings that can do without, dynamic, optimised and EM."""
        children = self._check(capsules)
        pose, activation, mask = children
        if self.routing.fused:
            routed = self.routing.route_linear(pose, self.effective_weight(), activation, mask)
            return Capsules(routed.pose, routed.activation)
        routed = self.routing.route_votes(self._votes(children), pose, activation, mask)
        dtype = result_type(pose, self.weight)
        return Capsules(cast(routed.pose, dtype), cast(routed.activation, dtype))

    def _votes(self, children: Capsules) -> Tensor:
        return linear_votes(children.pose, self.effective_weight())

    def _check(self, capsules: Capsules) -> Capsules:
        """The children as a plain set of the right size, masked poses zero so that not even a NaN gets through."""
        flat = require_capsules("CapsuleLinear", capsules).flatten()
        children, dim = flat.pose.shape[1:]
        if dim != self.in_dim or (self.in_capsules is not None and children != self.in_capsules):
            count = "any number of" if self.in_capsules is None else str(self.in_capsules)
            hint = (
                "" if self.shared or dim != self.in_dim else " With shared=True and in_capsules=None any number fits."
            )
            raise InputError(
                f"CapsuleLinear expects {count} input capsules of size {self.in_dim}, "
                f"got pose of shape {tuple(capsules.pose.shape)}.{hint}"
            )
        if flat.mask is None:
            return flat
        return Capsules(flat.pose.masked_fill(~flat.mask[..., None], 0), flat.activation, flat.mask)

    def extra_repr(self) -> str:
        """Show sizes."""
        return (
            f"{self.in_capsules or 'any'}×{self.in_dim} → {self.out_capsules}×{self.out_dim}, "
            f"shared={self.shared}, normalize={self.normalize}"
        )
