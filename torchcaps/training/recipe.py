"""A recipe: the complete description of an experiment, as plain data. No torch here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Optional, Union

from torchcaps.data.options import DataOptions, TextOptions

# jsonargparse reads the annotations of the fields; Optional and Union work for every Python that is supported.
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


@dataclass
class LossOptions:
    """What to descend.

    Args:
        kind: margin or spread for capsules, cross-entropy for models without.
        reconstruction_scale: weight of the sum of squared pixel errors.
        margin_schedule: of the spread loss: 0.1 more per epoch, the authors' by step, or constant at 0.9.
    """

    kind: Literal["margin", "spread", "cross-entropy"] = "margin"
    reconstruction_scale: float = 0.0005
    margin_schedule: Literal["constant", "by-epoch", "by-step"] = "constant"


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


@dataclass
class TrainingOptions:
    """How long, how large, where.

    Args:
        epochs: passes over the training data.
        batch_size: images or texts per step, of all processes together.
        keep: the weights of the last epoch, or of the one with the best validation accuracy (of equal ones the last).
        seed: decides weights, split, order and augmentation.
        devices: processes on this machine.
        nodes: machines.
        accelerator: cpu, gpu or auto.
        precision: 32, bf16-mixed or 16-mixed, as Lightning names them.
        checkpoint_every: steps between resumable checkpoints.
        inverse_temperature: of EM routing, per epoch: a list; the last one stays. Not given: as the model has it.
        threads: of one process; not given: as many as torch takes.
    """

    epochs: int = 30
    batch_size: int = 128
    keep: Literal["last", "best"] = "last"
    seed: int = 0
    devices: int = 1
    nodes: int = 1
    accelerator: Literal["cpu", "gpu", "auto"] = "auto"
    precision: Union[int, str] = 32
    checkpoint_every: int = 100
    inverse_temperature: Optional[list[float]] = None
    threads: Optional[int] = None


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

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for YAML."""
        return asdict(self)
