"""Run folders: what a training leaves behind, written so that a crash never leaves half a file.

====================  ====================================================================
``recipe.yaml``       the full recipe, every key resolved
``versions.json``     of torchcaps, torch, Lightning, Python, and the machine's kind
``metrics.csv``       one row per epoch
``weights.safetensors``  the trained weights, and in its header how to build the model
``vocabulary.txt``    of a text model, the words that it knows, in the order of their numbers
``checkpoint.ckpt``   everything that resuming needs
``summary.json``      the end of the story, and ``evaluation.json`` after `torchcaps evaluate`
====================  ====================================================================
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from torchcaps.data.images import DataError
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.training.recipe import Recipe
from torchcaps.training.specs import ModelSpec, RunError, Spec, TextSpec, model_spec, spec_from_json

RECIPE, WEIGHTS, CHECKPOINT, METRICS = "recipe.yaml", "weights.safetensors", "checkpoint.ckpt", "metrics.csv"
VOCABULARY = "vocabulary.txt"


def new_run_folder(name: str, wanted: str | None = None) -> Path:
    """Make a folder for a run: the one wanted, which must be new or empty, or ``runs/NAME-n`` with the next number."""
    try:
        if wanted is not None:
            folder = Path(wanted)
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise RunError(
                    f"{folder} is not empty. Choose another --output, or continue it with --resume {folder}."
                )
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


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a temporary file, which takes the place of ``path`` when it is complete and on disk."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        write(Path(temporary))
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_text(path: Path, text: str) -> None:
    """A small text file, all of it or nothing."""
    write_atomically(path, lambda temporary: _write(temporary, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a process that was killed while it wrote."""
    for name in (RECIPE, WEIGHTS, CHECKPOINT, METRICS, VOCABULARY):
        for path in folder.glob(f".{name}.*"):
            path.unlink(missing_ok=True)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """The full recipe as YAML, in the order of its description."""
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
    write_text(folder / "versions.json", json.dumps(versions, indent=2) + "\n")


def save_weights(path: Path, model: nn.Module, spec: Spec) -> None:
    """The weights as safetensors, with the way to build the model in the header."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    content = save(tensors, {"torchcaps": spec.as_json()})
    write_atomically(path, lambda temporary: _write_bytes(temporary, content))


def load_weights(path: Path) -> tuple[Spec, dict[str, Tensor]]:
    """What :func:`save_weights` wrote. Nothing is unpickled, whatever the file holds."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise RunError(f"{path} is not there: has this run finished its first epoch?") from None
    except (SafetensorError, OSError) as error:
        raise RunError(
            f"{path} is not a safetensors file ({error}). Pickled weights are not read: they can run code."
        ) from None
    try:
        return spec_from_json(header["torchcaps"]), tensors
    except (KeyError, ValueError, TypeError, DataError) as error:
        raise RunError(
            f"{path} holds weights, but not of a torchcaps model: its header lacks the model ({error})."
        ) from None


def write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """The words that a model knows."""
    write_atomically(folder / VOCABULARY, vocabulary.save)


def read_vocabulary(folder: Path, spec: TextSpec) -> Vocabulary:
    """The words of a text model, from the file beside its weights."""
    try:
        vocabulary = Vocabulary.load(folder / VOCABULARY)
    except DataError as error:
        raise RunError(f"a text model needs its words, the file {VOCABULARY} beside its weights: {error}") from error
    if len(vocabulary) != spec.words:
        raise RunError(
            f"{folder / VOCABULARY} is of another model: it has {len(vocabulary)} numbers, the weights beside it "
            f"{spec.words}."
        )
    return vocabulary


def load_model(path: str | os.PathLike[str]) -> tuple[nn.Module, Spec]:
    """The trained model of a run folder, or of a weights file, ready to use; of a text model with its vocabulary."""
    place = Path(path)
    if place.is_dir():
        place = place / WEIGHTS
    spec, tensors = load_weights(place)
    try:
        model = spec.build()
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except (RuntimeError, ValueError, TypeError) as error:
        raise RunError(f"the weights in {place} do not fit the model {spec.name!r} that it names: {error}") from error
    if missing or unexpected:
        raise RunError(
            f"the weights in {place} are of another model than {spec.name!r}, which it names: "
            f"{len(missing)} tensors are missing (such as {(missing or ['none'])[0]}), "
            f"{len(unexpected)} do not belong (such as {(unexpected or ['none'])[0]})."
        )
    if isinstance(spec, TextSpec):
        spec = replace(spec, vocabulary=read_vocabulary(place.parent, spec))
    return model.eval(), spec


def read_run_recipe(folder: str | os.PathLike[str]) -> Recipe:
    """The recipe of a run folder."""
    from torchcaps.training.recipes import recipe_from_file

    path = Path(folder) / RECIPE
    if not path.is_file():
        raise RunError(f"{folder} is not a run folder: it has no {RECIPE}.")
    return recipe_from_file(path)


__all__ = [
    "ModelSpec",
    "RunError",
    "Spec",
    "TextSpec",
    "load_model",
    "load_weights",
    "model_spec",
    "new_run_folder",
    "read_run_recipe",
    "save_weights",
    "write_recipe",
    "write_versions",
    "write_vocabulary",
]
