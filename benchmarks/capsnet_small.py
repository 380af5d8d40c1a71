"""How `capsnet-small` was chosen: candidates trained on 5,000 MNIST digits, judged on 10,000 other training digits.

The test set is not read. Every row is one run; `results/capsnet_small.csv` holds them with their command.

    python -m benchmarks.capsnet_small --data DIR [--epochs 15] [--candidates capsnet-small deeper …] [--seeds 0 1 2]

DIR/mnist must hold the official IDX files, train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps import __version__
from torchcaps.losses import CapsuleLoss
from torchcaps.models import CapsNet, parameter_count
from torchcaps.models.capsnet import SMALL_PRIMARY, SMALL_STEM
from torchcaps.models.convolution import Conv

CANDIDATES = {
    "capsnet-small": (SMALL_STEM, SMALL_PRIMARY, 8),
    "smaller kernels": ((Conv(32, 5, 2), Conv(64, 3)), Conv(64, 3, 2), 8),
    "stride later": ((Conv(32, 5), Conv(64, 3, 2)), Conv(64, 3, 2), 8),
    "more types": ((Conv(32, 5, 2), Conv(64, 5)), Conv(128, 3, 2), 8),
    "deeper": ((Conv(32, 5, 2), Conv(64, 3), Conv(64, 3)), Conv(64, 3), 8),
    "16-D parts": ((Conv(32, 5, 2), Conv(64, 3)), Conv(64, 3, 2), 16),
}
COMMAND = "python -m benchmarks.capsnet_small --data DIR"
RESULTS = Path(__file__).parent.parent / "results" / "capsnet_small.csv"


def load(folder: Path) -> tuple[Tensor, Tensor]:
    """The 60,000 training digits and labels."""

    def read(name: str, offset: int) -> np.ndarray:
        with gzip.open(folder / "mnist" / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)

    images = torch.from_numpy(read("train-images-idx3-ubyte.gz", 16).copy()).view(-1, 1, 28, 28)
    return images.float() / 255, torch.from_numpy(read("train-labels-idx1-ubyte.gz", 8).copy()).long()


def split(count: int) -> tuple[Tensor, Tensor]:
    """Indices of 5,000 digits to train on and of 10,000 others to choose by."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    return order[:5000], order[5000:15000]


def shifted(images: Tensor, most: int = 2) -> Tensor:
    """Every image shifted by up to ``most`` pixels, filled with zeros."""
    batch, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (most,) * 4)
    rows = torch.randint(2 * most + 1, (batch, 1)) + torch.arange(height)
    columns = torch.randint(2 * most + 1, (batch, 1)) + torch.arange(width)
    return padded[torch.arange(batch)[:, None, None, None], 0, rows[:, None, :, None], columns[:, None, None, :]]


def run(name: str, seed: int, epochs: int, train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> dict:
    """Train one candidate; returns a row of the table."""
    torch.manual_seed(seed)
    stem, primary, dim = CANDIDATES[name]
    model = CapsNet((1, 28, 28), 10, stem=stem, primary=primary, primary_dim=dim, class_dim=16, decoder=(64, 128))
    (images, labels), loss = train, CapsuleLoss()
    optimizer = torch.optim.Adam(model.parameters())
    batches = -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * batches)
    start = time.perf_counter()
    for _ in range(epochs):
        for index in torch.randperm(len(images)).split(64):
            batch = shifted(images[index])
            optimizer.zero_grad()
            loss(model(batch, labels[index]), labels[index], batch).total.backward()
            optimizer.step()
            schedule.step()
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        right = [
            model(x).scores.argmax(dim=1) == y for x, y in zip(*(part.split(500) for part in held_out), strict=True)
        ]
    return {
        "candidate": name,
        "seed": seed,
        "epochs": epochs,
        "parameters": parameter_count(model),
        "primary_capsules": model.class_capsules.in_capsules,
        "held_out_accuracy_percent": f"{100 * float(torch.cat(right).float().mean()):.2f}",
        "training_seconds": f"{seconds:.0f}",
        "version": __version__,
        "command": f"{COMMAND} --epochs {epochs} --candidates '{name}' --seeds {seed}",
    }


def main() -> None:
    """Run what was asked for and append it to the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    images, labels = load(arguments.data)
    train, held_out = (tuple(part[some] for part in (images, labels)) for some in split(len(images)))
    for name in arguments.candidates:
        for seed in arguments.seeds:
            row = run(name, seed, arguments.epochs, train, held_out)
            print(row, flush=True)
            new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                writer = csv.DictWriter(file, list(row))
                if new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
