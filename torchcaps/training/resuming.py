"""Taking up a run: what its checkpoint must be, when it has ended, and how many epochs it may still train."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps.training.callbacks import EpochLog
from torchcaps.training.checkpoints import Checkpoints, read_checkpoint
from torchcaps.training.errors import RunError
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import CHECKPOINT, WEIGHTS, read_run_recipe, remove_leftovers, write_recipe
from torchcaps.training.stopping import is_out_of_patience
from torchcaps.training.summaries import SUMMARY, make_summary, write_summary
from torchcaps.training.tasks import Task
from torchcaps.training.trainers import is_first_process

NOT_OF_A_TRAINING = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What comes of a checkpoint that holds plain data of another kind."""


class TakenUp:
    """A run that was begun before, as its checkpoint has it.

    Args:
        folder: of the run.
        recipe: by which it shall go on; only the number of epochs, and what does not change its numbers, may differ.
        module: the model of the recipe, with any weights.
        log: gets the rows of the epochs that are done.

    Raises:
        RunError: the checkpoint is damaged, holds code, or is of another model; or the learning rate cannot go on.
    """

    def __init__(self, folder: Path, recipe: Recipe, module: CapsuleModule, log: EpochLog) -> None:
        self.folder, self.recipe, self.module, self.log = folder, recipe, module, log
        path = folder / CHECKPOINT
        self.checkpoint = read_checkpoint(path)
        self._check_shapes(path)
        try:
            self.log.load_state_dict(self.checkpoint["callbacks"]["EpochLog"])
            for row in self.log.rows:
                sum([*row.values(), row["seconds"]])  # which only numbers have
            self.done = len(self.log.rows)
            self.stopped = self.done < recipe.training.epochs and is_out_of_patience(self.log, recipe.training)
        except NOT_OF_A_TRAINING as error:
            raise RunError(f"the checkpoint {path} is not of a training: some of its parts are missing.") from error
        self._check_epochs()

    @property
    def over(self) -> bool:
        """Whether it has nothing left to train."""
        return self.stopped or self.done >= self.recipe.training.epochs

    def _check_shapes(self, path: Path) -> None:
        module = self.module
        expected = {name: value.shape for name, value in module.state_dict().items()}
        other = RunError(f"the checkpoint {path} is of another model than the recipe's {module.recipe.model.name!r}.")
        try:
            if {name: value.shape for name, value in self.checkpoint["state_dict"].items()} != expected:
                raise other
            shapes = [parameter.shape for parameter in module.parameters()]
            for index, state in self.checkpoint["optimizer_states"][0]["state"].items():
                if any(value.shape not in ((), shapes[index]) for value in state.values()):
                    raise other
        except (AttributeError, LookupError, TypeError) as error:
            raise RunError(f"the checkpoint {path} is not of a training: some of its parts are missing.") from error

    def _check_epochs(self) -> None:
        """Refuse another number of epochs where the learning rate was laid out for the first one."""
        planned, wanted = read_run_recipe(self.folder).training.epochs, self.recipe.training.epochs
        if wanted != planned and not self.over and self.recipe.optimizer.schedule == "one-cycle":
            raise RunError(
                f"the one-cycle learning rate of {self.folder} rises and falls once in its {planned} epochs, so it "
                f"cannot be made to last for {wanted}: begin another run with its weights (start_from).",
                option="start_from",
            )

    def describe_end(self) -> str:
        """That nothing is left to do, as a sentence."""
        if self.stopped:
            patience = self.recipe.training.patience
            return (
                f"{self.folder} stopped early, after {self.done} epochs, because validation did not become better for "
                f"{patience}: nothing is left to do. A longer training.patience lets it go on."
            )
        epochs = "one epoch" if self.done == 1 else f"{self.done} epochs"
        return f"{self.folder} has trained its {epochs} already: nothing is left to do."

    def restore_weights(self, checkpoints: Checkpoints) -> bool:
        """Write the weights of a run that is over, from its checkpoint, if they are not there; tells whether it did."""
        if os.path.lexists(self.folder / WEIGHTS):
            return False
        best = self.log.best_epoch()
        if self.recipe.training.keep == "best" and best != self.done - 1:
            raise RunError(
                f"the weights in {self.folder} are gone. They were those of its best epoch, {best + 1}, and the "
                f"checkpoint has only the last one, {self.done}: train it anew."
            )
        try:
            self.module.load_state_dict(self.checkpoint["state_dict"])
            if checkpoints.mean is not None:
                checkpoints.mean.load_state_dict(self.checkpoint["callbacks"]["RunningMean"])
            if checkpoints.temperature is not None:
                checkpoints.temperature.set_epoch(self.done - 1)
            checkpoints.save_weights(self.module)
        except NOT_OF_A_TRAINING as error:
            if isinstance(error, RunError):
                raise
            raise RunError(
                f"the checkpoint in {self.folder} cannot be used: it is of another training, or damaged."
            ) from error
        return True


def take_up(folder: Path, recipe: Recipe, module: CapsuleModule, task: Task, log: EpochLog) -> TakenUp:
    """A run as its checkpoint has it, if it is the same model."""
    if task.read_files(folder) != task:  # another order of token ids would be another model
        raise RunError(
            f"the words in {folder} are not those of the training texts, so the model would be another one: was "
            "their file edited, or has the data changed since? Put it back, or train a new run."
        )
    return TakenUp(folder, recipe, module, log)


def end_again(taken_up: TakenUp, checkpoints: Checkpoints, say: Callable[[str], None] | None) -> dict[str, Any]:
    """Leave a run that is over as it is, with all that belongs to it."""
    folder, planned = taken_up.folder, read_run_recipe(taken_up.folder)
    recipe = replace(taken_up.recipe, training=planned.training)  # its data may have moved
    summary = make_summary(recipe, taken_up.module, taken_up.log, 0.0)
    if is_first_process():
        remove_leftovers(folder)
        restored = taken_up.restore_weights(checkpoints)
        write_recipe(folder, recipe)
        if restored or not (folder / SUMMARY).is_file():
            write_summary(folder, summary)
        if say:
            say(taken_up.describe_end())
            if restored:
                say("Its weights were gone: they are written again, from its checkpoint.")
    return summary
