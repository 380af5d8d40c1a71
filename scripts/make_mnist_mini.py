"""Makes torchcaps/data/mnist_mini.npz from the official MNIST files.

    python scripts/make_mnist_mini.py DIR

DIR/mnist holds the four official .gz files; their md5 are checked. 5,000 training digits come from the training file
and 1,000 test digits from the test file, each class in proportion, chosen by seed 2017.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.datasets.mnist import MNIST
from torchcaps.data.images import ImageSet

SIZES = {"train": 5000, "test": 1000}
SEED = 2017
TARGET = Path(__file__).parent.parent / "torchcaps" / "data" / "mnist_mini.npz"


def stratified(data: ImageSet, count: int) -> ImageSet:
    """``count`` images, each class in proportion (largest remainders), in random order."""
    generator = torch.Generator().manual_seed(SEED)
    share = data.labels.bincount().double() * count / len(data)
    wanted = share.floor().long()
    wanted[(share - wanted).argsort(descending=True, stable=True)[: count - int(wanted.sum())]] += 1
    order = torch.randperm(len(data), generator=generator)
    chosen = torch.cat([order[data.labels[order] == label][:number] for label, number in enumerate(wanted.tolist())])
    return data[chosen[torch.randperm(count, generator=generator)]]


def main() -> None:
    """Choose, write, say how large it is."""
    arrays = {}
    for split, count in SIZES.items():
        some = stratified(MNIST().load(split, Files(sys.argv[1])), count)
        arrays[f"{split}_images"] = some.images[:, 0].numpy()
        arrays[f"{split}_labels"] = some.labels.to(torch.uint8).numpy()
    np.savez_compressed(TARGET, **arrays)
    print(f"{TARGET.name}: {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
