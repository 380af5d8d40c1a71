"""The options of dynamic and optimised routing, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from torchcaps.checks import require_choice, require_count
from torchcaps.errors import InputError
from torchcaps.ops.plan import Plan, derived
from torchcaps.ops.schedules import Schedule, resolve_schedule
from torchcaps.ops.squash import SQUASH_KINDS

KINDS = ("dynamic", "optimized")
UPDATES = ("accumulate", "replace")
GRADIENTS = ("all", "last")


@dataclass(frozen=True)
class DynamicPlan(Plan):
    """Options of :func:`~torchcaps.ops.dynamic_routing`, and of :func:`~torchcaps.ops.optimized_routing`.

    A name crosses into the kernel as a number that the library gives it, a number or truth value as it is.

    Args:
        kind: ``dynamic`` or ``optimized``.
        iterations: r.
        squash: a kind of :func:`~torchcaps.ops.squash` (dynamic).
        update: ``accumulate`` the agreements (the paper) or ``replace``: b_ij = ⟨û_ij, v_j⟩ (Su Jianlin) (dynamic).
        gradient: through ``all`` iterations (the authors' code) or only the ``last``, with the agreements that led to
            it held constant (many other implementations; less memory) (dynamic).
        leaky: softmax over {0, b_i1 … b_iJ}, the first dropped: a child may go nowhere (Zhao et al. 2018) (dynamic).
        amend: coefficient amendment, c_ij ← a_i c_ij: a child counts by its activation (Zhao et al. 2018) (dynamic).
        alpha: weight of the entropy: a constant, one value per iteration, or a function of the iteration (optimised).

    Attributes:
        alphas: one α per iteration of optimised routing; none of dynamic routing.
        accumulates: whether V of a pass is that of the one before and what that has added.
    """

    kind: str = "dynamic"
    iterations: int = 3
    squash: str = "sabour"
    update: str = "accumulate"
    gradient: str = "all"
    leaky: bool = False
    amend: bool = False
    alpha: Schedule = 1.0
    alphas: tuple[float, ...] = derived(())
    accumulates: bool = derived(True)

    def __post_init__(self) -> None:
        require_choice("fused routing", self.kind, KINDS)
        require_count("iterations", self.iterations)
        require_choice("squash kind", self.squash, SQUASH_KINDS)
        require_choice("update", self.update, UPDATES)
        require_choice("gradient", self.gradient, GRADIENTS)
        alphas: list[float] = []
        if self.kind == "optimized":
            alphas = resolve_schedule("alpha", self.alpha, self.iterations)
            if self.leaky or self.amend or self.gradient != "all" or self.update != "accumulate":
                raise InputError(
                    "bias, leaky, amend, gradient and update are options of dynamic routing, not of optimized."
                )
        self._derive("alphas", tuple(alphas))
        self._derive("accumulates", self.kind == "dynamic" and self.update == "accumulate")
        super().__post_init__()

    def plain(self) -> dict[str, Any]:
        """With the schedule resolved."""
        return super().plain() | {"alpha": list(self.alphas) or 1.0}


class DynamicOptions(TypedDict, total=False):
    """The options of dynamic routing as keywords, for type checkers: see :class:`DynamicPlan`."""

    squash: str
    update: str
    gradient: str
    leaky: bool
    amend: bool


class RoutedOptions(DynamicOptions, total=False):
    """Those of dynamic and of optimised routing."""

    alpha: Schedule
