"""How long the quickstart takes beside a program that keeps one of two processors busy, with all at their defaults.

    python -m benchmarks.shared_computer              some epochs
    python -m benchmarks.shared_computer --epochs 30  all of the quickstart

Three trainings in turn, for some rounds: alone; beside a busy process that was there before, so that threads sleep
while they wait; and beside one that comes when training has begun, so that fewer threads may be tried. All of them and
the busy process have the same two processors. Whole commands, by the clock; medians; results/shared_computer.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.version import __version__

RESULTS = Path(__file__).parent.parent / "results" / "shared_computer.csv"
BAR = 2.5
CASES = {"alone": None, "beside a busy process": 0.0, "beside a busy process that comes later": 8.0}
"""How many seconds after the training a busy process is started."""
BUSY = [sys.executable, "-c", "while True: pass"]


class Training(NamedTuple):
    """How long a training took, and what it said of its threads."""

    seconds: float
    summary: dict[str, Any]


def use_two_processors() -> None:
    """For this process and all that it starts, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def train(epochs: int, delay: float | None) -> Training:
    """Train with all at its defaults, beside a busy process after ``delay`` seconds, or alone."""
    mine = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS")
    environment = {key: value for key, value in os.environ.items() if key not in mine}
    busy = subprocess.Popen(BUSY) if delay == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torchcaps", "train", "--epochs", str(epochs), "--output", f"{folder}/run"]
        if busy is not None:
            time.sleep(1)
        begun = time.perf_counter()
        training = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            if delay:
                time.sleep(delay)
                busy = subprocess.Popen(BUSY)
            if training.wait():
                raise SystemExit("the training failed: nothing is reported.")
            seconds = time.perf_counter() - begun
            return Training(seconds, json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8")))
        finally:
            for process in (training, busy):
                if process is not None:
                    process.kill()
                    process.wait()


def measure(epochs: int, rounds: int) -> dict[str, list[Training]]:
    """All cases, in turn."""
    found: dict[str, list[Training]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case, delay in CASES.items():
            found[case].append(train(epochs, delay))
            last = found[case][-1]
            print(f"{case}: {last.seconds:.1f} s, threads changed: {last.summary.get('threads_changed', 'never')}")
    return found


def make_rows(found: dict[str, list[Training]], command: str) -> list[list[str]]:
    """The table: seconds alone, and how many times slower beside others."""
    alone = statistics.median(training.seconds for training in found["alone"])
    rows = [["seconds alone", "", f"{alone:.4g}", "s", __version__, command]]
    for case in list(CASES)[1:]:
        ratio = statistics.median(training.seconds for training in found[case]) / alone
        rows.append([f"slower {case}", f"at most {BAR}", f"{ratio:.4g}", "×", __version__, command])
    changed = sum("threads_changed" in training.summary for training in found["alone"])
    rows.append(["trainings alone whose threads were changed", "0", str(changed), "", __version__, command])
    return rows


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=8, help="of each training")
    parser.add_argument("--rounds", type=int, default=3, help="in which the cases take turns")
    arguments = parser.parse_args()
    use_two_processors()
    command = f"python -m benchmarks.shared_computer --epochs {arguments.epochs} --rounds {arguments.rounds}"
    rows = make_rows(measure(arguments.epochs, arguments.rounds), command)
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "bar", "measured", "unit", "version", "command"])
        writer.writerows(rows)
    for what, bar, measured, unit, *_ in rows:
        print(f"{what}: {measured} {unit} {f'({bar})' if bar else ''}")


if __name__ == "__main__":
    main()
