"""What a training step costs: time side by side in one process, memory each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchcaps.experiments.base import Numbers
from torchcaps.experiments.memory import can_measure, peak_of
from torchcaps.losses import CapsuleLoss
from torchcaps.models import create_model
from torchcaps.models.cnn import parameter_count

BATCH = 128
ROUNDS = 15


def step_of(name: str, options: Mapping[str, Any], batch: int = BATCH) -> tuple[Callable[[], None], int]:
    """A training step on random digits, forward, backward and Adam, and how many parameters it moves."""
    torch.manual_seed(0)
    model = create_model(name, **options)
    images, labels = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))
    loss = CapsuleLoss("cross-entropy" if name.startswith("cnn") else "margin")
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss(model(images, labels), labels, images).total.backward()
        optimizer.step()

    return step, parameter_count(model)


def step_costs(models: Mapping[str, tuple[str, Mapping[str, Any]]], rounds: int = ROUNDS) -> dict[str, Numbers]:
    """Median time of a step, the models taking turns, its peak memory and the parameters; by name."""
    steps = {name: step_of(*model) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds + 2):
        for name, (step, _) in steps.items():
            start = time.perf_counter()
            step()
            if number >= 2:  # the first two are warming up
                seconds[name].append(time.perf_counter() - start)
    found = {}
    for name, (_, parameters) in steps.items():
        found[name] = {"step_milliseconds": 1000 * statistics.median(seconds[name]), "parameters": parameters}
        memory = _in_a_process(*models[name])
        if memory is not None:
            found[name]["step_megabytes"] = memory
    return found


def _in_a_process(name: str, options: Mapping[str, Any]) -> float | None:
    """What the first step takes at its peak beyond what is there before it, in MB; None where it cannot be measured."""
    if not can_measure():
        return None
    arguments = [sys.executable, "-m", "torchcaps.experiments.step_cost", name, json.dumps(options)]
    return float(subprocess.check_output(arguments, text=True))


def _own_peak(name: str, options: Mapping[str, Any]) -> float:
    step_of(name, options, batch=1)[0]()  # code and threads are there
    step, _ = step_of(name, options)
    before, peak = peak_of(step)
    return (peak - before) / 1e6


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_own_peak(sys.argv[1], json.loads(sys.argv[2]))))
