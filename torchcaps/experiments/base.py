"""What an experiment is: variants, each trained and measured for several seeds, in a table beside the published one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchcaps.data.options import DataOptions
from torchcaps.progress import Progress
from torchcaps.run import Run

Numbers = dict[str, float]
Keys = Mapping[str, Any]
"""Keys of a recipe with what to set them to, such as ``{"optimizer.lr": 0.003}``."""


@dataclass(frozen=True)
class Budget:
    """How much an experiment may take.

    Args:
        keys: of the recipe, the same for every variant: model, optimizer, batch size.
        epochs: of every training.
        model: the capsule network.
        cnn: the network without capsules to compare with.
        images: test images for measurements that take long, such as attacks.
        seeds: that are run unless others are asked for.
    """

    keys: Keys = field(default_factory=dict)
    epochs: int = 1
    model: str = "capsnet-small"
    cnn: str = "cnn-small"
    images: int = 10_000
    seeds: tuple[int, ...] = (0, 1, 2)


# One pass over the data: a first answer within minutes per training on two cores. The same settings for every variant;
# batch size and rate were chosen on validation images of MultiMNIST with dynamic routing.
BATCH = 64
SMALL = {
    "optimizer.schedule": "one-cycle",
    "optimizer.lr": 0.003,
    "training.batch_size": BATCH,
    "data.validation": 0,
}
QUICK = Budget(SMALL, images=500)
FULL = Budget(SMALL, epochs=20)
PAPER = Budget(
    {"optimizer.schedule": "decay", "optimizer.lr": 0.001, "data.validation": 0},
    epochs=50,
    model="capsnet",
    cnn="cnn-baseline",
)


@dataclass(frozen=True)
class Setting:
    """What the user has chosen."""

    name: str
    budget: Budget
    budget_name: str
    seeds: tuple[int, ...]
    data: str | None = None
    data_dir: str | None = None

    def data_options(self, name: str) -> DataOptions:
        """The images to test on: those of an experiment, or in their place those that the user has chosen."""
        if name in RECIPES_MADE:
            return DataOptions(name=name, options={"base": self.data or "mnist"}, dir=self.data_dir)
        return DataOptions(name=self.data or name, dir=self.data_dir)

    def training(self, recipe: str, seed: int, keys: Keys | None = None, model: str | None = None) -> Training:
        """A run by a recipe of the package, with the budget's keys and those of a variant."""
        key = "data.options.base" if recipe in RECIPES_MADE else "data.name"
        data = {} if self.data is None else {key: self.data}
        common = {"model.name": model or self.budget.model, **self.budget.keys, **data}
        return Training(
            recipe, {**common, "training.epochs": self.budget.epochs, "training.seed": seed, **(keys or {})}
        )


RECIPES_MADE = ("multi-mnist", "affine-mnist")  # recipes whose images are made from others


@dataclass(frozen=True)
class Training:
    """One run: a recipe's name and the keys that differ from it.

    Args:
        recipe: its name or path.
        keys: what differs.
        name: what the run's folder is called; not given: as the recipe.
        fingerprint: of one's own data; another one makes another run.
    """

    recipe: str
    keys: Keys
    name: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        return " ".join([self.recipe, *(f"{key}={key_text(value)}" for key, value in self.keys.items())])


def key_text(value: object) -> str:
    """The value of a key in one line: texts as they are, all else as YAML and JSON spell it."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Context:
    """What a measurement may use beside the runs: the setting, and a bar ``progress(text, total)`` → ``tick(n)``."""

    setting: Setting
    progress: Progress


Measure = Callable[[Mapping[str, Run], Context], Numbers]
"""From the runs of a trial, by the trainings' names, to what is measured."""


@dataclass(frozen=True)
class Trial:
    """One variant with one seed: what to train, by a name of its own, and how to measure the runs."""

    variant: str
    seed: int
    trainings: Mapping[str, Training]
    measure: Measure


@dataclass(frozen=True)
class Column:
    """A measured number in the table.

    Args:
        key: in the CSV.
        heading: in the table, with the unit.
        digits: after the point.
        published: what others have reported, by variant.
        once: measured once for all seeds, so without a spread.
        drawn: in the picture too.
    """

    key: str
    heading: str
    digits: int = 2
    published: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    drawn: bool = True


@dataclass(frozen=True)
class Experiment:
    """A comparison.

    Args:
        name: by which it is asked for.
        summary: what is compared, in a line.
        title: of the table.
        question: what is asked, and how to read the answer.
        credit: whose experiment, and where the published numbers are from.
        columns: what is measured.
        budgets: quick and full.
        trials: what to run in a setting.
        together: numbers that can only be measured side by side, such as time: by variant.
        trains: False if there is nothing to train, so that neither data nor epochs can be chosen.
        extras: further files for the folder given, such as an animation, with a bar; returns them.
    """

    name: str
    summary: str
    title: str
    question: str
    credit: str
    columns: Sequence[Column]
    budgets: Mapping[str, Budget]
    trials: Callable[[Setting], list[Trial]]
    together: Callable[[Context], Mapping[str, Numbers]] | None = None
    trains: bool = True
    extras: Callable[[Context, Path], list[Path]] | None = None


CAPSULES, CNN = "capsules", "CNN"
DYNAMIC: Keys = {"model.options.routing.name": "dynamic"}
CROSS_ENTROPY: Keys = {"loss.kind": "cross-entropy"}


def beside_a_cnn(setting: Setting, recipe: str, measure: Measure) -> list[Trial]:
    """Trials of the two: capsules with dynamic routing and the margin loss, the CNN with cross-entropy."""
    kinds = {
        CAPSULES: (setting.budget.model, DYNAMIC),
        CNN: (setting.budget.cnn, CROSS_ENTROPY),
    }
    return [
        Trial(name, seed, {"run": setting.training(recipe, seed, keys, model)}, measure)
        for name, (model, keys), seed in for_each(kinds, setting.seeds)
    ]


def for_each(variants: Mapping[str, Any], seeds: Sequence[int]) -> list[tuple[str, Any, int]]:
    """Every variant with every seed, all variants of a seed before the next: a broken run is a fair comparison."""
    return [(name, value, seed) for seed in seeds for name, value in variants.items()]
