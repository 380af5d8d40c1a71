"""The rows of results/soak.csv: what was tried how often, and how often it failed."""

from __future__ import annotations

import csv
import shlex
import sys
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "results" / "soak.csv"
COLUMNS = ("what", "cases", "failures", "detail", "command", "seed")


def record(what: str, cases: int, failures: int, detail: str, seed: int) -> None:
    """Put a row in place of the one that the same trial had."""
    module = Path(sys.argv[0]).stem
    command = shlex.join(["python", "-m", f"benchmarks.{module}", *sys.argv[1:]])
    kept = []
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            kept = [row for row in csv.DictReader(file) if row["what"] != what]
    row = {"what": what, "cases": cases, "failures": failures, "detail": detail, "command": command, "seed": seed}
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, row])
