"""Run a recipe: data, model, trainer, run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from torchcaps.data.batches import TrainingBatches
from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.files import print_progress
from torchcaps.data.images import Source
from torchcaps.data.record import SplitRecord
from torchcaps.data.registry import make_dataset
from torchcaps.extras import comes_with_an_extra
from torchcaps.models.cnn import parameter_count
from torchcaps.plain import require_modest
from torchcaps.training.balance import describe_balance, describe_unanswered
from torchcaps.training.bars import Bar, ProgressLines, TimeLeft
from torchcaps.training.callbacks import EpochLog, InverseTemperature, MarginSchedule, RunningMean, StopOnNonFinite
from torchcaps.training.checkpoints import Checkpoints, restore_signals
from torchcaps.training.errors import RunError
from torchcaps.training.lock import locked
from torchcaps.training.memory import StepBudget, answer_out_of_memory, limit_weights
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipe import Recipe
from torchcaps.training.recording import record_split, require_data, resume_split, settle_paths
from torchcaps.training.refusals import explain_trainer, find_named, name_key
from torchcaps.training.resuming import NOT_OF_A_TRAINING, end_again, take_up
from torchcaps.training.runs import (
    CHECKPOINT,
    EVALUATION,
    remove_leftovers,
    require_own_files,
    write_recipe,
    write_versions,
)
from torchcaps.training.sizes import is_asked_for, refuse_unasked, settle_size
from torchcaps.training.specs import ModelSpec
from torchcaps.training.starting import Start, keep_split, match_inputs
from torchcaps.training.stopping import EarlyStop
from torchcaps.training.summaries import make_summary, write_summary
from torchcaps.training.tasks import Prepared, task_of
from torchcaps.training.threads import ThreadChoice, may_choose_threads
from torchcaps.training.trainers import (
    fit_batch_size,
    follow_torchrun,
    is_first_process,
    make_trainer,
    silence_lightning,
)

with comes_with_an_extra():
    import pytorch_lightning as pl
    from lightning_fabric.utilities.exceptions import MisconfigurationException
    from tqdm import tqdm

Say = Callable[[str], None]


def train(
    recipe: Recipe,
    folder: Path,
    resume: bool = False,
    say: Say | None = None,
    bar: bool = False,
    callbacks: Sequence[pl.Callback] = (),
    dataset: Dataset | None = None,
    start: Start | None = None,
    record: SplitRecord | None = None,
    changed_data: bool = False,
) -> dict[str, Any]:
    """Train by a recipe into a run folder; returns the summary, which is also written there.

    Args:
        recipe: the experiment.
        folder: of the run; with ``resume`` one that has a checkpoint.
        resume: go on where the checkpoint is.
        say: receives lines of text for the user.
        bar: show a progress bar.
        callbacks: of Lightning, beside the trainer's own.
        dataset: what to train on; not given: what the recipe names.
        start: a trained model to begin with; not given: the weights that the recipe's seed draws.
        record: which items of one's own data are in which split; not given: they are cut, or were when it began.
        changed_data: resume although the data is not what it was, with the items that are still there.
    """
    silence_lightning()
    follow_torchrun(recipe)
    if resume:
        require_data(folder, recipe)
    recipe = settle_paths(recipe)
    data = make_dataset(recipe.data) if dataset is None else dataset
    if start is not None and record is None:
        record = keep_split(start, recipe, data)
    first = is_first_process()
    tell = say if first else None
    new = not resume and start is None
    unasked = new and not is_asked_for(recipe, data)
    if new:
        recipe = settle_size(recipe, data, tell)
    files = Files(recipe.data.dir, recipe.data.download, print_progress, tell, record)
    if not first:
        files = resume_split(folder, recipe, data, files, changed_data) if resume else files
        return _train(recipe, folder, resume, None, bar, callbacks, data, start, files, unasked)
    require_own_files(folder)
    with locked(folder, say):
        files = resume_split(folder, recipe, data, files, changed_data) if resume else files
        return _train(recipe, folder, resume, say, bar, callbacks, data, start, files, unasked)


def _train(
    recipe: Recipe, folder: Path, resume: bool, say: Say | None, bar: bool, callbacks: Sequence[pl.Callback],
    dataset: Dataset, start: Start | None, files: Files, unasked: bool = False,
) -> dict[str, Any]:  # fmt: skip
    first = is_first_process()
    recipe, prepared, budget, module, taken = make_module(recipe, dataset, files, start, say, resume, unasked)
    task, source, validation, _ = prepared
    log, checkpoints, own = _make_callbacks(recipe, folder, budget.spec, say, bar)
    if checkpoints.temperature is not None:
        checkpoints.temperature.require_routing(module)
    threads = [ThreadChoice(tqdm.write if bar and say else say)] if may_choose_threads(recipe) else []
    if resume:
        taken_up = take_up(folder, recipe, module, task, log)
        if taken_up.over:
            return end_again(taken_up, checkpoints, say)
        if first:
            remove_leftovers(folder)
            write_recipe(folder, recipe)  # its data may have moved, and it may have got more epochs
            (folder / EVALUATION).unlink(missing_ok=True)  # it is of weights that are about to change
    elif first:
        before = frozenset() if start is None or start.record is None else start.record.trained
        record = record_split(dataset, source, validation, files, before)
        write_recipe(folder, recipe)
        if record is not None:
            record.write(folder)
        write_versions(folder)
        task.write_files(folder)
    if say:
        _introduce(recipe, budget.spec, module, taken, resume, say)
    started = time.perf_counter()
    try:
        trainer = make_trainer(recipe, folder, [*own, *threads, *callbacks], bar and first, say)
        with restore_signals(), answer_out_of_memory(budget):
            trainer.fit(module, ckpt_path=folder / CHECKPOINT if resume else None, weights_only=True)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        raise RunError(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    except MisconfigurationException as error:
        raise explain_trainer(error, recipe) from error
    except NOT_OF_A_TRAINING as error:
        if resume and not checkpoints.started:  # by what is in the checkpoint beside the weights
            raise RunError(
                f"the checkpoint in {folder} cannot be resumed: it is of another training, or damaged. Train a new run."
            ) from error
        raise
    of_weights = log.best_epoch() if recipe.training.keep == "best" and log.rows else len(log.rows) - 1
    unanswered = describe_unanswered(log.unanswered.get(of_weights, {}), f"validation {source.kind}", recipe)
    if say and unanswered:
        say(unanswered)
    summary = make_summary(recipe, module, log, time.perf_counter() - started)
    summary |= threads[0].summary() if threads else {}
    if trainer.is_global_zero:
        write_summary(folder, summary)
    return summary


def _introduce(
    recipe: Recipe, spec: ModelSpec, module: CapsuleModule, taken: str | None, resume: bool, say: Say
) -> None:
    """Say what is about to be trained, and what may be wrong with it."""
    source, validation = module.train_source, module.validation_source
    kept = f", {len(validation)} to validate" if validation is not None else ""
    say(f"{spec.name}, {parameter_count(module.model):,} parameters; {len(source)} {source.kind} to train on{kept}.")
    for sentence in () if resume else describe_balance(recipe, source, validation):
        say(sentence)
    if taken:
        say(taken)
    if recipe.training.patience is not None and recipe.optimizer.schedule == "one-cycle":
        say(
            "training.patience may end the one-cycle learning rate before it has fallen: optimizer.schedule decay or "
            "constant suits it better."
        )


class Made(NamedTuple):
    """What is there before training.

    Attributes:
        recipe: as it is run.
        prepared: the data.
        budget: what the model is, and what a step of it needs of memory.
        module: with the model.
        taken: what to say of its first weights, if they are another run's.
    """

    recipe: Recipe
    prepared: Prepared
    budget: StepBudget
    module: CapsuleModule
    taken: str | None


def make_module(
    recipe: Recipe, dataset: Dataset, files: Files, start: Start | None = None, say: Say | None = None,
    resume: bool = False, unasked: bool = False,
) -> Made:  # fmt: skip
    """Read the data and make the model; what does not fit together is refused before anything is written.

    Args:
        recipe: the experiment.
        dataset: what to train on.
        files: where it is looked for.
        start: a trained model to begin with.
        say: receives lines of text for the user.
        resume: the recipe is that of a run, which changes no more.
        unasked: nobody chose the size of the images or of the model, so a huge one is refused.
    """
    if recipe.training.threads:
        torch.set_num_threads(recipe.training.threads)
    task_class = task_of(dataset)
    task_class.check_model(recipe.model.name, recipe.data.name)
    prepared = task_class.prepare(recipe, dataset, files)
    if start is not None:
        recipe, prepared = match_inputs(start, recipe, prepared, dataset, files, say)
    if not resume:
        recipe = fit_batch_size(recipe, prepared.train, say)
    _require_validation(recipe, prepared)
    name, task = recipe.model.name, prepared.task
    budget = StepBudget(ModelSpec(name, task, task.model_options(name, recipe.model.options)), recipe, prepared.train)
    with answer_out_of_memory(budget):
        model = _make_first_model(recipe, prepared, budget, unasked)
        taken = None if start is None else start.give(model, budget.spec)
        module = CapsuleModule(model, recipe, prepared.train, prepared.validation)
        _try_one_batch(module, prepared.train)
        if is_first_process():
            budget.check(model, module.loss, say)
    return Made(recipe, prepared, budget, module, taken)


def _require_validation(recipe: Recipe, prepared: Prepared) -> None:
    """Refuse to choose or to stop by what is watched, if nothing is left to watch."""
    training = recipe.training
    asked = "training.keep=best" if training.keep == "best" else "training.patience" if training.patience else None
    if asked is not None and prepared.validation is None:
        raise RunError(
            f"{asked}: none of the {prepared.train.kind} is kept aside. Raise data.validation.", "data.validation"
        )
    processes, validation = training.devices * training.nodes, prepared.validation
    if validation is not None and len(validation) < processes:
        raise RunError(
            f"{processes} processes cannot share {len(validation)} validation {prepared.train.kind}: raise "
            "data.validation, or give 0 to train without.",
            option="data.validation",
        )


def _make_callbacks(
    recipe: Recipe, folder: Path, spec: ModelSpec, say: Say | None, bar: bool
) -> tuple[EpochLog, Checkpoints, list[pl.Callback]]:
    """What keeps the rows, what writes files, and all of them in their order."""
    training = recipe.training
    mean = RunningMean(recipe.optimizer.ema) if recipe.optimizer.ema else None
    temperature = InverseTemperature(training.inverse_temperature) if training.inverse_temperature else None
    tell = tqdm.write if bar and say else say
    left = TimeLeft(may_stop=training.patience is not None)
    log = EpochLog(folder, tell, training.watch, left.describe)
    checkpoints = Checkpoints(
        folder, training.checkpoint_every, spec, mean, temperature, log if training.keep == "best" else None
    )
    callbacks: list[pl.Callback] = [StopOnNonFinite(folder), left]
    if recipe.loss.margin_schedule != "constant":
        callbacks.append(MarginSchedule(recipe.loss.margin_schedule))
    callbacks += [part for part in (temperature, mean) if part is not None]
    callbacks.append(log)
    if training.patience is not None:
        callbacks.append(EarlyStop(log, training, tell))
    callbacks.append(checkpoints)  # after them: what the log and the mean know belongs into the checkpoint
    if bar and is_first_process():
        callbacks.append(Bar(left))
    elif say:
        callbacks.append(ProgressLines(say, left))
    return log, checkpoints, callbacks


def _make_first_model(recipe: Recipe, prepared: Prepared, budget: StepBudget, unasked: bool) -> nn.Module:
    """The model with its first weights."""
    torch.manual_seed(recipe.training.seed)
    try:
        require_modest(recipe.model.options)
        with limit_weights(budget), refuse_unasked(budget) if unasked else nullcontext(lambda _: None) as check:
            model = budget.spec.build()
            check(model)
    except (ValueError, TypeError) as error:  # a model's own words about options that do not fit
        option = getattr(error, "option", None) or find_named(str(error), recipe.model.options)
        raise name_key(error, f"model.options.{option}" if option else "model.options") from error
    prepared.begin(model)
    return model


def _try_one_batch(module: CapsuleModule, source: Source) -> None:
    """Let model, loss and batch size refuse what does not fit together, before anything is written."""
    training = module.recipe.training
    TrainingBatches(source, training.batch_size, 0, world=training.devices * training.nodes)
    batch = source.batch(torch.arange(min(2, len(source))), 0)
    module.eval()
    try:
        with torch.no_grad():
            module.loss(module.model(batch.inputs, batch.labels), batch.labels, batch.targets)
    except (ValueError, TypeError) as error:  # a loss's own words about a model that it does not fit
        raise name_key(error, getattr(error, "option", None) or "loss.kind") from error
    module.train()
