"""Numbers that may change from one routing iteration to the next: α, K, λ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torchcaps.checks import require_choice, require_count
from torchcaps.errors import InputError, InputTypeError

Schedule = float | list[float] | tuple[float, ...] | Callable[[int], float]
"""A constant, one value per iteration, or a function of the iteration t = 0, 1, …"""


@dataclass(frozen=True)
class annealed:  # noqa: N801 - reads as the function of t that it is
    """λ(t) = final · (1 − rate^(t+1)): the inverse temperature in the code of Hinton et al. 2018."""

    final: float = 0.01
    rate: float = 0.95

    def __call__(self, t: int) -> float:
        """Value of λ in iteration t = 0, 1, 2 and so on."""
        return float(self.final * (1 - self.rate ** (t + 1)))


@dataclass(frozen=True)
class counting:  # noqa: N801
    """λ(t) = start + step·t: 1 at first, then one more per iteration (J. Hui)."""

    start: float = 1.0
    step: float = 1.0

    def __call__(self, t: int) -> float:
        """Value of λ in iteration t = 0, 1, 2 and so on."""
        return self.start + self.step * t


INVERSE_TEMPERATURES: dict[str, Callable[[int], float]] = {
    "authors": annealed(),
    "authors-class": annealed(final=0.0025),  # a quarter of it in the class layer
    "counting": counting(),
}


def named_schedule(schedule: Schedule | str) -> Schedule:
    """The inverse temperature schedule of that name; anything else is returned as it is."""
    if isinstance(schedule, str):
        require_choice("inverse temperature schedule", schedule, INVERSE_TEMPERATURES)
        return INVERSE_TEMPERATURES[schedule]
    return schedule


def resolve_schedule(name: str, schedule: Schedule, iterations: int) -> list[float]:
    """The schedule's value for each of the iterations; all must be positive and finite.

    A list may be longer than needed, so that fewer iterations can be tried with the same one.
    """
    require_count("iterations", iterations)
    given: list[object]
    if callable(schedule):
        given = [schedule(t) for t in range(iterations)]
    elif isinstance(schedule, (list, tuple)):
        if len(schedule) < iterations:
            raise InputError(
                f"{name} gives {len(schedule)} values for {iterations} iterations. "
                "Give one value per iteration, a constant, or a function of the iteration."
            )
        given = list(schedule[:iterations])
    else:
        given = [schedule] * iterations
    values = []
    for t, value in enumerate(given):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputTypeError(
                f"{name} must be a number, one number per iteration, or a function of the iteration; got {value!r}."
            )
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, got {value} in iteration {t + 1}.")
        values.append(float(value))
    return values
