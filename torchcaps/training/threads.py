"""How many threads train beside other programs: fewer, where real steps are faster with fewer; else always all."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from torchcaps.extras import comes_with_an_extra
from torchcaps.processors import Load, count_processors, read_load
from torchcaps.training.memory import uses_gpu
from torchcaps.training.recipe import Recipe

with comes_with_an_extra():
    import pytorch_lightning as pl

WINDOW = 4.0
"""Seconds of steps that are judged together."""
WINDOWS = 2
"""That must all be bad before anything is tried: a moment is no reason to give up identical results."""
WAITED = 0.2
"""Part of the time that threads are ready and have no processor, above which other programs are in the way."""
TRIED = 4
"""Steps with each number of threads; the first of them is not counted."""
GAIN = 0.85
"""Fewer threads must take at most this part of the time."""
PATIENCE = 30.0
"""Seconds before all threads, or fewer ones, are tried again; twice as many after every time in vain."""


class ThreadRule:
    """Watches training steps, tries fewer threads when others are in the way, and goes back when they have gone.

    On a machine that nobody else uses the number never changes, and so neither do results, which are the same to the
    bit for the same number of threads only.

    Args:
        most: threads that torch has taken.
        tell: told what was changed and why.
        set_threads: changes their number.
        clock: in seconds.
        load: see :func:`~torchcaps.processors.read_load`.
        processors: that this process may use.
    """

    def __init__(
        self,
        most: int,
        tell: Callable[[str], None] | None = None,
        set_threads: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = time.perf_counter,
        load: Callable[[], Load | None] = read_load,
        processors: int | None = None,
    ) -> None:
        self.most, self.threads = most, most
        self.tell, self.set_threads, self.clock, self.load = tell or (lambda _: None), set_threads, clock, load
        self.processors = processors or count_processors()
        self.changes: list[tuple[int, int]] = []  # step and threads
        self.steps = self.bad = 0
        self.patience, self.not_before = PATIENCE, 0.0
        self.trial: list[int] = []
        self.times: dict[int, list[float]] = {}
        self.last, self.since, self.before = 0.0, None, None
        self._forget()

    since: float | None
    before: Load | None

    def begin(self) -> None:
        """Steps follow: at the start of an epoch, and after whatever else took time."""
        self.last = self.since = self.clock()
        self.before = self.load()

    def pause(self) -> None:
        """Something else follows; a window goes on after it."""
        if self.since is None:
            return
        after = self.load()
        if after is not None and self.before is not None:
            self.seconds += self.clock() - self.since
            self.busy += after.busy - self.before.busy
            self.waited += after.waited - self.before.waited
        self.since = None

    def _forget(self) -> None:
        self.seconds = self.busy = self.waited = 0.0

    def step(self) -> None:
        """A step is done."""
        now = self.clock()
        self.steps += 1
        if self.trial:
            self._try(now - self.last)
        elif self.since is not None and self.seconds + now - self.since >= WINDOW:
            self.pause()
            if self.seconds:
                self._judge(now)
            self._forget()
            self.begin()
        self.last = self.clock()

    def _judge(self, now: float) -> None:
        """At the end of a window: is anybody in the way, or have they gone?"""
        if self.threads < self.most:
            free = self.processors - self.busy / self.seconds
            if now >= self.not_before and free >= self.most - self.threads - 0.25:
                self._set(self.most)
                self.tell(f"The processors are free again: training goes on with {self.most} threads.")
                self.bad = 0
            return
        self.bad = self.bad + 1 if self.waited / self.seconds > WAITED else 0
        if self.bad >= WINDOWS and now >= self.not_before:
            self.bad, self.times = 0, {}
            fewer = (self.most - 1, self.most // 2, self.most // 4)
            self.trial = [self.most, *sorted({max(1, number) for number in fewer}, reverse=True)]
            self.set_threads(self.trial[0])

    def _try(self, seconds: float) -> None:
        """Time a step with the number of threads that is tried, and decide after the last."""
        tried = self.times.setdefault(self.trial[0], [])
        tried.append(seconds)
        if len(tried) < TRIED:
            return
        self.trial = self.trial[1:]
        if self.trial:
            self.set_threads(self.trial[0])
            return
        typical = {threads: statistics.median(times[1:]) for threads, times in self.times.items()}
        best = min(typical, key=lambda threads: typical[threads])
        now = self.clock()
        self.not_before, self.patience = now + self.patience, 2 * self.patience
        if typical[best] <= GAIN * typical[self.most]:
            self._set(best)
            self.tell(
                f"Other programs use this computer's processors: training goes on with {best} of {self.most} threads, "
                f"{typical[best]:.2g} s a step instead of {typical[self.most]:.2g}. Give training.threads to decide "
                "yourself."
            )
        else:
            self.set_threads(self.threads)
        self._forget()
        self.begin()

    def _set(self, threads: int) -> None:
        self.set_threads(threads)
        self.threads = threads
        self.changes.append((self.steps, threads))


def may_choose_threads(recipe: Recipe) -> bool:
    """Whether nobody has said how many threads train, and more than one would."""
    training = recipe.training
    said = training.threads is not None or "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ
    return not (said or training.devices * training.nodes > 1 or uses_gpu(recipe)) and torch.get_num_threads() > 1


class ThreadChoice(pl.Callback):
    """Applies a :class:`ThreadRule` to training steps; all threads are back when training ends.

    Args:
        tell: told what was changed and why.
    """

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self.rule = ThreadRule(torch.get_num_threads(), tell)

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start the clock."""
        self.rule.begin()

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Validation is no training step."""
        self.rule.pause()

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Go on."""
        self.rule.begin()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Logs and checkpoints follow."""
        self.rule.pause()

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Count it."""
        self.rule.step()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The process may go on with other things."""
        torch.set_num_threads(self.rule.most)

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """After an error, too."""
        torch.set_num_threads(self.rule.most)

    def summary(self) -> dict[str, Any]:
        """What was changed, for a run's summary: pairs of step and threads."""
        return {"threads_changed": [list(change) for change in self.rule.changes]} if self.rule.changes else {}
