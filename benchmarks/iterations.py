"""The shipped models with other numbers of routing iterations than in training, on the official test images.

    python -m benchmarks.iterations --data-dir DIR

DIR holds mnist/ and fashion_mnist/. Writes results/iterations.csv. Nothing is chosen by these numbers.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch

from torchcaps.analysis.iterations import OtherIterations, vary_iterations
from torchcaps.data.dataset import Files
from torchcaps.data.options import DataOptions
from torchcaps.data.registry import keep_own_options, make_image_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.pretrained import list_pretrained, pretrained_card
from torchcaps.progress import bars
from torchcaps.run import load
from torchcaps.version import __version__

RESULTS = Path(__file__).parent.parent / "results" / "iterations.csv"
COUNTS = (1, 2, 3, 5, 10, 20)
AT_A_TIME = 500


def measured(name: str, data_dir: str) -> OtherIterations:
    """Means over all test images of a shipped model's data."""
    model = load(name).model
    options = keep_own_options(DataOptions(name=pretrained_card(name)["data"], options={"base": "mnist"}))
    source = evaluation_source(make_image_dataset(options), files=Files(data_dir))
    tick, parts = bars()(name, len(source)), []
    for indices in torch.arange(len(source)).split(AT_A_TIME):
        batch = source.batch(indices, 0)
        found = vary_iterations(model, batch.inputs, batch.labels)
        assert found is not None
        parts.append((len(indices), found))
        tick(len(indices))
    total = sum(count for count, _ in parts)
    fields = (
        sum(count * getattr(part, field) for count, part in parts) / total for field in OtherIterations._fields[1:]
    )
    return OtherIterations(parts[0][1].trained, *fields)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    data_dir = parser.parse_args().data_dir
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        shown = ["error_percent", "other_answers_percent", "entropy", "polarisation", "present", "absent"]
        writer.writerow(["model", "iterations", "trained", *shown, "version", "command"])
        for name in list_pretrained():
            found = measured(name, data_dir)
            for count in COUNTS:
                accuracy, changed, *rest = (float(values[count - 1]) for values in found[1:])
                numbers = [f"{100 * (1 - accuracy):.2f}", f"{100 * changed:.2f}", *(f"{value:.3f}" for value in rest)]
                command = "python -m benchmarks.iterations --data-dir DIR"
                writer.writerow([name, count, found.trained, *numbers, __version__, command])


if __name__ == "__main__":
    main()
