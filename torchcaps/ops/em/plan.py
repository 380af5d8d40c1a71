"""The options of EM routing, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.ops.plan import Plan, derived
from torchcaps.ops.schedules import Schedule, named_schedule, resolve_schedule


@dataclass(frozen=True)
class EMPlan(Plan):
    """Options of :func:`~torchcaps.ops.em_routing` and :func:`~torchcaps.ops.routed_em`.

    Args:
        iterations: r; r M-steps and r−1 E-steps.
        inverse_temperature: λ. ``authors``: 0.01·(1−0.95^(t+1)); ``authors-class``: a quarter of that;
            ``counting``: 1, 2, 3 …; or a constant, one value per iteration, a function of the iteration.
        variance_floor: least σ²; 0 for none.
        mass: what an even share of the children counts as; None for raw sums. 100 is Gritzman's choice for that λ.
        compete_within: None, or the number of neighbouring parents among which children compete (not on a grid).

    Attributes:
        lambdas: λ of every iteration.
    """

    iterations: int = 3
    inverse_temperature: Schedule | str = "authors"
    variance_floor: float = 1e-4
    mass: float | None = 100.0
    compete_within: int | None = None
    lambdas: tuple[float, ...] = derived(())

    def __post_init__(self) -> None:
        lambdas = resolve_schedule("inverse_temperature", named_schedule(self.inverse_temperature), self.iterations)
        self._derive("lambdas", tuple(lambdas))
        if not self.variance_floor >= 0:
            raise InputError(f"variance_floor must not be negative, got {self.variance_floor}.")
        if self.mass is not None and not self.mass > 0:
            raise InputError(f"mass must be positive, or None for raw sums, got {self.mass}.")
        if self.compete_within is not None:
            require_count("compete_within", self.compete_within)
        super().__post_init__()

    def plain(self) -> dict[str, Any]:
        """With the schedule resolved."""
        return super().plain() | {"inverse_temperature": list(self.lambdas)}


class EMModuleOptions(TypedDict, total=False):
    """The options of EM routing as keywords, for type checkers, but for λ: see :class:`EMPlan`."""

    variance_floor: float
    mass: float | None
    compete_within: int | None


class EMOptions(EMModuleOptions, total=False):
    """All of them."""

    inverse_temperature: Schedule | str
