"""Routings between vector capsules: dynamic, optimised, k-means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchcaps.checks import require_choice
from torchcaps.errors import InputError
from torchcaps.ops import (
    SQUASH_KINDS,
    RoutingOutput,
    Schedule,
    kmeans_routing,
    optimized_routing,
    sample_parents,
)
from torchcaps.ops.dynamic.linear import route_linear
from torchcaps.ops.dynamic.plan import DynamicOptions, DynamicPlan
from torchcaps.ops.dynamic.routing import route_votes
from torchcaps.ops.kmeans.routing import DISTANCES
from torchcaps.ops.plan import make_plan, takes_options
from torchcaps.ops.precision import cast
from torchcaps.ops.schedules import resolve_schedule
from torchcaps.routing.base import Routing
from torchcaps.routing.registry import register_routing

if TYPE_CHECKING:
    from typing_extensions import Unpack


@register_routing("dynamic")
class DynamicRouting(Routing, plan=DynamicPlan):
    """Routing by agreement (Sabour et al. 2017): :func:`torchcaps.ops.dynamic_routing` with what it can learn.

    Args:
        iterations: r.
        bias: learn a bias of the parents, initially 0.1 as in the authors' code. Off in the paper's counts.
        prior: learn the initial logits, per child and parent (per parent if the number of children is open).
        partial_sampling: in training, the fraction of the parents, drawn anew with torch's generator whenever
            the layer routes, that the children may choose from; None for all.
        options: ``squash``, ``update``, ``gradient``, ``leaky`` and ``amend``; see
            :class:`~torchcaps.ops.dynamic.plan.DynamicPlan`.
    """

    plan: DynamicPlan
    iterations: int

    @takes_options(DynamicPlan, "kind", "alpha")
    def __init__(
        self,
        iterations: int = 3,
        *,
        bias: bool = False,
        prior: bool = False,
        partial_sampling: float | None = None,
        **options: Unpack[DynamicOptions],
    ) -> None:
        super().__init__()
        self.plan = make_plan(DynamicPlan, iterations=iterations, **options)
        if partial_sampling is not None and not 0 < partial_sampling <= 1:
            raise InputError(f"partial_sampling must be in (0, 1] or None, got {partial_sampling}.")
        self.partial_sampling = partial_sampling
        if prior and not self.plan.accumulates and self.plan.gradient == "last" and iterations > 1:
            raise InputError(
                "a prior that is replaced after the first iteration learns nothing if the gradient goes through the "
                "last one only: use update='accumulate' or gradient='all'."
            )
        self.with_bias, self.with_prior = bias, prior
        self.permutation_invariant = not prior
        self.couplings_sum_to_one = not (self.plan.leaky or self.plan.amend)
        self.exact_gradient = self.plan.gradient == "all"
        self.bias: nn.Parameter | None = None
        self.prior: nn.Parameter | None = None

    def make_parameters(self, children: int | None, parents: int, size: int) -> None:
        """Make the bias ``[J, D]`` and the prior ``[I, J]`` or ``[J]``, where wanted."""
        self.parents = parents
        if self.with_bias:
            self.bias = nn.Parameter(torch.empty(parents, size))
        if self.with_prior:
            self.prior = nn.Parameter(torch.empty((parents,) if children is None else (children, parents)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The bias starts at 0.1, the prior at zero."""
        if self.bias is not None:
            nn.init.constant_(self.bias, 0.1)
        if self.prior is not None:
            nn.init.zeros_(self.prior)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]``."""
        if self.with_bias or self.with_prior:
            self.require_built()
        parent_mask = self._sample_parents(votes.shape[2], votes.device)
        return route_votes(
            votes,
            self.plan,
            activation=activation,
            mask=mask,
            parent_mask=None if parent_mask is None else parent_mask.expand(votes.shape[0], -1),
            logits=cast(self.prior, votes.dtype),
            bias=cast(self.bias, votes.dtype),
            trace=trace,
        )

    @property
    def fused(self) -> bool:
        """Everything but a prior."""
        return not self.with_prior

    def route_linear(
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        mask: Tensor | None = None,
        coupling: bool = False,
    ) -> RoutingOutput:
        """See :class:`Routing`."""
        kept = None
        if self.training and self.partial_sampling is not None:
            self.require_built()
            sampled = self._sample_parents(self.parents, None)
            kept = None if sampled is None else sampled[0].nonzero()[:, 0]
        return RoutingOutput(
            *route_linear(
                poses, weight, self.plan, activation=activation if self.plan.amend else None, mask=mask,
                bias=self.bias, parents=kept, coupling=coupling,
            )
        )  # fmt: skip

    def _sample_parents(self, parents: int, device: torch.device | None) -> Tensor | None:
        """The parents of this step, bool ``[1, J]``; None for all."""
        if not self.training or self.partial_sampling is None:
            return None
        return sample_parents(1, parents, self.partial_sampling, device=device)

    def extra_repr(self) -> str:
        """Show the number of iterations."""
        return f"iterations={self.iterations}"


@register_routing("optimized")
class OptimizedRouting(Routing, plan=DynamicPlan):
    """Routing with an objective that it provably descends (Wang & Liu 2018).

    :func:`torchcaps.ops.optimized_routing`; layers normalise their weights for it.

    Args:
        iterations: r.
        alpha: weight of the entropy; a constant, one value per iteration, or a function of the iteration.
    """

    normalized_weights = True
    plan: DynamicPlan
    iterations: int
    alpha: Schedule

    def __init__(self, iterations: int = 3, *, alpha: Schedule = 1.0) -> None:
        super().__init__()
        self.plan = make_plan(DynamicPlan, kind="optimized", iterations=iterations, alpha=alpha)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]``."""
        return optimized_routing(votes, self.iterations, alpha=self.alpha, mask=mask, trace=trace)

    fused = True

    def route_linear(
        self,
        poses: Tensor,
        weight: Tensor,
        activation: Tensor,
        mask: Tensor | None = None,
        coupling: bool = False,
    ) -> RoutingOutput:
        """See :class:`Routing`."""
        return RoutingOutput(*route_linear(poses, weight, self.plan, mask=mask, coupling=coupling))

    def extra_repr(self) -> str:
        """Show iterations and α."""
        return f"iterations={self.iterations}, alpha={self.alpha}"


