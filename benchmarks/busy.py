"""What another program on the same machine costs a training, with and without torchcaps' way of waiting.

    python -m benchmarks.busy

Two threads train `quickstart` for a few epochs: alone, and beside a process that keeps one core busy; with libgomp's
own spinning, and with the bound that the `torchcaps` command sets. All four end with the same weights, or nothing is
reported. Medians over epochs and rounds, which take turns; results/busy.csv.
"""

from __future__ import annotations

import csv
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from torchcaps.cli import SPINS
from torchcaps.version import __version__

RESULTS = Path(__file__).parent.parent / "results" / "busy.csv"
LIBGOMP = "300000"  # what it does if it is told nothing
EPOCHS, ROUNDS = 3, 3


def epochs(spins: str) -> tuple[list[float], str]:
    """Seconds of each epoch of a training, and a digest of its weights."""
    words = ["train", "--training.threads", "2", "--epochs", str(EPOCHS)]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "torchcaps", *words, "--output", str(run)]
        environment = {**os.environ, "GOMP_SPINCOUNT": spins}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        with (run / "metrics.csv").open() as file:
            seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
        return seconds, hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest()


def measured() -> dict[tuple[bool, str], float]:
    """Seconds of an epoch by whether the machine is busy, and by how long threads spin."""
    found: dict[tuple[bool, str], list[float]] = {}
    weights = set()
    for _ in range(ROUNDS):
        for busy in (False, True):
            beside = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
            try:
                for spins in (LIBGOMP, SPINS):
                    seconds, digest = epochs(spins)
                    found.setdefault((busy, spins), []).extend(seconds)
                    weights.add(digest)
            finally:
                if beside is not None:
                    beside.kill()
                    beside.wait()
    if len(weights) != 1:
        raise SystemExit("the trainings ended with different weights: nothing is reported.")
    return {key: statistics.median(values) for key, values in found.items()}


def main() -> None:
    """Measure and write the table."""
    found = measured()
    rows = [
        ("slower beside a busy process, as libgomp waits", found[True, LIBGOMP] / found[False, LIBGOMP]),
        ("slower beside a busy process, as `torchcaps` waits", found[True, SPINS] / found[False, SPINS]),
        ("gained beside a busy process", found[True, LIBGOMP] / found[True, SPINS]),
        ("gained on an idle machine", found[False, LIBGOMP] / found[False, SPINS]),
    ]
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "bar", "measured", "unit", "version", "command"])
        for what, ratio in rows:
            writer.writerow([what, "", f"{ratio:.4g}", "×", __version__, "python -m benchmarks.busy"])
            print(f"{what}: {ratio:.2f}×")


if __name__ == "__main__":
    main()
