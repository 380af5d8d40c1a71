"""Which models are compared on one's own data, and how each is trained: all is checked before anything is trained."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.data.dataset import Dataset, Files
from torchcaps.data.options import DataOptions
from torchcaps.data.record import make_fingerprint
from torchcaps.data.registry import is_path, make_dataset
from torchcaps.experiments.base import Keys
from torchcaps.models import create_model
from torchcaps.models.base import CapsuleModel, Model, TextCapsuleModel, find_decoder
from torchcaps.models.cnn import parameter_count
from torchcaps.models.matrix_capsnet import MatrixCapsNet
from torchcaps.models.registry import input_kind, list_models, model_factory
from torchcaps.plain import shorten
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.recipes import DEFAULT_RECIPES, recipe_from_file
from torchcaps.training.tasks import Task, task_of

Say = Callable[[str], None]
MOST_SEEDS = 1000
ALIKE = 1.1
"""Models are called of equal size if none has so many times the parameters of another."""
PARTNERS = {"capsnet": "cnn-baseline", "matrix-capsnet-small": "cnn-matched", "capsnet-small": "cnn-small"}
"""Networks without capsules that are made to be compared with those that have them."""
OTHER_PARTNERS = {"images": "cnn-small", "words": "text-cnn"}
DECIDED = {"model.name": "models", "training.seed": "seeds", "data.name": "data"}
"""Keys of a recipe that a comparison decides about, and by what."""


@dataclass(frozen=True)
class Contender:
    """One of the models.

    Args:
        keys: of the recipe, all but the seed.
        parameters: how many it has.
        loss: what it descends.
    """

    keys: Keys
    parameters: int
    loss: str


@dataclass(frozen=True)
class ComparisonPlan:
    """What is compared, and on what.

    Args:
        data: its name, or its path in full.
        title: what it is called in a table.
        kind: images or texts.
        recipe: by which all are trained.
        models: each with its keys.
        seeds: of each.
        epochs: of every training.
        keep: which epoch's weights count, last or best.
        items: how many are trained on, kept aside to validate, and tested.
        classes: how many.
        multi_label: whether an item may have any number of classes.
        objects: that an image shows.
        fingerprint: of one's own data as it is now.
        data_dir: folder with data sets.
    """

    data: str
    title: str
    kind: str
    recipe: str
    models: Mapping[str, Contender]
    seeds: tuple[int, ...]
    epochs: int
    keep: str
    items: tuple[int, int, int]
    classes: int
    multi_label: bool
    objects: int
    fingerprint: str
    data_dir: str | None

    @property
    def tested(self) -> int:
        """Items of the test set."""
        return self.items[2]

    def describe(self) -> str:
        """How it is measured, in a few sentences."""
        each = "; ".join(f"{name} ({one.parameters:,} parameters, {one.loss})" for name, one in self.models.items())
        train, validation, test = (f"{count:,}" for count in self.items)
        seeds = f"Mean ± standard deviation over {len(self.seeds)} seeds" if len(self.seeds) > 1 else "One seed"
        epochs = f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}"
        chosen = "last epoch" if self.keep == "last" else "epoch with the best validation accuracy"
        sizes = [one.parameters for one in self.models.values()]
        unequal = " Their sizes differ, so size may be what differs." if max(sizes) > ALIKE * min(sizes) else ""
        watched = "" if validation == "0" else f", watched by {validation}"
        return (
            f"{each}.{unequal} Every model is trained on {train} {self.kind} of {self.classes} classes{watched} and "
            f"tested on {test}, with the same seed on the same ones, for {epochs}. The weights of the {chosen} count; "
            f"nothing is chosen on the test {self.kind}. {seeds}."
        )

    def to_numbers(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "data": self.data,
            "recipe": self.recipe,
            "epochs": self.epochs,
            "keep": self.keep,
            "seeds": list(self.seeds),
            "classes": self.classes,
            **dict(zip(("train", "validation", "test"), self.items, strict=True)),
            "models": {
                name: {"parameters": one.parameters, "loss": one.loss, "keys": dict(one.keys)}
                for name, one in self.models.items()
            },
        }


def plan_comparison(
    data: str | os.PathLike[str],
    models: Sequence[str] | None,
    seeds: int,
    epochs: int | None,
    recipe: str | os.PathLike[str] | None,
    overrides: Mapping[str, Any],
    notice: Say | None = None,
) -> ComparisonPlan:
    """Check what is asked for, and look at the data; see :func:`~torchcaps.experiments.comparison.compare_models`."""
    _check_arguments(data, models, seeds, overrides)
    changes = dict(overrides)
    name, data_dir = os.fspath(data), changes.pop("data.dir", None)
    path = os.path.abspath(name) if is_path(name) else name
    options = {key.split(".", 2)[2]: value for key, value in changes.items() if key.startswith("data.options.")}
    dataset = make_dataset(DataOptions(path, changes.get("data.options", options)))
    by = os.fspath(recipe) if recipe is not None else DEFAULT_RECIPES[dataset.kind]
    changes |= {"data.name": path} | ({} if epochs is None else {"training.epochs": epochs})
    base = recipe_from_file(by, changes)
    chosen = _choose_models(base, dataset, models)
    files = Files(data_dir, base.data.download, notice=notice)
    prepared = task_of(dataset).prepare(base, dataset, files)
    task, kept = prepared.task, prepared.validation
    test = task.evaluation_source(dataset, "test", files._replace(notice=None))
    contenders = _make_contenders(base, changes, chosen, task, equal=models is None)
    entries = dataset.list_entries()
    return ComparisonPlan(
        data=path,
        title=Path(path).name if is_path(name) else name,
        kind=task.kind,
        recipe=by,
        models=contenders,
        seeds=tuple(range(seeds)),
        epochs=base.training.epochs,
        keep=base.training.keep,
        items=(len(prepared.train), 0 if kept is None else len(kept), len(test)),
        classes=len(task.class_names),
        multi_label=task.multi_label,
        objects=prepared.train.objects,
        fingerprint="" if entries is None else make_fingerprint((entry.key, entry.label) for entry in entries),
        data_dir=data_dir,
    )


def _check_arguments(data: object, models: object, seeds: int, overrides: Mapping[str, Any]) -> None:
    if not isinstance(data, (str, os.PathLike)):
        raise RunError(
            f"data must be a data set's name or the path of files, got {shorten(data)}. Save arrays as .npz with x and "
            "y, texts as .csv.",
            "data",
        )
    if models is not None and (isinstance(models, str) or not models):
        raise RunError(f'models must be a list of names, such as ["capsnet-small"]; got {shorten(models)}.', "models")
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= MOST_SEEDS:
        raise RunError(
            f"seeds is a number of trainings of each model, 1 to {MOST_SEEDS}; got {shorten(seeds)}.", "seeds"
        )
    for key, by in DECIDED.items():
        if key in overrides:
            raise RunError(f"{key} is decided by {by} here: every model is trained with every seed.", by)


def _choose_models(base: Recipe, dataset: Dataset, models: Sequence[str] | None) -> list[str]:
    """The models by name, all of them for this kind of data."""
    reads = task_of(dataset).reads
    own = base.model.name
    chosen = [own, PARTNERS.get(own, OTHER_PARTNERS[reads])] if models is None else list(models)
    for name in chosen:
        if name not in list_models():
            raise RunError(
                f"there is no model {shorten(name)}: choose models among {', '.join(list_models(reads))}.", "models"
            )
        if input_kind(name) != reads:
            raise RunError(
                f"{base.data.name} has {dataset.kind}, but the model {name} reads {input_kind(name)}: choose models "
                f"among {', '.join(list_models(reads))}.",
                "models",
            )
    return list(dict.fromkeys(chosen))


def _make_contenders(
    base: Recipe, changes: Keys, names: Sequence[str], task: Task, equal: bool
) -> dict[str, Contender]:
    """How each model is trained: by the recipe, with the options that it has, and a loss that suits it."""
    given = {key.split(".")[2] for key in changes if key.startswith("model.options.")}
    given |= set(changes.get("model.options", ()))
    known = {name: set(inspect.signature(model_factory(name)).parameters) for name in names}
    for option in sorted(given):
        if not any(option in options for options in known.values()):
            raise RunError(f"none of {', '.join(names)} has the option {option}.", f"model.options.{option}")
    shared = {key: value for key, value in changes.items() if not key.startswith("model.options")}
    contenders: dict[str, Contender] = {}
    for name in names:
        own = name == base.model.name  # a recipe's options are its own model's, those of a user any model's
        options = {
            key: value for key, value in base.model.options.items() if key in known[name] and (own or key in given)
        }
        if equal and contenders and name == "text-cnn" and "filters" not in options:
            options["filters"] = _match_filters(task, options, next(iter(contenders.values())).parameters)
        model = _make_without_memory(name, task, options)
        loss = {} if own or "loss.kind" in changes else _choose_loss(base, model)
        keys = {**shared, "model.name": name, "model.options": options, **loss}
        contenders[name] = Contender(keys, parameter_count(model), _describe_loss(base, keys, model))
    return contenders


def _make_without_memory(name: str, task: Task, options: Mapping[str, Any]) -> Model:
    return create_model(
        name, task.input_shape, len(task.class_names), device="meta", **task.model_options(name, options)
    )


def _match_filters(task: Task, options: Mapping[str, Any], wanted: int) -> int:
    """How many filters give a text CNN about so many parameters: of them it has a multiple, and a rest."""
    one, two = (
        parameter_count(_make_without_memory("text-cnn", task, {**options, "filters": filters})) for filters in (1, 2)
    )
    return max(1, round(1 + (wanted - one) / (two - one)))


def _choose_loss(base: Recipe, model: Model) -> Keys:
    """Cross-entropy without capsules, the spread loss for matrix capsules, else the recipe's, or margin."""
    if isinstance(model, MatrixCapsNet):
        return {"loss.kind": "spread"}
    if not isinstance(model, (CapsuleModel, TextCapsuleModel)):
        return {"loss.kind": "cross-entropy", "loss.margin_schedule": "constant"}
    kind = "margin" if base.loss.kind == "cross-entropy" else base.loss.kind
    return {"loss.kind": kind}


def _describe_loss(base: Recipe, keys: Keys, model: Model) -> str:
    said = f"{keys.get('loss.kind', base.loss.kind)} loss".replace("cross-entropy loss", "cross-entropy")
    drawn = base.loss.reconstruction_scale and find_decoder(model) is not None
    return f"{said} + reconstruction" if drawn else said
