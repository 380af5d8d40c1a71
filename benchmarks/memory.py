"""Peak memory of a forward and backward pass above inputs, outputs and gradients, in a process of its own (Linux)."""

from __future__ import annotations

import subprocess
import sys

from torchcaps.experiments.memory import measure_peak


def peak_extra_memory(function: str) -> float:
    """Megabytes that ``benchmarks.routing.<function>`` takes at its peak beyond what it is given and gives back."""
    output = subprocess.check_output([sys.executable, "-m", "benchmarks.memory", function], text=True)
    return float(output)


def main() -> None:
    """Measure the function named on the command line."""
    import torch

    from benchmarks import routing

    torch.set_num_threads(2)
    function = getattr(routing, sys.argv[1])
    routing.forward_backward(function, *routing.inputs(B=16, I=32))  # code and threads are loaded once, by a small case
    poses, weight = routing.inputs()
    results = []
    before, peak = measure_peak(lambda: results.extend(routing.forward_backward(function, poses, weight)))
    given_back = sum(tensor.numel() * tensor.element_size() for tensor in results)
    print(max(0, peak - before - given_back) / 1e6)


if __name__ == "__main__":
    main()
