"""Lightning's trainer as a recipe asks for it: which processes, which device, how many bits."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from torchcaps.data.images import Source
from torchcaps.extras import comes_with_an_extra
from torchcaps.training.board import Board
from torchcaps.training.checkpoints import WholeFiles
from torchcaps.training.recipe import PRECISIONS, Recipe, TrainingOptions
from torchcaps.training.runs import TENSORBOARD

with comes_with_an_extra():
    import pytorch_lightning as pl


def is_first_process() -> bool:
    """Whether this process is the one that writes and speaks."""
    return all(int(os.environ.get(name, 0)) == 0 for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"))


def follow_torchrun(recipe: Recipe) -> None:
    """Under torchrun the number of processes is what it has started."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here, all_of_them = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        recipe.training.devices, recipe.training.nodes = here, all_of_them // here


def silence_lightning() -> None:
    """Lightning's advice on loaders and devices does not apply here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")


def choose_accelerator(training: TrainingOptions) -> str:
    """Cpu or gpu: what is asked for, or a GPU where there is one."""
    if training.accelerator == "auto":
        return "gpu" if torch.cuda.is_available() else "cpu"
    return training.accelerator


def choose_precision(training: TrainingOptions, say: Callable[[str], None] | None = None) -> str:
    """What Lightning calls the precision that a recipe asks for, on this machine.

    Args:
        training: has the precision and the accelerator.
        say: told if it is another than was asked for.
    """
    on_gpu = choose_accelerator(training) == "gpu"
    name = PRECISIONS[str(training.precision)]
    if name == "auto":
        return "bf16-mixed" if on_gpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"
    if name == "16-mixed" and not on_gpu:
        if say:
            say("training.precision 16 is of GPUs: bf16 is used on this processor.")
        return "bf16-mixed"  # as Lightning does, with a warning
    return name


def fit_batch_size(recipe: Recipe, source: Source, say: Callable[[str], None] | None = None) -> Recipe:
    """The recipe with a batch that a small set can fill: of one that is larger than the set a quarter is taken.

    So there are four steps in an epoch, from which more is learned than from one. Fewer than two items are no batch for
    a normalisation, and every process must have as many.

    Args:
        recipe: with any batch size.
        source: what to train on.
        say: told of another one.
    """
    training, count = recipe.training, len(source)
    processes = training.devices * training.nodes
    if training.batch_size <= count:
        return recipe
    quarter = max(count // 4, min(2, count), processes)
    size = quarter - quarter % processes
    if size > count:  # fewer items than processes, which is refused where batches are made
        return recipe
    if say:
        say(
            f"A batch of {training.batch_size:,} is larger than the {count:,} {source.kind} to train on: it is made "
            f"{size:,}."
        )
    return replace(recipe, training=replace(training, batch_size=size))


def make_trainer(
    recipe: Recipe,
    folder: Path,
    callbacks: list[pl.Callback],
    bar: bool,
    say: Callable[[str], None] | None = None,
) -> pl.Trainer:
    """A trainer that writes into a run folder.

    Args:
        recipe: says where, how long and with how many bits.
        folder: of the run.
        callbacks: all that it shall have.
        bar: one of them is a progress bar.
        say: receives lines of text for the user.
    """
    training = recipe.training
    several = training.devices * training.nodes > 1
    idle_decoder = recipe.loss.reconstruction_scale == 0  # DDP must be told of parameters without gradients
    return pl.Trainer(
        accelerator=choose_accelerator(training),
        devices=training.devices,
        num_nodes=training.nodes,
        strategy=("ddp_find_unused_parameters_true" if idle_decoder else "ddp") if several else "auto",
        precision=choose_precision(training, say),  # type: ignore[arg-type]
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
