"""Run a recipe: data, model, trainer, run folder."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data.batches import TrainingBatches
from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.files import print_progress
from torchcaps.data.record import SplitRecord
from torchcaps.data.registry import make_dataset
from torchcaps.extras import comes_with_an_extra
from torchcaps.io import write_text
from torchcaps.machine import WeightLimit, free_memory
from torchcaps.models.cnn import parameter_count
from torchcaps.plain import require_modest
from torchcaps.training.board import Board
from torchcaps.training.callbacks import EpochLog, InverseTemperature, MarginSchedule, RunningMean, StopOnNonFinite
from torchcaps.training.checkpoints import Checkpoints, WholeFiles, read_checkpoint, restore_signals
from torchcaps.training.errors import RunError
from torchcaps.training.lock import locked
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipe import Recipe
from torchcaps.training.recording import record_split, resume_split, settle_paths
from torchcaps.training.refusals import explain_trainer, find_named, name_key
from torchcaps.training.runs import (
    CHECKPOINT,
    TENSORBOARD,
    remove_leftovers,
    require_own_files,
    write_recipe,
    write_versions,
)
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import Prepared, task_of

with comes_with_an_extra():
    import pytorch_lightning as pl
    from lightning_fabric.utilities.exceptions import MisconfigurationException
    from pytorch_lightning.callbacks import TQDMProgressBar
    from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm
    from tqdm import tqdm

Say = Callable[[str], None]
REPORTED = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")


def is_first_process() -> bool:
    """Whether this process is the one that writes and speaks."""
    return all(int(os.environ.get(name, 0)) == 0 for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def _follow_torchrun(recipe: Recipe) -> None:
    """Under torchrun the number of processes is what it has started."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here, all_of_them = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        recipe.training.devices, recipe.training.nodes = here, all_of_them // here


class Bar(TQDMProgressBar):
    """A bar for the training steps alone, on stderr; epochs are lines above it."""

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


def _quiet() -> None:
    """Lightning's advice on loaders and devices does not apply here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")


def _make_callbacks(recipe: Recipe, checkpoints: Checkpoints, log: EpochLog, bar: bool) -> list[pl.Callback]:
    callbacks: list[pl.Callback] = [StopOnNonFinite(checkpoints.folder)]
    if recipe.loss.margin_schedule != "constant":
        callbacks.append(MarginSchedule(recipe.loss.margin_schedule))
    callbacks += [part for part in (checkpoints.temperature, checkpoints.mean) if part is not None]
    callbacks += [log, checkpoints]  # in this order: what the log and the mean know belongs into the checkpoint
    if bar:
        callbacks.append(Bar(refresh_rate=5, leave=False))
    return callbacks


def train(
    recipe: Recipe,
    folder: Path,
    resume: bool = False,
    say: Say | None = None,
    bar: bool = False,
    callbacks: Sequence[pl.Callback] = (),
    dataset: Dataset | None = None,
    start: Mapping[str, Tensor] | None = None,
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
        start: weights to begin with; not given: those that the recipe's seed draws.
        record: which items of one's own data are in which split; not given: they are cut, or were when it began.
        changed_data: resume although the data is not what it was, with the items that are still there.
    """
    _quiet()
    _follow_torchrun(recipe)
    recipe = settle_paths(recipe)
    data = make_dataset(recipe.data) if dataset is None else dataset
    first = is_first_process()
    tell = say if first else None
    files = Files(recipe.data.dir, recipe.data.download, print_progress, tell, record)
    if not first:
        files = resume_split(folder, recipe, data, files, changed_data) if resume else files
        return _train(recipe, folder, resume, None, bar, callbacks, data, start, files)
    require_own_files(folder)
    with locked(folder, say):
        files = resume_split(folder, recipe, data, files, changed_data) if resume else files
        return _train(recipe, folder, resume, say, bar, callbacks, data, start, files)


