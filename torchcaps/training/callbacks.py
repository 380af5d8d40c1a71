"""What happens around the steps: checkpoints, schedules, running means, logs, and stopping in good order."""

from __future__ import annotations

import csv
import io
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from torchcaps.losses import spread_margin_by_epoch, spread_margin_by_step
from torchcaps.routing.em import EMRouting
from torchcaps.training.module import CapsuleModule
from torchcaps.training.runs import (
    CHECKPOINT,
    METRICS,
    WEIGHTS,
    ModelSpec,
    RunError,
    save_weights,
    write_atomically,
    write_text,
)


class TrainingStopped(Exception):  # noqa: N818 - an end, not an error
    """Training ended early, in good order; the message says why and how to go on."""


class Interrupted(TrainingStopped):
    """By Ctrl-C or a termination signal."""


def _model(module: pl.LightningModule) -> nn.Module:
    assert isinstance(module, CapsuleModule)
    return module.model


class MarginSchedule(pl.Callback):
    """Raises the margin of the spread loss: by 0.1 per epoch, or step by step as the authors do."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Set m."""
        assert isinstance(module, CapsuleModule)
        by_epoch = self.kind == "by-epoch"
        module.loss.margin = (
            spread_margin_by_epoch(trainer.current_epoch) if by_epoch else spread_margin_by_step(trainer.global_step)
        )


class InverseTemperature(pl.Callback):
    """Sets λ of every EM routing, one value per epoch; the last one stays."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Set λ."""
        value = self.values[min(trainer.current_epoch, len(self.values) - 1)]
        for part in module.modules():
            if isinstance(part, EMRouting):
                part.inverse_temperature = value


class RunningMean(pl.Callback):
    """Exponential moving average of the weights: used for validation and for the weights that are saved."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.mean: dict[str, Tensor] = {}

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start at the first weights, unless resumed."""
        if not self.mean:
            self.mean = {name: value.detach().clone() for name, value in _model(module).state_dict().items()}

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Mean ← f·mean + (1 − f)·weights."""
        with torch.no_grad():
            for name, value in _model(module).state_dict().items():
                if value.is_floating_point():
                    self.mean[name].lerp_(value, 1 - self.factor)
                else:
                    self.mean[name].copy_(value)

    def swap(self, module: pl.LightningModule) -> None:
        """Exchange the mean and the weights; twice is nothing."""
        with torch.no_grad():
            for name, value in _model(module).state_dict().items():
                kept = value.clone()
                value.copy_(self.mean[name])
                self.mean[name].copy_(kept)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Validate the mean."""
        self.swap(module)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Train on."""
        self.swap(module)

    def state_dict(self) -> dict[str, Any]:
        """Part of a checkpoint."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.mean = state["mean"]


class StopOnNonFinite(pl.Callback):
    """Stops before a NaN or an infinity reaches the weights, and says where it was seen first."""

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: Any) -> None:
        """Look at the gradients; a loss that is not finite makes gradients that are not."""
        named = [(name, p.grad) for name, p in _model(module).named_parameters() if p.grad is not None]
        norms = torch.stack(torch._foreach_norm([grad for _, grad in named]))
        if bool(norms.isfinite().all()):
            return
        bad = [name for (name, _), norm in zip(named, norms, strict=True) if not bool(norm.isfinite())]
        loss = trainer.callback_metrics.get("loss")
        value = "unknown" if loss is None else f"{float(loss):.4g}"
        raise TrainingStopped(
            f"NaN or infinity in the gradient of {len(bad)} of {len(named)} parameters at step {trainer.global_step}, "
            f"the last in the network being {bad[-1]!r}; the loss was {value}. "
            "Likely a too large learning rate (--optimizer.lr), or images that are not finite. "
            f"The weights are those before this step; the last checkpoint is good."
        )


class EpochLog(pl.Callback):
    """One row per epoch: metrics.csv, the logger, and ``say`` where there is no progress bar."""

    def __init__(self, folder: Path | None, say: Callable[[str], None] | None) -> None:
        self.folder, self.say = folder, say
        self.rows: list[dict[str, float]] = []
        self.started = time.perf_counter()
        self.seconds = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start the clock."""
        self.started = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Validation is not training time."""
        self.seconds += time.perf_counter() - self.started

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Go on."""
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Write the row."""
        assert isinstance(module, CapsuleModule)
        self.seconds += time.perf_counter() - self.started
        row: dict[str, float] = {"epoch": trainer.current_epoch, "step": trainer.global_step}
        row |= module.epoch_means("train")
        if module.validation_source is not None:
            row |= module.epoch_means("val")
        row["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        row["seconds"], self.seconds, self.started = round(self.seconds, 3), 0.0, time.perf_counter()
        self.rows.append(row)
        if not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            logger.log_metrics({f"epoch/{key}": value for key, value in row.items()}, trainer.global_step)
        if self.folder is not None:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            write_text(self.folder / METRICS, text.getvalue())
        if self.say:
            watched = f", validation {row['val_accuracy']:.2%}" if "val_accuracy" in row else ""
            self.say(
                f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: loss {row['train_loss']:.4f}, "
                f"accuracy {row['train_accuracy']:.2%}{watched}, {row['seconds']:.1f} s"
            )

    def state_dict(self) -> dict[str, Any]:
        """Part of a checkpoint."""
        return {"rows": self.rows, "seconds": self.seconds + time.perf_counter() - self.started}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.rows, self.seconds = state["rows"], state["seconds"]


class Checkpoints(pl.Callback):
    """A resumable checkpoint every few steps and at the end of an epoch, and then the weights too.

    A file is written beside the old one and then takes its place, so there is a whole one at any moment. Ctrl-C and
    SIGTERM are answered after the step in progress.
    """

    def __init__(self, folder: Path, every: int, spec: ModelSpec, mean: RunningMean | None = None) -> None:
        self.folder, self.every, self.spec, self.mean = folder, every, spec, mean
        self.signal: int | None = None

    def listen(self) -> None:
        """Take note of signals instead of dying of the first; a second Ctrl-C ends at once."""

        def note(number: int, _: Any) -> None:
            if self.signal is not None:
                raise KeyboardInterrupt
            self.signal = number

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, note)

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint; every process takes part, one writes."""
        path = self.folder / CHECKPOINT
        try:
            if trainer.is_global_zero:
                write_atomically(path, lambda temporary: trainer.save_checkpoint(temporary))
            else:
                trainer.save_checkpoint(path)
        except OSError as error:
            raise RunError(
                f"the checkpoint {path} cannot be written: {error.strerror or error}. The last one is kept."
            ) from error

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save now and then, and when asked to stop."""
        if batch_idx + 1 < trainer.num_training_batches:  # the end of an epoch is still to come, after its last batch
            self.save_or_stop(trainer, trainer.global_step % self.every == 0)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Save the weights, and a checkpoint."""
        if trainer.is_global_zero:
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
        """The weights, or their running mean."""
        assert isinstance(module, CapsuleModule)
        if self.mean is not None:
            self.mean.swap(module)
        try:
            save_weights(self.folder / WEIGHTS, module.model, self.spec)
        except OSError as error:
            raise RunError(f"the weights in {self.folder} cannot be written: {error.strerror or error}.") from error
        finally:
            if self.mean is not None:
                self.mean.swap(module)
