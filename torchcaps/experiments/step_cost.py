"""What a training step costs: time side by side in one process, memory each in processes of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from torchcaps.experiments.base import Numbers
from torchcaps.experiments.memory import can_measure, measure_peak
from torchcaps.losses import CapsuleLoss
from torchcaps.models import create_model
from torchcaps.models.cnn import parameter_count
from torchcaps.progress import Ticks

BATCH = 128
ROUNDS, PROCESSES = 15, 3
WARMING_UP = 2


class TrainingStep(NamedTuple):
    """A model's name and options, and its loss."""

    model: str
    options: Mapping[str, Any]
    loss: str = "margin"

    def make(self, batch: int = BATCH) -> tuple[Callable[[], None], int]:
        """A training step on random digits, forward, backward and Adam, and how many parameters it moves."""
        torch.manual_seed(0)
        model = create_model(self.model, **self.options)
        images, labels = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))
        loss = CapsuleLoss(self.loss)
        optimizer = torch.optim.Adam(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            loss(model(images, labels), labels, images).total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return step, parameter_count(model)


def measure_steps(
    steps: Mapping[str, TrainingStep], tick: Ticks | None = None, rounds: int = ROUNDS, processes: int = PROCESSES
) -> dict[str, Numbers]:
    """Median time of a step, the models taking turns, median of its peak memory, and the parameters; by name."""
    made = {name: step.make() for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + WARMING_UP):
        for name, (step, _) in made.items():
            start = time.perf_counter()
            step()
            if number >= WARMING_UP:
                seconds[name].append(time.perf_counter() - start)
                _tell(tick)
    costs: dict[str, Numbers] = {}
    for name, (_, parameters) in made.items():
        costs[name] = {
            "step_milliseconds": 1000 * statistics.median(seconds[name]),
            "parameters": parameters,
            "threads": torch.get_num_threads(),
        }
        if can_measure():
            peaks = []
            for _ in range(processes):
                peaks.append(_measure_in_process(steps[name]))
                _tell(tick)
            costs[name]["step_megabytes"] = statistics.median(peaks)
    return costs


def _tell(tick: Ticks | None) -> None:
    if tick is not None:
        tick(1)


def _measure_in_process(step: TrainingStep) -> float:
    arguments = [sys.executable, "-m", "torchcaps.experiments.step_cost", json.dumps(step)]
    return float(subprocess.check_output(arguments, text=True))


def _measure_own_peak(step: TrainingStep) -> float:
    """What the first step takes at its peak beyond what is there before it, in MB."""
    step.make(batch=1)[0]()  # code and threads are there
    first, _ = step.make()
    before, peak = measure_peak(first)
    return (peak - before) / 1e6


if __name__ == "__main__":
    sys.stdout.write(str(_measure_own_peak(TrainingStep(*json.loads(sys.argv[1])))))