def _train(
    recipe: Recipe, folder: Path, resume: bool, say: Say | None, bar: bool, callbacks: Sequence[pl.Callback],
    dataset: Dataset, start: Mapping[str, Tensor] | None, files: Files,
) -> dict[str, Any]:  # fmt: skip
    first = is_first_process()
    if recipe.training.threads:
        torch.set_num_threads(recipe.training.threads)
    task_class = task_of(dataset)
    task_class.check_model(recipe.model.name, recipe.data.name)
    prepared = task_class.prepare(recipe, dataset, files)
    task, source, validation, _ = prepared
    if recipe.training.keep == "best" and validation is None:
        raise RunError(
            f"training.keep=best: none of the {source.kind} is kept aside. Raise data.validation.", "data.validation"
        )
    spec, model = _make_first_model(recipe, prepared)
    if start is not None:
        model.load_state_dict(start)
    module = CapsuleModule(model, recipe, source, validation)
    training = recipe.training
    _try_one_batch(module, TrainingBatches(source, training.batch_size, 0, world=training.devices * training.nodes))
    temperature = InverseTemperature(training.inverse_temperature) if training.inverse_temperature else None
    if temperature is not None:
        temperature.require_routing(module)
    if resume:
        if task.read_files(folder) != task:  # another order of token ids would be another model
            raise RunError(
                f"the words in {folder} are not those of the training texts, so the model would be another one: has "
                "the data changed since? Put it back, or train a new run."
            )
        _check_checkpoint(folder / CHECKPOINT, module)
        if first:
            remove_leftovers(folder)
            write_recipe(folder, recipe)  # its data may have moved
    elif first:
        record = record_split(dataset, source, validation, files)
        write_recipe(folder, recipe)
        if record is not None:
            record.write(folder)
        write_versions(folder)
        task.write_files(folder)
    mean = RunningMean(recipe.optimizer.ema) if recipe.optimizer.ema else None
    log = EpochLog(folder, tqdm.write if bar and say else say)
    best_of = log if training.keep == "best" else None
    checkpoints = Checkpoints(folder, training.checkpoint_every, spec, mean, temperature, best_of)
    all_callbacks = [*_make_callbacks(recipe, checkpoints, log, bar and first), *callbacks]
    try:
        trainer = _make_trainer(recipe, folder, all_callbacks, bar and first)
    except MisconfigurationException as error:
        raise explain_trainer(error, recipe) from error
    if say:
        kept = f", {len(validation)} to validate" if validation is not None else ""
        say(
            f"{spec.name}, {parameter_count(module.model):,} parameters; {len(source)} {source.kind} to train on{kept}."
        )
    path = folder / CHECKPOINT if resume else None
    started = time.perf_counter()
    try:
        with restore_signals():
            trainer.fit(module, ckpt_path=path, weights_only=True)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        raise RunError(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    except MisconfigurationException as error:
        raise explain_trainer(error, recipe) from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if resume and not checkpoints.started:  # by what is in the checkpoint beside the weights
            raise RunError(
                f"the checkpoint in {folder} cannot be resumed: it is of another training, or damaged. Train a new run."
            ) from error
        raise
    return _finish(recipe, folder, module, log, time.perf_counter() - started, trainer.is_global_zero)


def _make_first_model(recipe: Recipe, prepared: Prepared) -> tuple[ModelSpec, nn.Module]:
    """The model with its first weights."""
    name = recipe.model.name
    spec = ModelSpec(name, prepared.task, prepared.task.model_options(name, recipe.model.options))
    torch.manual_seed(recipe.training.seed)
    try:
        require_modest(recipe.model.options)
        with _weight_limit():
            model = spec.build()
    except (ValueError, TypeError) as error:  # a model's own words about options that do not fit
        option = getattr(error, "option", None) or find_named(str(error), recipe.model.options)
        raise name_key(error, f"model.options.{option}" if option else "model.options") from error
    prepared.begin(model)
    return spec, model


def _weight_limit() -> WeightLimit:
    """Refuses a model that cannot be trained in the memory of this machine, before any of it is made."""
    per_weight = 16  # bytes: itself, its gradient and the two means of Adam
    most = (free_memory() or 2**62) // per_weight

    def refuse(needed: int) -> RunError:
        return RunError(
            f"the model would have {needed:,} weights or more, which need {needed * per_weight / 1e9:,.0f} GB to be "
            f"trained; {most * per_weight / 1e9:,.0f} GB are free. Choose smaller images (data.resize, "
            "data.options.image_size) or smaller options of the model."
        )

    return WeightLimit(most, refuse)


def _try_one_batch(module: CapsuleModule, batches: TrainingBatches) -> None:
    """Let model and loss refuse what does not fit together, before anything is written."""
    batch = batches.source.batch(torch.arange(2), 0)
    module.eval()
    try:
        with torch.no_grad():
            module.loss(module.model(batch.inputs, batch.labels), batch.labels, batch.targets)
    except (ValueError, TypeError) as error:  # a loss's own words about a model that it does not fit
        raise name_key(error, getattr(error, "option", None) or "loss.kind") from error
    module.train()


def _check_checkpoint(path: Path, module: CapsuleModule) -> None:
    """Refuse a checkpoint that is damaged, holds code, or is of another model."""
    checkpoint = read_checkpoint(path)
    expected = {name: value.shape for name, value in module.state_dict().items()}
    other = RunError(f"the checkpoint {path} is of another model than the recipe's {module.recipe.model.name!r}.")
    try:
        if {name: value.shape for name, value in checkpoint["state_dict"].items()} != expected:
            raise other
        shapes = [parameter.shape for parameter in module.parameters()]
        for index, state in checkpoint["optimizer_states"][0]["state"].items():
            if any(value.shape not in ((), shapes[index]) for value in state.values()):
                raise other
    except (AttributeError, LookupError, TypeError) as error:
        raise RunError(f"the checkpoint {path} is not of a training: some of its parts are missing.") from error


def _make_trainer(recipe: Recipe, folder: Path, callbacks: list[pl.Callback], bar: bool) -> pl.Trainer:
    training = recipe.training
    several = training.devices * training.nodes > 1
    idle_decoder = recipe.loss.reconstruction_scale == 0  # DDP must be told of parameters without gradients
    accelerator = training.accelerator
    if accelerator == "auto":
        accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    return pl.Trainer(
        accelerator=accelerator,
        devices=training.devices,
        num_nodes=training.nodes,
        strategy=("ddp_find_unused_parameters_true" if idle_decoder else "ddp") if several else "auto",
        precision=training.precision,  # type: ignore[arg-type]
        max_epochs=training.epochs,
        gradient_clip_val=recipe.optimizer.clip,
        callbacks=callbacks,
        plugins=[WholeFiles()],
        logger=Board(folder, name=TENSORBOARD, version=""),
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=bar,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        log_every_n_steps=10,
        default_root_dir=folder,
    )


def measure_peak_memory() -> float | None:
    """The most memory that this process has held; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**30 if sys.platform == "darwin" else 2**20), 3)


def _finish(
    recipe: Recipe, folder: Path, module: CapsuleModule, log: EpochLog, seconds: float, first: bool
) -> dict[str, Any]:
    last = log.rows[-1] if log.rows else {}
    kept = log.rows[log.best_epoch()] if log.rows and recipe.training.keep == "best" else last
    training_seconds = sum(row["seconds"] for row in log.rows)
    seen = len(log.rows) * (len(module.train_source) // recipe.training.batch_size) * recipe.training.batch_size
    summary = {
        "model": recipe.model.name,
        "parameters": parameter_count(module.model),
        "epochs": len(log.rows),
        **({"kept_epoch": log.best_epoch() + 1} if recipe.training.keep == "best" and log.rows else {}),
        "steps": int(last.get("step", 0)),
        **{key: kept[key] for key in REPORTED if key in kept},
        "training_seconds": round(training_seconds, 1),
        f"{module.train_source.kind}_per_second": round(seen / training_seconds, 1) if training_seconds else None,
        "wall_seconds_of_this_session": round(seconds, 1),
        "peak_memory_gb": measure_peak_memory(),
    }
    if first:
        write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary
