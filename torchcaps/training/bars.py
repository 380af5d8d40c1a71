"""How far training is and how long it still takes: a bar for people, lines for files."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from torchcaps.extras import comes_with_an_extra
from torchcaps.training.module import CapsuleModule

with comes_with_an_extra():
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import TQDMProgressBar
    from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

EVERY = 30.0
"""Seconds between two lines within an epoch."""


def describe_duration(seconds: float) -> str:
    """A time as one says it: 3 s, 35 s, 12 min, 2 h 5 min, 3 days 4 h."""
    if seconds < 9.5:
        return f"{max(1, round(seconds))} s"
    if seconds < 57.5:
        return f"{5 * round(seconds / 5)} s"
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours + minutes // 30, 24)
    return f"{days} days {hours} h" if days > 1 else f"1 day {hours} h"


class TimeLeft(pl.Callback):
    """How long training still takes, at the mean speed since it began or was taken up, with validation and all.

    Args:
        may_stop: it may end before its last epoch, so the time is the longest.
    """

    def __init__(self, may_stop: bool = False) -> None:
        self.may_stop = may_stop
        self.started = time.perf_counter()
        self.first_step = 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Steps of an earlier session took time that nobody knows here."""
        self.started, self.first_step = time.perf_counter(), trainer.global_step

    def measure(self, trainer: pl.Trainer) -> float:
        """Seconds; infinite before the first step."""
        assert trainer.max_epochs is not None
        done = trainer.global_step - self.first_step
        left = trainer.max_epochs * trainer.num_training_batches - trainer.global_step
        return (time.perf_counter() - self.started) / done * left if done else math.inf

    def describe(self, trainer: pl.Trainer) -> str:
        """For a sentence: ``about 12 min left``; empty when nothing is known, or is left."""
        seconds = self.measure(trainer)
        if not 0 < seconds < math.inf:
            return ""
        return f"{'at most' if self.may_stop else 'about'} {describe_duration(seconds)} left"


class Bar(TQDMProgressBar):
    """A bar for the training steps alone, on stderr; epochs are lines above it.

    Args:
        left: the time of the whole training that it shows; tqdm knows of one epoch only.
    """

    BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt}{postfix}"

    def __init__(self, left: TimeLeft) -> None:
        super().__init__(refresh_rate=5, leave=False)
        self.left = left

    def init_train_tqdm(self) -> Tqdm:
        """As Lightning's, which writes to stdout: there are the numbers, and they may go to a file."""
        return Tqdm(
            desc=self.train_description, position=2 * self.process_position, disable=self.is_disabled, leave=True,
            dynamic_ncols=True, file=sys.stderr, smoothing=0, bar_format=self.BAR_FORMAT,
        )  # fmt: skip

    def init_validation_tqdm(self) -> Tqdm:
        """Validation is short."""
        return Tqdm(disable=True, file=sys.stderr)

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Count from one, as the lines do."""
        super().on_train_epoch_start(trainer)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}")

    def get_metrics(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
        """Loss and accuracy of the last batch, and the time that the whole training still takes."""
        found = super().get_metrics(trainer, module)
        shown: dict[str, Any] = {"loss": f"{found['loss']:.4f}"} if "loss" in found else {}
        shown |= {"accuracy": f"{found['accuracy']:.1%}"} if "accuracy" in found else {}
        seconds = self.left.measure(trainer)
        return shown | ({"left": describe_duration(seconds)} if 0 < seconds < math.inf else {})


class ProgressLines(pl.Callback):
    """A line now and then within a long epoch, where there is no bar.

    Args:
        say: receives it.
        left: the time that it tells.
    """

    def __init__(self, say: Callable[[str], None], left: TimeLeft) -> None:
        self.say, self.left = say, left
        self.told = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The line of the epoch before was just told."""
        self.told = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell how far it is; not after the last batch, because the line of the epoch comes next."""
        if time.perf_counter() - self.told < EVERY or batch_idx + 1 >= trainer.num_training_batches:
            return
        assert isinstance(module, CapsuleModule)
        self.told = time.perf_counter()
        part = round(100 * (batch_idx + 1) / trainer.num_training_batches)
        loss = module.mean("train", "loss")  # of this process: compute() would wait for the others
        shown = f"loss {float(loss.mean_value / loss.weight):.4f}"
        left = self.left.describe(trainer)
        self.say(
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}, {part} %: {shown}{f', {left}' if left else ''}"
        )
