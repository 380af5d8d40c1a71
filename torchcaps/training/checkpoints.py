"""Checkpoints that a crash cannot spoil, weights after every epoch, and stopping when asked to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import CheckpointIO

from torchcaps.training.callbacks import EpochLog, InverseTemperature, RunningMean, TrainingStopped
from torchcaps.training.module import CapsuleModule
from torchcaps.training.runs import CHECKPOINT, WEIGHTS, RunError, Spec, save_weights, write_atomically


class Interrupted(TrainingStopped):
    """By Ctrl-C or a termination signal."""


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_given_back() -> Iterator[None]:
    """Whatever happens to the handlers of signals inside, they are the same afterwards."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


class WholeFiles(CheckpointIO):
    """Writes a checkpoint beside the old one, which it then replaces; reads tensors and plain values only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """All of it or nothing."""
        write_atomically(Path(path), lambda temporary: torch.save(checkpoint, temporary))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Nothing that could run code."""
        loaded: dict[str, Any] = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        """Delete it."""
        Path(path).unlink(missing_ok=True)


class Checkpoints(pl.Callback):
    """A resumable checkpoint every few steps and at the end of an epoch, and then the weights too.

    Ctrl-C and SIGTERM are answered after the step in progress; a second Ctrl-C ends at once.
    """

    def __init__(
        self,
        folder: Path,
        every: int,
        spec: Spec,
        mean: RunningMean | None = None,
        temperature: InverseTemperature | None = None,
        best_of: EpochLog | None = None,
    ) -> None:
        self.folder, self.every, self.spec, self.mean, self.temperature = folder, every, spec, mean, temperature
        self.best_of = best_of
        self.signal: int | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Take note of signals instead of dying of the first. Here, because Lightning has set its own just before."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._note)

    def _note(self, number: int, _: Any) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint; every process takes part, one writes."""
        path = self.folder / CHECKPOINT
        try:
            trainer.save_checkpoint(path)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            why = getattr(error, "strerror", None) or error
            kept = " The last one is kept." if path.exists() else ""
            raise RunError(f"the checkpoint {path} cannot be written: {why}.{kept}") from error

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save now and then, and when asked to stop."""
        if batch_idx + 1 < trainer.num_training_batches:  # the end of an epoch is still to come, after its last batch
            self.save_or_stop(trainer, trainer.global_step % self.every == 0)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Save the weights, if they are to be kept, and a checkpoint."""
        kept = self.best_of is None or self.best_of.best_epoch() == trainer.current_epoch
        if trainer.is_global_zero and kept:
            self.save_weights(module)
        self.save_or_stop(trainer, due=True)

    def save_or_stop(self, trainer: pl.Trainer, due: bool) -> None:
        """Save if it is due, or if any process was asked to stop: then all stop at the same step."""
        stop = trainer.strategy.reduce_boolean_decision(self.signal is not None, all=False)
        if due or stop:
            self.save(trainer)
        if stop:
            raise Interrupted(
                f"Stopped after step {trainer.global_step}. Continue with: torchcaps train --resume {self.folder}"
            )

    def save_weights(self, module: pl.LightningModule) -> None:
        """The weights, or their running mean, with the λ in force."""
        assert isinstance(module, CapsuleModule)
        spec = self.spec if self.temperature is None else self.temperature.applied(self.spec)
        if self.mean is not None:
            self.mean.swap(module)
        try:
            save_weights(self.folder / WEIGHTS, module.model, spec)
        except OSError as error:
            raise RunError(f"the weights in {self.folder} cannot be written: {error.strerror or error}.") from error
        finally:
            if self.mean is not None:
                self.mean.swap(module)
