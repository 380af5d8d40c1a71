"""Which learning rate to begin with: a range test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from torchcaps.checks import require_count
from torchcaps.data.batches import TrainingBatches
from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.files import print_progress
from torchcaps.data.images import Batch
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.registry import make_dataset
from torchcaps.training.errors import RunError
from torchcaps.training.fit import make_module
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipe import Recipe
from torchcaps.training.recording import settle_paths
from torchcaps.training.starting import Start
from torchcaps.training.trainers import choose_accelerator

LEAST, MOST = 1e-6, 1.0
"""Learning rates that are tried."""
STEPS = 120
MEMORY = 0.9
"""Of the running mean of the loss: a single batch's says little."""
WORSE = 4.0
"""Times the least loss, after which nothing more is to be learned."""
LEAST_STEPS = 10
LEAST_DROP, BEGUN = 0.02, 0.05
"""Of the first loss, that it must fall by; and of that fall, by which it has begun."""


class RateTest(NamedTuple):
    """What a range test has found.

    Attributes:
        suggestion: the learning rate in the middle of the fall of the loss.
        rates: that were tried, rising.
        losses: running mean of the loss at each.
    """

    suggestion: float
    rates: tuple[float, ...]
    losses: tuple[float, ...]


def find_lr(
    recipe: Recipe,
    *,
    dataset: Dataset | None = None,
    start: Start | None = None,
    steps: int = STEPS,
    say: Callable[[str], None] | None = None,
) -> RateTest:
    """Train a few steps with a learning rate that rises from 10⁻⁶ to 1, and see where the loss falls.

    Smith 2017, arXiv 1506.01186, §3.3. A new model is made and thrown away, nothing is written, and the same recipe
    gives the same answer. Not Lightning's ``lr_find``: that writes a checkpoint into a run folder, and here is none.

    Args:
        recipe: the experiment; its own learning rate and schedule do not matter.
        dataset: what to train on; not given: what the recipe names.
        start: a trained model to begin with.
        steps: how many rates are tried.
        say: receives lines of text for the user.
    """
    require_count("steps", steps)
    if steps < LEAST_STEPS:
        raise RunError(f"a range test needs at least {LEAST_STEPS} steps, got {steps}.", option="steps")
    recipe = settle_paths(recipe)
    data = make_dataset(recipe.data) if dataset is None else dataset
    files = Files(recipe.data.dir, recipe.data.download, print_progress, say)
    factor = (MOST / LEAST) ** (1 / (steps - 1))
    rates = [LEAST * factor**step for step in range(steps)]
    with torch.random.fork_rng():  # the caller's random numbers shall not feel it
        made = make_module(recipe, data, files, start, say)
        losses = _train_with(made.recipe, made.module, rates)
    return RateTest(suggest_rate(rates, losses), tuple(rates[: len(losses)]), tuple(losses))


def suggest_rate(rates: Sequence[float], losses: Sequence[float]) -> float:
    """The rate in the middle of the fall of the loss, on a logarithmic scale: between where it begins and its end.

    There the loss falls well, and a rate that is a few times larger still does no harm.

    Args:
        rates: rising.
        losses: at each.
    """
    end = min(range(len(losses)), key=losses.__getitem__)
    drop = losses[0] - losses[end]
    if drop < LEAST_DROP * abs(losses[0]):
        raise RunError(
            "the loss falls at no learning rate that was tried, so none can be suggested: look at the data and the "
            "loss, or choose one by hand (optimizer.lr).",
            option="optimizer.lr",
        )
    begin = max(place for place in range(end) if losses[place] > losses[0] - BEGUN * drop)
    return float(f"{math.sqrt(rates[begin] * rates[end]):.1e}")  # two digits: it is not known better


def _train_with(recipe: Recipe, module: CapsuleModule, rates: list[float]) -> list[float]:
    """The running mean of the loss at each learning rate, until it is much worse than it was."""
    device = torch.device("cuda" if choose_accelerator(recipe.training) == "gpu" else "cpu")
    module.to(device).train()
    learned = [parameter for parameter in module.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learned, rates[0], weight_decay=recipe.optimizer.weight_decay)
    mean, losses, seed = 0.0, list[float](), recipe.training.seed
    for step, (rate, batch) in enumerate(zip(rates, _repeat(recipe, module), strict=False)):
        torch.manual_seed(sub_seed(seed, Stream.DROPOUT, step, 0))
        optimizer.param_groups[0]["lr"] = rate
        inputs, labels, targets = (part.to(device) for part in batch)
        loss = module.loss(module.model(inputs, labels), labels, targets).total
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if recipe.optimizer.clip is not None:
            torch.nn.utils.clip_grad_norm_(learned, recipe.optimizer.clip)
        optimizer.step()
        mean = MEMORY * mean + (1 - MEMORY) * float(loss.detach())
        losses.append(mean / (1 - MEMORY ** (step + 1)))  # without the zero that it began with
        if not math.isfinite(mean):
            return losses[:-1]
        if losses[-1] > WORSE * min(losses):
            break
    return losses


def _repeat(recipe: Recipe, module: CapsuleModule) -> Iterator[Batch]:
    """Batches of one epoch after the other, as training sees them."""
    batches = TrainingBatches(module.train_source, recipe.training.batch_size, recipe.training.seed)
    for epoch in range(10**9):
        batches.start(epoch)
        yield from batches
