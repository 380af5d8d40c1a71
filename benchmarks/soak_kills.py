"""One training, killed at random moments and resumed each time: ``python -m benchmarks.soak_kills --kills 50``.

It must end with the weights, the checkpoint's numbers and the table of epochs of a training that nobody disturbed, bit
for bit. A checkpoint is written after every step, so that many kills fall into its writing; some come before the first
step, some while Python is still starting.
"""

from __future__ import annotations

import argparse
import csv
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.soak_record import record
from torchcaps.training.runs import METRICS, RECIPE, WEIGHTS

TORCHCAPS = [sys.executable, "-W", "ignore", "-m", "torchcaps"]


def make_data(path: Path) -> None:
    """90 images of 12×12 in three classes."""
    labels = np.arange(90) % 3
    images = np.random.default_rng(0).integers(0, 60, (90, 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    np.savez(path, x=images, y=labels)


def epochs(folder: Path) -> list[dict[str, str]]:
    """The table of epochs without what differs from run to run, the time."""
    with (folder / METRICS).open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def main() -> int:
    """Train once undisturbed, once with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--longest", type=float, default=12, help="seconds that a process lives at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="append a row to results/soak.csv")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        make_data(base / "tiny.npz")
        train = [*TORCHCAPS, "train", "--data.name", str(base / "tiny.npz"), "--data.validation", "0.25"]
        train += ["--epochs", str(arguments.epochs), "--training.batch_size", "6", "--training.threads", "1"]
        train += ["--training.checkpoint_every", "1", "--optimizer.ema", "0.9"]
        whole, broken = base / "whole", base / "broken"
        began = time.perf_counter()
        subprocess.run([*train, "--output", str(whole)], check=True, stdout=subprocess.DEVNULL)
        print(f"undisturbed: {time.perf_counter() - began:.0f} s", flush=True)
        kills = 0
        command = [*train, "--output", str(broken)]
        while kills < arguments.kills:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                _, errors = process.communicate(timeout=chance.uniform(0.5, arguments.longest))
                if process.returncode != 0:
                    print(f"after {kills} kills it did not go on: {errors}")
                    return 1
                print(f"it finished after {kills} kills: give more --epochs")
                return 1
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
            begun = (broken / RECIPE).is_file()
            command = [*TORCHCAPS, "train", "--resume", str(broken)] if begun else [*train, "--output", str(broken)]
            done = len(epochs(broken)) if (broken / METRICS).is_file() else 0
            print(f"kill {kills}: {done} epochs", flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        same = (broken / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes() and epochs(broken) == epochs(whole)
        leftovers = sorted(path.name for path in broken.glob(".*"))
    print(f"{kills} kills: {'bit-identical' if same else 'DIFFERENT'}, leftovers: {leftovers or 'none'}")
    if arguments.record:
        detail = f"bit-identical {same}, leftovers {len(leftovers)}"
        record("kills", kills, int(not same or bool(leftovers)), detail, arguments.seed)
    return int(not same or bool(leftovers))


if __name__ == "__main__":
    sys.exit(main())
