"""What happens around the steps: schedules, running means, logs, and a stop at the first NaN."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data.images import Batch
from torchcaps.extras import comes_with_an_extra
from torchcaps.io import write_text
from torchcaps.losses import spread_margin_by_epoch, spread_margin_by_step
from torchcaps.routing.em import EMRouting
from torchcaps.training.errors import RunError
from torchcaps.training.measured import log_numbers, log_pictures, name_watched
from torchcaps.training.module import CapsuleModule
from torchcaps.training.runs import CHECKPOINT, METRICS
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks.metrics import find_unanswered

with comes_with_an_extra():
    import pytorch_lightning as pl


class TrainingStopped(Exception):  # noqa: N818 - an end, not an error
    """Training ended early, in good order; the message says why and how to go on."""


def _get_model(module: pl.LightningModule) -> nn.Module:
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
    """Sets λ of every EM routing, one value per epoch; the last one stays. The model is saved with the λ in force."""

    def __init__(self, values: list[float]) -> None:
        self.values = values
        self.value = values[0]

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Refuse a model that has no λ."""
        self.require_routing(module)

    def require_routing(self, module: nn.Module) -> None:
        """Raise unless a model has EM routing."""
        if not any(isinstance(part, EMRouting) for part in module.modules()):
            raise RunError(
                "training.inverse_temperature is the λ of EM routing, which this model does not have.",
                "training.inverse_temperature",
            )

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Set λ; every batch, because a resumed epoch does not start again."""
        self.set_epoch(trainer.current_epoch)
        for part in module.modules():
            if isinstance(part, EMRouting):
                part.inverse_temperature = self.value

    def set_epoch(self, epoch: int) -> None:
        """Take the λ of an epoch."""
        self.value = self.values[min(epoch, len(self.values) - 1)]

    def apply(self, spec: ModelSpec) -> ModelSpec:
        """The model with this λ among its options, so that it is the same when it is built again."""
        routing = spec.options.get("routing", "em")
        mapping = {"name": routing} if isinstance(routing, str) else dict(routing)
        return replace(spec, options=spec.options | {"routing": mapping | {"inverse_temperature": self.value}})


class RunningMean(pl.Callback):
    """Exponential moving average of the weights: used for validation and for the weights that are saved.

    Not Lightning's ``EMAWeightAveraging``: that begins with the weights after the first step, averages counters of
    whole numbers as if they were weights, and exchanges mean and weights in the checkpoint. So its numbers are others,
    and runs that were begun with this one could not be resumed.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.mean: dict[str, Tensor] = {}

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start at the first weights, unless resumed."""
        start = self.mean or _get_model(module).state_dict()
        self.mean = {name: value.detach().clone().to(module.device) for name, value in start.items()}

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """mean ← f·mean + (1 − f)·weights."""
        with torch.no_grad():
            for name, value in _get_model(module).state_dict().items():
                if value.is_floating_point():
                    self.mean[name].lerp_(value, 1 - self.factor)
                else:
                    self.mean[name].copy_(value)

    def swap(self, module: pl.LightningModule) -> None:
        """Exchange the mean and the weights; twice is nothing."""
        with torch.no_grad():
            for name, value in _get_model(module).state_dict().items():
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batch: Batch | None = None

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep the batch, to look for the layer with it."""
        self.batch = batch

    def on_before_backward(self, trainer: pl.Trainer, module: pl.LightningModule, loss: Tensor) -> None:
        """Look at the loss."""
        if not bool(loss.isfinite()):
            where = find_bad_layer(_get_model(module), self.batch) if self.batch is not None else None
            layer = (
                f"the output of {where!r} is the first that is not finite"
                if where
                else "all layers' outputs are finite"
            )
            self.stop(trainer, f"the loss is {float(loss.detach()):.4g} and {layer}")

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: Any) -> None:
        """Look at the gradients. With a gradient scaler infinities are ordinary, and it looks itself."""
        if trainer.precision == "16-mixed":
            return
        named = [(name, p.grad) for name, p in _get_model(module).named_parameters() if p.grad is not None]
        norms = torch.stack(torch._foreach_norm([grad for _, grad in named]))
        if not bool(norms.isfinite().all()):
            bad = [name for (name, _), norm in zip(named, norms, strict=True) if not bool(norm.isfinite())]
            self.stop(
                trainer, f"{len(bad)} of {len(named)} gradients are not finite, that of {bad[-1]!r} before the others"
            )

    def stop(self, trainer: pl.Trainer, what: str) -> None:
        """End training."""
        kept = ""
        if (self.folder / CHECKPOINT).exists():
            kept = f" The last checkpoint is good; {self.folder} can be resumed."
        raise TrainingStopped(
            f"NaN or infinity at step {trainer.global_step}: {what}. Likely a too large learning rate "
            f"(optimizer.lr), or images or vectors that are not finite.{kept}"
        )


