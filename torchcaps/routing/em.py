"""EM routing with its learned costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchcaps.ops import RoutingOutput, Schedule, Windows
from torchcaps.ops.em.grid import route_grid
from torchcaps.ops.em.plan import EMModuleOptions, EMPlan
from torchcaps.ops.em.routing import route_votes
from torchcaps.ops.plan import make_plan, takes_options
from torchcaps.routing.base import Routing
from torchcaps.routing.registry import register_routing

if TYPE_CHECKING:
    from typing_extensions import Unpack


@register_routing("em")
class EMRouting(Routing, plan=EMPlan):
    """Routing by fitting Gaussians (Hinton et al. 2018): :func:`torchcaps.ops.em_routing` with learned β_u and β_a.

    Args:
        iterations: r.
        inverse_temperature: λ; ``authors``, ``authors-class``, ``counting``, a constant, one value per iteration,
            or a function of the iteration. Not given: ``authors``, and ``authors-class`` in a layer of classes.
        options: ``variance_floor``, ``mass`` and ``compete_within``; see :class:`~torchcaps.ops.em.plan.EMPlan`.
    """

    competition = "positions"
    activation_is_length = False
    plan: EMPlan
    iterations: int
    inverse_temperature: Schedule | str
    beta_u: nn.Parameter
    beta_a: nn.Parameter

    @takes_options(EMPlan)
    def __init__(
        self,
        iterations: int = 3,
        *,
        inverse_temperature: Schedule | str | None = None,
        **options: Unpack[EMModuleOptions],
    ) -> None:
        super().__init__()
        self.given_temperature = inverse_temperature is not None
        temperature = "authors" if inverse_temperature is None else inverse_temperature
        self.plan = make_plan(EMPlan, iterations=iterations, inverse_temperature=temperature, **options)
        self.couplings_sum_to_one = self.plan.compete_within is None

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
        return route_votes(votes, activation, self.beta_u, self.beta_a, self.plan, mask=mask, trace=trace)

    @property
    def fused(self) -> bool:
        """Not with ``compete_within``."""
        return self.plan.compete_within is None

    def route_linear(
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        mask: Tensor | None = None,
        coupling: bool = False,
    ) -> RoutingOutput:
        """Fully connected children by :func:`torchcaps.ops.routed_em`."""
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
        output = self.route_windows(poses[..., None, :], weight, activation, windows, mask=mask, coupling=coupling)
        shares = None if output.coupling is None else output.coupling[:, 0].flatten(1, 2)
        return RoutingOutput(output.pose[:, 0], output.activation[:, 0], shares)

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
        return route_grid(
            poses, weight, activation, self.beta_u, self.beta_a, windows, self.plan, shift=shift, mask=mask,
            compete=compete, coupling=coupling, trace=trace,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Show iterations and λ."""
        return f"iterations={self.iterations}, inverse_temperature={self.inverse_temperature!r}"
