"""Is one model better than another? What a few seeds and a test set of some size allow to say, and no more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

EQUAL = 0.005
"""Points of accuracy, as they are shown: what rounds to 0.00 is no difference."""


class Difference(NamedTuple):
    """Two models beside each other, in points of test accuracy.

    Attributes:
        ahead: the better one.
        behind: the other.
        points: by how much their means over the seeds differ.
        deviations: of each over its seeds; None if there is one seed.
        chance: by how much accuracies of two equally good models differ in one of twenty test sets of this size.
    """

    ahead: str
    behind: str
    points: float
    deviations: tuple[float, float] | None
    chance: float

    @property
    def beyond_seeds(self) -> bool:
        """Whether mean ± deviation of the one and of the other are apart."""
        return self.deviations is not None and self.points >= EQUAL and self.points > sum(self.deviations)

    @property
    def beyond_test_set(self) -> bool:
        """Whether the test set is large enough for it."""
        return self.points > self.chance


def measure_differences(accuracies: Mapping[str, Sequence[float]], items: int) -> list[Difference]:
    """The best model beside each other one.

    Args:
        accuracies: in percent, for each model those of its seeds.
        items: of the test set.
    """
    ranked = sorted(accuracies, key=lambda name: -statistics.mean(accuracies[name]))
    best = ranked[0]
    return [_measure(best, accuracies[best], other, accuracies[other], items) for other in ranked[1:]]


def _measure(best: str, ahead: Sequence[float], other: str, behind: Sequence[float], items: int) -> Difference:
    means = [statistics.mean(values) for values in (ahead, behind)]
    several = len(ahead) > 1 and len(behind) > 1
    deviations = (statistics.stdev(ahead), statistics.stdev(behind)) if several else None
    chance = 1.96 * math.sqrt(sum(_estimate_variance(mean / 100, items) for mean in means))
    return Difference(best, other, means[0] - means[1], deviations, 100 * chance)


def _estimate_variance(share: float, items: int) -> float:
    """Of a share that is measured on so many items; a success and a failure are added, so that none is sure."""
    likely = (share * items + 1) / (items + 2)
    return likely * (1 - likely) / max(items, 1)


def describe_difference(difference: Difference, items: int, kind: str, seeds: int) -> str:
    """A difference in words that claim no more than the numbers.

    Args:
        difference: of two models.
        items: of the test set.
        kind: what they are: images or texts.
        seeds: of each model.
    """
    ahead, behind, points, deviations, chance = difference
    if points < EQUAL:
        return f"{ahead} and {behind} are equally accurate on these {items:,} test {kind}."
    said = f"{ahead} is ahead of {behind} by {points:.2f} points of test accuracy"
    if deviations is None:
        return f"{said} with one seed; whether that is more than chance, only further seeds can say."
    spread = f"the spread of the seeds (± {deviations[0]:.2f} and ± {deviations[1]:.2f})"
    if not difference.beyond_seeds:
        return f"{said}, which is within {spread}: no difference is shown."
    if not difference.beyond_test_set:
        return (
            f"{said}, more than {spread}; but with {items:,} test {kind} up to {chance:.1f} points can be the luck of "
            "which of them are in the test: do not rely on it."
        )
    return f"{said}, more than {spread}. With {seeds} seeds that is a good hint, not a proof."
