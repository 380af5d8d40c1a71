"""Run folders: what a training leaves behind, written so that a crash never leaves half a file.

====================  ====================================================================
``recipe.yaml``       the full recipe, every key resolved
``versions.json``     of torchcaps, torch, Lightning, Python, and the machine's kind
``metrics.csv``       one row per epoch
``weights.safetensors``  the trained weights, and in its header how to build the model
``split.csv``         of one's own data, which item was trained on, watched or tested
``vocabulary.txt``    of a text model, the words that it knows, in the order of their numbers
``checkpoint.ckpt``   everything that resuming needs
``summary.json``      the end of the story, and ``evaluation.json`` after `torchcaps evaluate`
====================  ====================================================================
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data.options import IN_MEMORY
from torchcaps.data.record import RECORD
from torchcaps.data.registry import list_datasets
from torchcaps.errors import FileError, TorchcapsError
from torchcaps.extras import comes_with_an_extra
from torchcaps.io import make_folders, require_inside, require_regular, write_bytes, write_json, write_text
from torchcaps.machine import WeightLimit, free_memory
from torchcaps.models import Model
from torchcaps.training.errors import RunError
from torchcaps.training.lock import LOCK, find_holder
from torchcaps.training.recipe import Recipe
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks.text import VOCABULARY

RECIPE, WEIGHTS, CHECKPOINT, METRICS = "recipe.yaml", "weights.safetensors", "checkpoint.ckpt", "metrics.csv"
TENSORBOARD, EVALUATION = "tensorboard", "evaluation.json"
OWN_FILES = (RECIPE, WEIGHTS, CHECKPOINT, METRICS, VOCABULARY, RECORD)
"""That a training writes and reads again."""


def new_run_folder(name: str, wanted: str | None = None) -> Path:
    """Make a folder for a run: the one wanted, which must be new or empty, or ``runs/NAME-n`` with the next number."""
    try:
        if wanted is not None:
            if not wanted.strip():
                raise RunError("output is empty: give a folder for the run, or leave it out.", option="output")
            folder = Path(wanted)
            folder.mkdir(parents=True, exist_ok=True)
            if (holder := find_holder(folder)) is not None:
                raise RunError(f"{folder} is in use: {holder} trains there. Choose another output.", option="output")
            if any(not _is_left_by_the_dead(entry.name) for entry in folder.iterdir()):
                raise RunError(f"{folder} is not empty. Choose another output, or resume that run.", option="output")
            return folder
        number = 1
        while True:
            folder = Path("runs") / f"{name}-{number}"
            try:
                folder.mkdir(parents=True)
                return folder
            except FileExistsError:
                number += 1
    except OSError as error:
        raise RunError(f"the run folder {error.filename} cannot be made: {error.strerror}.") from error
    except ValueError as error:  # a NUL in a name
        raise RunError(f"{wanted!r} is no name of a folder: {error}.", option="output") from None


@contextmanager
def begin_run(name: str, wanted: str | None = None) -> Iterator[Path]:
    """A new folder as :func:`new_run_folder` makes it.

    If a training in it does not even begin, it goes away again, and so do the folders around it that were made for it.
    """
    place = Path(wanted) if wanted is not None and wanted.strip() else Path("runs", name)
    with make_folders(place.parent):
        whole = wanted is None or not place.is_dir()  # else somebody made it before
        folder = new_run_folder(name, wanted)
        try:
            yield folder
        except BaseException:
            if not (folder / TENSORBOARD).exists():
                _remove_attempt(folder, whole)
            raise


def _remove_attempt(folder: Path, whole: bool) -> None:
    """Delete what a training that did not begin has written; a folder that was there, empty, stays."""
    if whole:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        with suppress(OSError):
            path.unlink()


def _is_left_by_the_dead(name: str) -> bool:
    """Whether a file is one of those that a training leaves behind if it is killed before it writes anything else."""
    return name == LOCK or name.startswith(f".{RECIPE}.")


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a process that was killed while it wrote. Whoever calls this holds the lock."""
    for name in OWN_FILES:
        for path in folder.glob(f".{name}.*"):
            path.unlink(missing_ok=True)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """The full recipe as YAML, in the order of its description."""
    with comes_with_an_extra():
        import yaml

    write_text(folder / RECIPE, yaml.safe_dump(recipe.as_dict(), sort_keys=False, allow_unicode=True, width=100))


