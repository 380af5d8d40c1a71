"""A recipe: the complete description of an experiment, as plain data that checks itself. No torch here."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Optional, Union

from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.errors import TorchcapsError
from torchcaps.plain import shorten

PRECISIONS = {"auto": "auto", "32": "32-true", "bf16": "bf16-mixed", "bf16-mixed": "bf16-mixed", "16": "16-mixed",
              "fp16": "16-mixed", "16-mixed": "16-mixed"}  # fmt: skip
"""What may be asked for, and what Lightning calls it; which of the others ``auto`` is depends on the machine."""
MOST_EPOCHS = 10_000_000
WATCHED = ("accuracy", "balanced-accuracy", "loss")
MOST_SEEDS = 2**62
"""What fits into a number of 64 bits with room for a sign and a step."""


class RecipeError(TorchcapsError):
    """A recipe that cannot be: the message says which key and what would do."""


def _require(fits: bool, option: str, rule: str, value: object) -> None:
    """Raise unless the value of an option fits its rule."""
    if not fits:
        raise RecipeError(f"{option} {rule}; got {shorten(value)}.", option=option)


def _are_weights(weights: dict[str, float]) -> bool:
    return bool(weights) and all(
        isinstance(name, str) and isinstance(weight, (int, float)) and 0 < weight < math.inf
        for name, weight in weights.items()
    )


# torchcaps/typed.py reads the annotations of the fields; Optional and Union work for every Python that is supported.
# ruff: noqa: UP007, UP045


@dataclass
class ModelOptions:
    """What to train.

    Args:
        name: a model (`torchcaps models`).
        options: of that model, for example routing, shared, squash, decoder, objects.
    """

    name: str = "capsnet-small"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.options, dict):
            raise RecipeError(f"model.options must be keys with values, got {shorten(self.options)}.", "model.options")


@dataclass
class LossOptions:
    """What to descend.

    Args:
        kind: margin or spread for capsules, cross-entropy for models without.
        reconstruction_scale: weight of the sum of squared pixel errors.
        margin_schedule: of the spread loss: 0.1 more per epoch, the authors' by step, or constant at 0.9.
        class_weights: none; balanced lets every class weigh the same, however many items it has; or a weight for some
            classes by name, such as {cat: 3}.
    """

    kind: Literal["margin", "spread", "cross-entropy"] = "margin"
    reconstruction_scale: float = 0.0005
    margin_schedule: Literal["constant", "by-epoch", "by-step"] = "constant"
    class_weights: Union[dict[str, float], str] = "none"

    def __post_init__(self) -> None:
        scale = self.reconstruction_scale
        _require(0 <= scale < math.inf, "loss.reconstruction_scale", "must be a number that is not negative", scale)
        if self.kind != "spread" and self.margin_schedule != "constant":
            raise RecipeError(
                f"loss.margin_schedule is of the spread loss, and loss.kind is {self.kind}.", "loss.margin_schedule"
            )
        weights: Any = self.class_weights
        if isinstance(weights, dict):  # YAML reads the class 3 as a number
            weights = {str(name) if type(name) is int else name: weight for name, weight in weights.items()}
            self.class_weights = weights
        fits = weights in ("none", "balanced") if not isinstance(weights, dict) else _are_weights(weights)
        rule = "must be none, balanced, or a positive number for some classes by name, such as {cat: 3}"
        _require(fits, "loss.class_weights", rule, weights)


@dataclass
class OptimizerOptions:
    """How to descend: Adam.

    Args:
        lr: learning rate; the peak of one-cycle.
        schedule: decay multiplies by 0.96 per 2,000 steps as the paper does; one-cycle rises and falls once.
        decay: factor of that decay.
        decay_steps: steps per factor.
        floor: least learning rate of that decay.
        weight_decay: of Adam.
        clip: the gradient of all parameters together is shortened to this length; not given: left as it is.
        ema: keep a running mean of the weights with this factor and use it, for example 0.999.
    """

    lr: float = 1e-3
    schedule: Literal["constant", "decay", "one-cycle"] = "decay"
    decay: float = 0.96
    decay_steps: int = 2000
    floor: float = 1e-6
    weight_decay: float = 0.0
    clip: Optional[float] = None
    ema: Optional[float] = None

    def __post_init__(self) -> None:
        _require(self.decay_steps >= 1, "optimizer.decay_steps", "must be at least 1", self.decay_steps)
        for name in ("floor", "weight_decay"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, f"optimizer.{name}", "must be a number that is not negative", value)
        _require(0 < self.decay <= 1, "optimizer.decay", "must be in (0, 1]", self.decay)
        _require(0 < self.lr < math.inf, "optimizer.lr", "must be positive", self.lr)
        _require(self.clip is None or 0 < self.clip < math.inf, "optimizer.clip", "is a length, more than 0", self.clip)
        fits = self.ema is None or 0 < self.ema < 1
        _require(fits, "optimizer.ema", "must be between 0 and 1, such as 0.999", self.ema)


@dataclass
class TrainingOptions:
    """How long, how large, where.

    Args:
        epochs: passes over the training data.
        batch_size: images or texts per step, of all processes together.
        keep: the weights of the last epoch, or of the best one (of equal ones the last).
        watch: by what the best epoch is found, on the validation items: accuracy, the mean over the classes of each
            one's accuracy, or loss.
        seed: decides weights, split, order and augmentation.
        devices: processes on this machine.
        nodes: machines.
        accelerator: cpu, gpu or auto.
        patience: stop when validation has not become better for so many epochs; not given: train all epochs.
        min_delta: by how much it must become better for that.
        precision: auto (bf16 on a GPU that has it, else 32), 32, bf16 or 16; the last two keep weights in 32 bits.
        checkpoint_every: steps between resumable checkpoints.
        inverse_temperature: of EM routing, per epoch: a list; the last one stays. Not given: as the model has it.
        threads: of one process; not given: as many as torch takes, and fewer where other programs make that slower.
        first_epoch: number of the first epoch; not 0 where another run goes on, so that order and augmentation do, too.
    """

    epochs: int = 30
    batch_size: int = 128
    keep: Literal["last", "best"] = "last"
    watch: Literal["accuracy", "balanced-accuracy", "loss"] = "accuracy"
    seed: int = 0
    devices: int = 1
    nodes: int = 1
    accelerator: Literal["cpu", "gpu", "auto"] = "auto"
    patience: Optional[int] = None
    min_delta: float = 0.0
    precision: Union[int, str] = 32
    checkpoint_every: int = 100
    inverse_temperature: Optional[list[float]] = None
    threads: Optional[int] = None
    first_epoch: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "nodes", "checkpoint_every"):
            _require(getattr(self, name) >= 1, f"training.{name}", "must be at least 1", getattr(self, name))
        for name in ("epochs", "first_epoch"):
            fits = getattr(self, name) <= MOST_EPOCHS
            _require(fits, f"training.{name}", f"must be at most {MOST_EPOCHS:,}", getattr(self, name))
        most = max(256, 4 * (os.cpu_count() or 1))  # each is a thread or a process of this machine
        for name in ("threads", "devices"):
            value = getattr(self, name)
            _require(value is None or 1 <= value <= most, f"training.{name}", f"must be between 1 and {most}", value)
        _require(self.watch in WATCHED, "training.watch", f"must be one of {', '.join(WATCHED)}", self.watch)
        _require(0 <= self.seed < MOST_SEEDS, "training.seed", "must be between 0 and 2^62", self.seed)
        _require(self.patience is None or self.patience >= 1, "training.patience", "must be at least 1", self.patience)
        fits = 0 <= self.min_delta < math.inf
        _require(fits, "training.min_delta", "must be a number that is not negative", self.min_delta)
        _require(self.first_epoch >= 0, "training.first_epoch", "must not be negative", self.first_epoch)
        fits = str(self.precision) in PRECISIONS
        _require(fits, "training.precision", f"must be one of {', '.join(PRECISIONS)}", self.precision)
        fits = all(0 < value < math.inf for value in self.inverse_temperature or ())
        _require(fits, "training.inverse_temperature", "must be positive numbers", self.inverse_temperature)


@dataclass
class Recipe:
    """A whole experiment."""

    description: str = ""
    data: DataOptions = field(default_factory=DataOptions)
    text: TextOptions = field(default_factory=TextOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    loss: LossOptions = field(default_factory=LossOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)

    def __post_init__(self) -> None:
        if self.training.keep == "best" and not self.data.validation:
            raise RecipeError(
                "training.keep=best needs validation: give data.validation, such as 0.1, or keep the last epoch.",
                "training.keep",
            )
        if self.training.patience is not None and not self.data.validation:
            raise RecipeError(
                "training.patience needs validation to watch: give data.validation, such as 0.1, or train all epochs.",
                "training.patience",
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for YAML."""
        return asdict(self)
