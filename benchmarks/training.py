"""Training by the package's recipes: accuracy on the test images, images per second, peak memory.

    python -m benchmarks.training --data-dir DIR [--only quickstart …]

Every row of results/training.csv is one run of the command that it names, followed by `torchcaps evaluate`. DIR holds
mnist/ and fashion_mnist/. Nothing is chosen by these numbers: recipes were settled on training images before.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from torchcaps.version import __version__

RESULTS = Path(__file__).parent.parent / "results" / "training.csv"
SMALL = ["--model.name", "capsnet-small", "--optimizer.schedule", "one-cycle", "--optimizer.lr", "0.003"]
RUNS = {
    "quickstart": (["quickstart"], (0, 1, 2)),
    "mnist": (["mnist", *SMALL, "--epochs", "5"], (0,)),
    "fashion-mnist": (["fashion-mnist", "--epochs", "5"], (0,)),
    "multi-mnist": (["multi-mnist", "--epochs", "5"], (0,)),
}


def run(arguments: list[str], seed: int, data_dir: str) -> dict[str, object]:
    """Train, evaluate, and return a row."""
    command = ["train", *arguments, "--seed", str(seed)]
    torchcaps = [sys.executable, "-m", "torchcaps"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*torchcaps, *command, "--data-dir", data_dir, "--output", f"{folder}/run"], check=True)
        measured = subprocess.check_output([*torchcaps, "evaluate", f"{folder}/run", "--json"], text=True)
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    test = json.loads(measured)
    return {
        "recipe": arguments[0],
        "model": summary["model"],
        "seed": seed,
        "epochs": summary["epochs"],
        "test_images": test["images"],
        "test_accuracy_percent": f"{100 * test['accuracy']:.2f}",
        "images_per_second": summary["images_per_second"],
        "training_seconds": summary["training_seconds"],
        "peak_memory_gb": summary["peak_memory_gb"],
        "version": __version__,
        "command": f"torchcaps {' '.join(command)} --data-dir DIR",
    }


def main() -> None:
    """Run what was asked for and append it to the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS))
    arguments = parser.parse_args()
    for name in arguments.only:
        command, seeds = RUNS[name]
        for seed in seeds:
            row = run(command, seed, arguments.data_dir)
            print(row, flush=True)
            new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
