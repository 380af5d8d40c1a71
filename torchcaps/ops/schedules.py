"""Numbers that may change from one routing iteration to the next: α, K, λ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchcaps.checks import require_choice, require_count

Schedule = float | Sequence[float] | Callable[[int], float]
"""A constant, one value per iteration, or a function of the iteration t = 0, 1, …"""


def annealed(final: float = 0.01, rate: float = 0.95) -> Callable[[int], float]:
    """λ(t) = final · (1 − rate^(t+1)): the inverse temperature in the code of Hinton et al. 2018."""
    return lambda t: final * (1 - rate ** (t + 1))


def counting(start: float = 1.0, step: float = 1.0) -> Callable[[int], float]:
    """λ(t) = start + step·t: 1 at first, then one more per iteration (J. Hui)."""
    return lambda t: start + step * t


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
    """The schedule's value for each of the iterations; all must be positive."""
    require_count("iterations", iterations)
    if callable(schedule):
        values = [float(schedule(t)) for t in range(iterations)]
    elif isinstance(schedule, Sequence):
        if len(schedule) < iterations:
            raise ValueError(
                f"{name} gives {len(schedule)} values for {iterations} iterations. "
                "Give one value per iteration, a constant, or a function of the iteration."
            )
        values = [float(value) for value in schedule[:iterations]]
    else:
        values = [float(schedule)] * iterations
    for t, value in enumerate(values):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value} in iteration {t + 1}.")
    return values
