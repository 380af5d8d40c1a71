"""EM routing with its learned costs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.ops import RoutingOutput, Schedule, Windows, em_routing, routed_em
from torchcaps.ops.schedules import named_schedule, resolve_schedule
from torchcaps.routing.base import Routing, register_routing


@register_routing("em")
class EMRouting(Routing):
    """Routing by fitting Gaussians (Hinton et al. 2018): :func:`torchcaps.ops.em_routing` with learned β_u and β_a.

    Args:
        iterations: r.
        inverse_temperature: λ; ``authors``, ``authors-class``, ``counting``, a constant, one value per iteration,
            or a function of the iteration. Not given: ``authors``, and ``authors-class`` in a layer of classes.
        variance_floor: least variance.
        mass: what an even share of the children counts as; None for raw sums.
        compete_within: None, or the number of neighbouring parents among which children compete.
    """

    competition = "positions"
    beta_u: nn.Parameter
    beta_a: nn.Parameter

    def __init__(
        self,
        iterations: int = 3,
        *,
        inverse_temperature: Schedule | str | None = None,
        variance_floor: float = 1e-4,
        mass: float | None = 100.0,
        compete_within: int | None = None,
    ) -> None:
        super().__init__()
        self.given_temperature = inverse_temperature is not None
        inverse_temperature = "authors" if inverse_temperature is None else inverse_temperature
        resolve_schedule("inverse_temperature", named_schedule(inverse_temperature), iterations)
        self.iterations, self.inverse_temperature = iterations, inverse_temperature
        self.variance_floor, self.mass, self.compete_within = variance_floor, mass, compete_within
        self.couplings_sum_to_one = compete_within is None

    def make_parameters(self, children: int | None, parents: int, size: int) -> None:
        """Make β_u and β_a ``[J]``, one each per parent."""
        self.beta_u = nn.Parameter(torch.empty(parents))
        self.beta_a = nn.Parameter(torch.empty(parents))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Both start at zero."""
        nn.init.zeros_(self.beta_u)
        nn.init.zeros_(self.beta_a)

    def for_classes(self) -> Routing:
        """With a quarter of the authors' λ, unless a λ was given (their code, Hinton et al. 2018)."""
        if not self.given_temperature:
            self.inverse_temperature = "authors-class"
        return self

    def initial_std(self, children: int, parents: int, size: int) -> float:
        """Two: votes of squashed poses then have σ near one, so that ln σ is near zero and no activation saturates."""
        return 2.0

    def initial_matrix_std(self, children: int, parents: int, rows: int, columns: int) -> float:
        """1/√columns: votes as large as the poses that they come from, which are not squashed."""
        return float(columns**-0.5)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]`` of children with activation ``[B, I]``, which is required."""
        self.require_built()
        return em_routing(
            votes,
            activation,
            self.beta_u,
            self.beta_a,
            self.iterations,
            inverse_temperature=self.inverse_temperature,
            mask=mask,
            variance_floor=self.variance_floor,
            mass=self.mass,
            compete_within=self.compete_within,
            trace=trace,
        )

    def route_linear(
        self, poses: Tensor, weight: Tensor, activation: Tensor, mask: Tensor | None = None
    ) -> RoutingOutput | None:
        """Fully connected children by :func:`torchcaps.ops.routed_em`; not with ``compete_within``."""
        if self.compete_within is not None:
            return None
        if weight.dim() == 4:  # all children as types at one position
            windows, weight = Windows((1,), (1,), (1,), (0,)), weight[None]
            poses, activation, mask = poses[:, None], activation[:, None], None if mask is None else mask[:, None]
        else:  # the same weights at all positions, of one type each
            windows, weight = Windows.whole((poses.shape[1],)), weight[None, None]
            poses, activation, mask = (
                poses[:, :, None],
                activation[..., None],
                None if mask is None else mask[..., None],
            )
        output = self.route_windows(poses[..., None, :], weight, activation, windows, mask=mask)
        return RoutingOutput(output.pose[:, 0], output.activation[:, 0], output.coupling)

    def route_windows(
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        windows: Windows,
        *,
        shift: Tensor | None = None,
        mask: Tensor | None = None,
        compete: str = "positions",
        coupling: bool = False,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route the votes in all windows of a grid by :func:`torchcaps.ops.routed_em`, which stores no votes."""
        self.require_built()
        if self.compete_within is not None:
            raise ValueError("compete_within is for a plain set of parents; on a grid, give the layer compete='types'.")
        return routed_em(
            poses,
            weight,
            activation,
            self.beta_u,
            self.beta_a,
            windows,
            self.iterations,
            shift=shift,
            mask=mask,
            inverse_temperature=self.inverse_temperature,
            variance_floor=self.variance_floor,
            mass=self.mass,
            compete=compete,
            coupling=coupling,
            trace=trace,
        )

    def extra_repr(self) -> str:
        """Show iterations and λ."""
        return f"iterations={self.iterations}, inverse_temperature={self.inverse_temperature!r}"