@register_routing("kmeans")
class KMeansRouting(Routing):
    """Soft k-means on the votes: :func:`torchcaps.ops.kmeans_routing`.

    Args:
        iterations: r.
        distance: ``euclid`` (squared) or ``inner``.
        sharpness: K; a constant, one value per iteration, or a function of the iteration.
        squash: a kind of :func:`torchcaps.ops.squash`.
    """

    def __init__(
        self,
        iterations: int = 3,
        *,
        distance: str = "euclid",
        sharpness: Schedule = 1.0,
        squash: str = "sabour",
    ) -> None:
        super().__init__()
        resolve_schedule("sharpness", sharpness, iterations)
        require_choice("distance", distance, DISTANCES)
        require_choice("squash kind", squash, SQUASH_KINDS)
        self.iterations, self.distance, self.sharpness, self.squash = iterations, distance, sharpness, squash

    def initial_std(self, children: int, parents: int, size: int) -> float:
        """2.4/√D for ``euclid``, whose parents are means of votes where other routings have sums."""
        return float(2.4 / size**0.5) if self.distance == "euclid" else super().initial_std(children, parents, size)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]``."""
        return kmeans_routing(
            votes,
            self.iterations,
            distance=self.distance,
            sharpness=self.sharpness,
            squash=self.squash,
            mask=mask,
            trace=trace,
        )

    def extra_repr(self) -> str:
        """Show iterations, distance and K."""
        return f"iterations={self.iterations}, distance={self.distance!r}, sharpness={self.sharpness}"