def find_bad_layer(model: nn.Module, batch: Batch) -> str | None:
    """The first module, in the order of computation, that gives a NaN or an infinity for a batch."""
    bad: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def look(_: nn.Module, __: Any, output: Any) -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            if any(isinstance(t, Tensor) and not bool(t.isfinite().all()) for t in tensors):
                bad.append(name)

        return look

    hooks = [part.register_forward_hook(watch(name)) for name, part in model.named_modules() if name]
    try:
        with torch.no_grad():
            model(batch.inputs, batch.labels)
    finally:
        for hook in hooks:
            hook.remove()
    return bad[0] if bad else None


class EpochLog(pl.Callback):
    """One row per epoch: metrics.csv, the logger, and ``say``.

    Args:
        folder: where metrics.csv is written.
        say: told a line per epoch.
        watch: by what the best epoch is found, see ``training.watch``.
        time_left: what that line says of the time that training still takes.
    """

    def __init__(
        self,
        folder: Path | None,
        say: Callable[[str], None] | None,
        watch: str = "accuracy",
        time_left: Callable[[pl.Trainer], str] = lambda _: "",
    ) -> None:
        self.folder, self.say, self.watch, self.time_left = folder, say, watch, time_left
        self.rows: list[dict[str, float]] = []
        self.measures: dict[str, Any] = {}  # of the last validation
        self.unanswered: dict[int, dict[str, int]] = {}  # classes, by epoch; see find_unanswered
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
            self.measures = module.measure_validation()
            row |= module.epoch_means("val") | name_watched(self.measures)
            self.unanswered[trainer.current_epoch] = find_unanswered(self.measures)
        row["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        row["seconds"], self.seconds, self.started = round(self.seconds, 3), 0.0, time.perf_counter()
        self.rows.append(row)
        if not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            logger.log_metrics({f"epoch/{key}": value for key, value in row.items()}, trainer.global_step)
            log_numbers(logger, self.measures, trainer.global_step)
        if self.folder is not None:
            text = io.StringIO()
            columns = dict.fromkeys(key for row in reversed(self.rows) for key in row)  # earlier versions had fewer
            writer = csv.DictWriter(text, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            write_text(self.folder / METRICS, text.getvalue())
        if self.say:
            watched = f", validation {row['val_accuracy']:.2%}" if "val_accuracy" in row else ""
            if self.watch == "balanced-accuracy" and "val_balanced_accuracy" in row:
                watched += f" (balanced {row['val_balanced_accuracy']:.2%})"
            self.say(
                f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: loss {row['train_loss']:.4f}, "
                f"accuracy {row['train_accuracy']:.2%}{watched}, {row['seconds']:.1f} s"
                f"{f', {left}' if (left := self.time_left(trainer)) else ''}"
            )

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Show the last validation."""
        if trainer.is_global_zero and self.measures:
            for logger in trainer.loggers:
                log_pictures(logger, self.measures, trainer.global_step)

    def best_epoch(self) -> int:
        """The best epoch by what is watched, of equal ones the last; without validation the last."""
        return max(range(len(self.rows)), key=lambda epoch: (self.score_epoch(epoch), epoch))

    def score_epoch(self, epoch: int) -> float:
        """How good an epoch is by what is watched (``training.watch``), larger is better."""
        value = self.rows[epoch].get(f"val_{self.watch.replace('-', '_')}")
        if value is None:  # no validation, or a row of an earlier version
            return -math.inf
        return -value if self.watch == "loss" else value

    def state_dict(self) -> dict[str, Any]:
        """Part of a checkpoint."""
        return {"rows": self.rows, "seconds": self.seconds + time.perf_counter() - self.started}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.rows, self.seconds = state["rows"], state["seconds"]
