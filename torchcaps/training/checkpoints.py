"""Checkpoints that a crash cannot spoil, weights after every epoch, and stopping when asked to."""

from __future__ import annotations

import pickletools
import signal
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from torchcaps.errors import FileError
from torchcaps.extras import comes_with_an_extra
from torchcaps.io import require_regular, write_atomically
from torchcaps.training.callbacks import EpochLog, InverseTemperature, RunningMean, TrainingStopped
from torchcaps.training.errors import RunError
from torchcaps.training.module import CapsuleModule
from torchcaps.training.runs import CHECKPOINT, WEIGHTS, save_weights
from torchcaps.training.specs import ModelSpec

with comes_with_an_extra():
    import pytorch_lightning as pl
    from pytorch_lightning.plugins.io import CheckpointIO


class Interrupted(TrainingStopped):
    """By Ctrl-C or a termination signal."""


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def restore_signals() -> Iterator[None]:
    """Put the handlers of signals back when the context ends, whatever was done to them inside."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


MOST_STRUCTURE = 5_000_000
"""Bytes of a checkpoint that are not tensors: names, shapes and a row for every epoch; 10,000 in a short run."""
_NUMBERS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_NAMED = {
    "collections OrderedDict", "torch._utils _rebuild_tensor_v2", *(f"torch {kind}Storage" for kind in _NUMBERS)
}  # fmt: skip


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Tensors and plain values of a checkpoint. One that names anything else, or unpacks to more, is not opened."""
    try:
        require_regular(path)
        _check_archive(path)
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileError as error:
        raise RunError(f"the checkpoint cannot be read: {error}") from None
    except Exception as error:  # torch, pickle and zipfile raise all kinds for a file that is not what it should be
        raise RunError(
            f"the checkpoint {path} cannot be read: it is damaged, cut short, or holds more than plain tensors. "
            "Resume from a copy of it, or train a new run."
        ) from error
    if not isinstance(checkpoint, dict):
        raise RunError(f"the checkpoint {path} is not of a training: it holds a {type(checkpoint).__name__}.")
    return checkpoint


def _check_archive(path: Path) -> None:
    """Torch's own check lets files allocate what they like; ours need very little."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise FileError(f"{path} is packed, as no checkpoint of ours is.")
        if sum(part.file_size for part in parts) > path.stat().st_size:
            raise FileError(f"{path} has parts that lie over each other.")
        structure = next((part for part in parts if part.filename.endswith("/data.pkl")), None)
        if structure is None or structure.file_size > MOST_STRUCTURE:
            raise FileError(f"{path} is not a checkpoint of torch.")
        for code, argument, _ in pickletools.genops(archive.read(structure)):
            if code.name in ("STACK_GLOBAL", "INST") or (code.name == "GLOBAL" and argument not in _NAMED):
                named = argument if isinstance(argument, str) else "something"
                raise FileError(f"{path} names {named[:100]!r}, which is no tensor: it could run code.")


class WholeFiles(CheckpointIO):
    """Writes a checkpoint beside the old one, which it then replaces; reads tensors and plain values only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """All of it or nothing."""
        write_atomically(Path(path), lambda temporary: _save(checkpoint, temporary))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Nothing that could run code."""
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        """Delete it."""
        Path(path).unlink(missing_ok=True)


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:  # opened here, so that a full disk is Python's error and not torch's
        torch.save(checkpoint, file)


class Checkpoints(pl.Callback):
    """A resumable checkpoint every few steps and at the end of an epoch, and then the weights too.

    Ctrl-C and SIGTERM are answered after the step in progress; a second Ctrl-C ends at once.
    """

    def __init__(
        self,
        folder: Path,
        every: int,
        spec: ModelSpec,
        mean: RunningMean | None = None,
        temperature: InverseTemperature | None = None,
        best_of: EpochLog | None = None,
    ) -> None:
        self.folder, self.every, self.spec, self.mean, self.temperature = folder, every, spec, mean, temperature
        self.best_of = best_of
        self.started = False
        self.signal: int | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Take note of signals instead of dying of the first. Here, because Lightning has set its own just before."""
        self.started = True
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
        except (OSError, RuntimeError) as error:  # torch's writer has an error of its own once Python's has come
            own: BaseException | None = error
            while own is not None and not isinstance(own, OSError):
                own = own.__context__
            why = (own.strerror if own else None) or "the disk may be full"
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
            raise Interrupted(f"Stopped after step {trainer.global_step}; {self.folder} can be resumed.")

    def save_weights(self, module: pl.LightningModule) -> None:
        """The weights, or their running mean, with the λ in force."""
        assert isinstance(module, CapsuleModule)
        spec = self.spec if self.temperature is None else self.temperature.apply(self.spec)
        if self.mean is not None:
            self.mean.swap(module)
        try:
            save_weights(self.folder / WEIGHTS, module.model, spec)
        except OSError as error:
            raise RunError(f"the weights in {self.folder} cannot be written: {error.strerror or error}.") from error
        finally:
            if self.mean is not None:
                self.mean.swap(module)
