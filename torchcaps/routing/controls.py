"""Couplings that do not follow the votes: the controls that critics of routing use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchcaps.checks import require_choice
from torchcaps.errors import InputError, InputTypeError
from torchcaps.ops import SQUASH_KINDS, RoutingOutput, frozen_routing, random_routing, uniform_routing
from torchcaps.ops.transforms import has_no_values
from torchcaps.routing.base import Routing
from torchcaps.routing.registry import RoutingLike, register_routing, resolve_routing


@register_routing("uniform")
class UniformRouting(Routing):
    """No routing at all: every child sends the same share to every parent."""

    def __init__(self, *, squash: str = "sabour") -> None:
        super().__init__()
        require_choice("squash kind", squash, SQUASH_KINDS)
        self.squash = squash

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]``."""
        return uniform_routing(votes, squash=self.squash, mask=mask, trace=trace)


@register_routing("random")
class RandomRouting(Routing):
    """A random coupling, fixed by the seed and the same for every image."""

    permutation_invariant = False

    def __init__(self, *, seed: int = 0, squash: str = "sabour") -> None:
        super().__init__()
        require_choice("squash kind", squash, SQUASH_KINDS)
        if not isinstance(seed, int):
            raise InputTypeError(f"seed must be an integer, got {seed!r}.")
        self.seed, self.squash = seed, squash

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]``."""
        return random_routing(votes, seed=self.seed, squash=self.squash, mask=mask, trace=trace)

    def extra_repr(self) -> str:
        """Show the seed."""
        return f"seed={self.seed}"


@register_routing("frozen")
class FrozenRouting(Routing):
    """The average coupling that another routing found once, kept for every image ever after.

    It is taken from a batch seen in training, or from any votes given to :meth:`freeze` (those of a trained model, to
    ask whether its routing still decides anything), and saved with the weights. Before training the votes are short and
    every routing leaves the coupling uniform, so the very first batch makes this another ``uniform``: let the source
    route for a while, ``after``.

    Args:
        source: the routing whose coupling is kept; a name, a mapping or an instance.
        after: so many training batches are routed by the source itself; the next one's coupling is kept. With 0 the
            coupling is uniform until then.
        squash: a kind of :func:`torchcaps.ops.squash`.
    """

    permutation_invariant = False
    coupling: Tensor
    is_frozen: Tensor
    batches: Tensor

    if TYPE_CHECKING:

        def __call__(
            self,
            votes: Tensor,
            activation: Tensor | None = None,
            mask: Tensor | None = None,
            trace: bool = False,
            poses: Tensor | None = None,
        ) -> RoutingOutput:
            """See :meth:`forward`."""

    def __init__(self, *, source: RoutingLike = "dynamic", after: int = 0, squash: str = "sabour") -> None:
        super().__init__()
        require_choice("squash kind", squash, SQUASH_KINDS)
        if not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise InputError(f"after is a number of training batches, at least 0; got {after!r}.")
        self.after = after
        self.source, self.squash = resolve_routing(source), squash
        self.couplings_sum_to_one, self.needs_poses = self.source.couplings_sum_to_one, self.source.needs_poses
        self._frozen = False  # the same as is_frozen, as a Python value: reading it never waits for a device
        self.register_load_state_dict_post_hook(_remember_frozen)  # type: ignore[no-untyped-call]

    def make_parameters(self, children: int | None, parents: int, size: int) -> None:
        """Make the table ``[I, J]``."""
        if children is None:
            raise InputError(
                "frozen routing keeps one coupling per child, so the number of children must be fixed: "
                "give the layer in_capsules, or use 'uniform' or 'random'."
            )
        self.source.build(children, parents, size)
        self.source.requires_grad_(self.after > 0)  # else its coupling is taken once, without a gradient
        self.register_buffer("coupling", torch.empty(children, parents))
        self.register_buffer("is_frozen", torch.empty((), dtype=torch.bool))
        self.register_buffer("batches", torch.empty((), dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """No coupling is kept and no batch counted: the coupling is uniform."""
        nn.init.constant_(self.coupling, 1 / self.coupling.shape[1])
        self.is_frozen.fill_(False)
        self.batches.fill_(0)
        self._frozen = False

    def freeze(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        poses: Tensor | None = None,
    ) -> None:
        """Keep the source's coupling for these votes ``[B, I, J, D]``, averaged over the images that have the child."""
        self.require_built()
        with torch.no_grad():
            coupling = self._by_source(votes, activation, mask, False, poses).coupling
            assert coupling is not None
            total = coupling.sum(dim=0)  # [I, J]
            seen = votes.new_full((1, 1), votes.shape[0]) if mask is None else mask.sum(dim=0)[:, None]
            even = 1 / votes.shape[2]  # for children that no image has
            self.coupling.copy_(torch.where(seen > 0, total / seen.clamp_min(1), even))
            self.is_frozen.fill_(True)
        self._frozen = True

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        mask: Tensor | None = None,
        trace: bool = False,
        poses: Tensor | None = None,
    ) -> RoutingOutput:
        """Route votes ``[B, I, J, D]``."""
        self.require_built()
        if self.training and not self._frozen and votes.shape[0] > 0 and not has_no_values(votes):
            if int(self.batches) < self.after:
                self.batches += 1
            else:
                self.freeze(votes, activation, mask, poses)
        if self.after > 0 and not self._frozen:
            return self._by_source(votes, activation, mask, trace, poses)
        return frozen_routing(votes, self.coupling, squash=self.squash, mask=mask, trace=trace)

    def _by_source(
        self, votes: Tensor, activation: Tensor | None, mask: Tensor | None, trace: bool, poses: Tensor | None
    ) -> RoutingOutput:
        return self.source.route_votes(votes, votes if poses is None else poses, activation, mask, trace)


def _remember_frozen(module: nn.Module, _: object) -> None:
    if isinstance(module, FrozenRouting) and hasattr(module, "is_frozen") and not module.is_frozen.is_meta:
        module._frozen = bool(module.is_frozen)