def write_versions(folder: Path) -> None:
    """What it was made with."""
    from importlib.metadata import version

    import torch

    from torchcaps.ops import routed_path
    from torchcaps.version import __version__

    versions = {
        "torchcaps": __version__,
        "torch": torch.__version__,
        "pytorch-lightning": version("pytorch-lightning"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "routing": routed_path(),
    }
    write_json(folder / "versions.json", versions)


def save_weights(path: Path, model: nn.Module, spec: ModelSpec) -> None:
    """The weights as safetensors, with the way to build the model in the header."""
    with comes_with_an_extra():
        from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    write_bytes(path, save(tensors, {"torchcaps": spec.to_json()}))


@contextmanager
def _open_weights(path: Path) -> Iterator[tuple[ModelSpec, Any]]:
    """How to build the model, and the open file of its tensors."""
    with comes_with_an_extra():
        from safetensors import SafetensorError, safe_open

    try:
        require_regular(path)
    except FileError as error:
        if not os.path.lexists(path):
            raise RunError(f"{path} is not there: has this run finished its first epoch?") from None
        raise RunError(error) from None
    try:
        with safe_open(path, framework="pt") as file:
            yield _read_spec(path, file.metadata() or {}), file
    except (SafetensorError, OSError):
        raise RunError(
            f"{path} is not a safetensors file, or damaged. Pickled weights are not read: they can run code."
        ) from None


def _read_spec(path: Path, header: dict[str, str]) -> ModelSpec:
    try:
        return ModelSpec.from_json(header["torchcaps"])
    except (KeyError, ValueError, TypeError, TorchcapsError) as error:
        raise RunError(
            f"{path} holds weights, but not of a torchcaps model: its header lacks the model ({error})."
        ) from None


def load_weights(path: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """What :func:`save_weights` wrote. Nothing is unpickled, whatever the file holds."""
    with _open_weights(path) as (spec, file):
        return spec, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


def _build(spec: ModelSpec, file: Any, place: Path) -> Model:
    """The model that a weights file names, unless its tensors are of another: they are not read before that is sure."""
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - not a mapping
    numbers = sum(torch.Size(shape).numel() for shape in shapes.values())
    unfit = f"the weights in {place} do not fit the model {spec.name!r} that it names"
    most = min(2 * numbers + 10_000_000, (free_memory() or 2**62) // 4)  # some room for tables that are not saved
    try:
        with WeightLimit(most, lambda needed: RunError(f"{unfit}, which has more than {needed - 1:,} numbers.")):
            model = spec.build()
    except (RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise RunError(f"{unfit}: {str(error)[:300].rstrip('.')}.") from error
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = next((name for name in own if name in shapes and own[name] != shapes[name]), None)
    if wrong is not None:
        raise RunError(f"{unfit}: {wrong} must have shape {own[wrong]}, got {shapes[wrong]}.")
    missing, unexpected = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
    if missing or unexpected:
        raise RunError(
            f"the weights in {place} are of another model than {spec.name!r}, which it names: "
            f"{len(missing)} tensors are missing (such as {(missing or ['none'])[0]:.100}), "
            f"{len(unexpected)} do not belong (such as {(unexpected or ['none'])[0]:.100})."
        )
    return model


def _require_own_file(folder: Path, name: str) -> Path:
    """A file of a run folder, which must not be a link to somewhere else."""
    try:
        require_inside(folder, name)
    except FileError as error:
        raise RunError(error) from None
    return folder / name


def require_own_files(folder: Path) -> None:
    """Raise if a file that a training or an evaluation writes would be written outside of the run's folder."""
    for name in OWN_FILES:
        path = _require_own_file(folder, name)
        if os.path.lexists(path):
            require_regular(path)
    _require_own_file(folder, TENSORBOARD)
    if (folder / TENSORBOARD).is_dir():
        for entry in os.scandir(folder / TENSORBOARD):
            _require_own_file(folder, f"{TENSORBOARD}/{entry.name}")


def load_model(path: str | os.PathLike[str]) -> tuple[Model, ModelSpec]:
    """The trained model of a run folder, or of a weights file, ready to use; of a text model with its vocabulary."""
    place = Path(path)
    if place.is_dir():
        place = _require_own_file(place, WEIGHTS)
    with _open_weights(place) as (spec, file):
        model = _build(spec, file, place)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    model.load_state_dict(tensors)
    # Of the model, not of the file, in which a number may be finite that is too large for the model's type.
    if not all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values()):
        raise RunError(
            f"some of the weights in {place} are not a number, or infinite: its training diverged. Train it again."
        )
    return model.eval(), replace(spec, task=spec.task.read_files(place.parent))


def has_recipe(folder: Path) -> bool:
    """Whether a run folder says how it was trained; one that was saved from weights alone does not."""
    return os.path.lexists(folder / RECIPE)


def is_run_folder(path: Path) -> bool:
    """Whether a training has left its recipe or its weights here."""
    return has_recipe(path) or os.path.lexists(path / WEIGHTS)


def read_run_recipe(folder: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a run folder; ``overrides`` as in :func:`~torchcaps.training.recipes.recipe_from_values`.

    Version 0.1 kept the paths of one's own data as they were given. One that does not lead anywhere from the working
    directory is looked for from the run's folder and from the two above it: of ``runs/NAME-n`` the upper is the one in
    which it was trained.
    """
    from torchcaps.training.recipes import read_values, recipe_from_values

    path = _require_own_file(Path(folder), RECIPE)
    if not path.is_file():
        raise RunError(f"{folder} is not a run folder: it has no {RECIPE}.")
    values, given = read_values(path), overrides or {}
    if "units" not in values.get("text", {}):  # of 0.1, whose runs go on with what they took for words
        values = {**values, "text": {**values.get("text", {}), "units": "words"}}
    recipe = recipe_from_values(values, given)
    for section, key in (("data", "name"), ("data", "dir"), ("text", "vectors")):
        options = getattr(recipe, section)
        if f"{section}.{key}" not in given:
            setattr(options, key, _find_again(getattr(options, key), Path(folder)))
    return recipe


def _find_again(name: str | None, folder: Path) -> str | None:
    """A path that is relative to a run's folder, or to one above it, in full; anything else as it is."""
    if name is None or os.path.isabs(name) or os.path.lexists(name) or name in (IN_MEMORY, *list_datasets()):
        return name
    here = Path(os.path.abspath(folder))
    places = [place / name for place in (here, here.parent, here.parent.parent)]
    return next((str(place) for place in places if os.path.lexists(place)), name)
