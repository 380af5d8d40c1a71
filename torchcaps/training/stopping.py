"""Training that ends before its last epoch because nothing becomes better any more."""

from __future__ import annotations

from collections.abc import Callable

from torchcaps.extras import comes_with_an_extra
from torchcaps.training.callbacks import EpochLog
from torchcaps.training.recipe import TrainingOptions

with comes_with_an_extra():
    import pytorch_lightning as pl


def count_since_best(log: EpochLog, min_delta: float = 0.0) -> int:
    """Epochs since what is watched became better than ever before, by more than ``min_delta``."""
    best, since = float("-inf"), 0
    for epoch in range(len(log.rows)):
        if log.score_epoch(epoch) > best + min_delta:
            best, since = log.score_epoch(epoch), 0
        else:
            since += 1
    return since


def is_out_of_patience(log: EpochLog, training: TrainingOptions) -> bool:
    """Whether a training has waited long enough for something better."""
    return training.patience is not None and count_since_best(log, training.min_delta) >= training.patience


class EarlyStop(pl.Callback):
    """Ends training when what is watched has not become better for some epochs.

    Not Lightning's ``EarlyStopping``: that counts in a state of its own, which is lost or counted twice if a run breaks
    off between two callbacks, and a run that it has stopped goes on when it is resumed. Here all follows from the rows
    of the epochs, which a checkpoint has, so that resuming is exact.

    Args:
        log: has the rows.
        training: has the patience.
        say: told why it ends.
    """

    def __init__(self, log: EpochLog, training: TrainingOptions, say: Callable[[str], None] | None = None) -> None:
        self.epochs, self.training, self.say = log, training, say  # Lightning has a method that is called log

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Look; in every process, because all have the same rows."""
        if not is_out_of_patience(self.epochs, self.training) or len(self.epochs.rows) >= self.training.epochs:
            return
        trainer.should_stop = True
        if self.say and trainer.is_global_zero:
            self.say(describe_stop(self.epochs, self.training))


def describe_stop(log: EpochLog, training: TrainingOptions) -> str:
    """Why training ended early, as a sentence."""
    done, since = len(log.rows), count_since_best(log, training.min_delta)
    return (
        f"Stopped early, after epoch {done} of {training.epochs}: validation has not become better since epoch "
        f"{done - since}."
    )
