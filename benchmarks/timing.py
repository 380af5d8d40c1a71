"""Times of calls that take turns, so that what else the machine does meets all of them alike."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results"


def least_seconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Least seconds of each, over rounds that take turns; a call before them is not counted."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def write_rows(name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table in ``results/``."""
    with (RESULTS / name).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
