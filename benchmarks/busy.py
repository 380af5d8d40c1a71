"""What other programs on the same machine cost a training, and how much of it shorter spinning of threads saves.

    python -m benchmarks.busy

Two threads train `quickstart` for a few epochs: alone, and beside one and two processes that keep a core busy each;
with libgomp's own spinning, and with GOMP_SPINCOUNT=5000. All end with the same weights, or
nothing is reported. Medians over epochs and rounds, which take turns; results/busy.csv.
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

from torchcaps.version import __version__

RESULTS = Path(__file__).parent.parent / "results" / "busy.csv"
LIBGOMP, SHORT = "300000", "5000"  # the first is what it does if it is told nothing
EPOCHS, ROUNDS, PROCESSES = 2, 2, (0, 1, 2)


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


def measured() -> dict[tuple[int, str], float]:
    """Seconds of an epoch by how many processes there are beside it, and by how long threads spin."""
    found: dict[tuple[int, str], list[float]] = {}
    weights = set()
    for _ in range(ROUNDS):
        for busy in PROCESSES:
            beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                for spins in (LIBGOMP, SHORT):
                    seconds, digest = epochs(spins)
                    found.setdefault((busy, spins), []).extend(seconds)
                    weights.add(digest)
            finally:
                for process in beside:
                    process.kill()
                    process.wait()
    if len(weights) != 1:
        raise SystemExit("the trainings ended with different weights: nothing is reported.")
    return {key: statistics.median(values) for key, values in found.items()}


def main() -> None:
    """Measure and write the table."""
    found = measured()
    names = {0: "on an idle machine", 1: "beside one busy process", 2: "beside two busy processes"}
    rows = []
    for busy in PROCESSES[1:]:
        for spins, how in ((LIBGOMP, "spinning as libgomp does"), (SHORT, "`GOMP_SPINCOUNT=5000`")):
            rows.append((f"slower {names[busy]}, {how}", found[busy, spins] / found[0, spins]))
    rows += [
        (f"gained by shorter spinning {names[busy]}", found[busy, LIBGOMP] / found[busy, SHORT]) for busy in PROCESSES
    ]
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "bar", "measured", "unit", "version", "command"])
        for what, ratio in rows:
            writer.writerow([what, "", f"{ratio:.4g}", "×", __version__, "python -m benchmarks.busy"])
            print(f"{what}: {ratio:.2f}×")


if __name__ == "__main__":
    main()
