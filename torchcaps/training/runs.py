"""Run folders: what a training leaves behind, written so that a crash never leaves half a file.

====================  ====================================================================
``recipe.yaml``       the full recipe, every key resolved
``versions.json``     of torchcaps, torch, Lightning, Python, and the machine's kind
``metrics.csv``       one row per epoch
``weights.safetensors``  the trained weights, and in its header how to build the model
``checkpoint.ckpt``   everything that resuming needs
``summary.json``      the end of the story, and ``evaluation.json`` after `torchcaps evaluate`
====================  ====================================================================
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torchcaps.data.images import DataError, Source
from torchcaps.data.preparation import Preparation, PreparedImages
from torchcaps.models.registry import create_model, model_factory
from torchcaps.training.recipe import Recipe


class RunError(Exception):
    """Something is wrong with a run folder or a recipe; the message says what to do."""


RECIPE, WEIGHTS, CHECKPOINT, METRICS = "recipe.yaml", "weights.safetensors", "checkpoint.ckpt", "metrics.csv"


@dataclass(frozen=True)
class ModelSpec:
    """How to build a model again and how to feed it.

    Args:
        name: of the model.
        image_shape: what the model sees: channels, height, width.
        class_names: what its classes are called.
        options: of the model.
        preparation: what is done to images first.
        picture_shape: of images before that; not given: as the model sees them.
    """

    name: str
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    options: dict[str, Any]
    preparation: Preparation = field(default_factory=Preparation)
    picture_shape: tuple[int, int, int] | None = None

    @property
    def fitted_shape(self) -> tuple[int, int, int]:
        """The shape that a file is fitted to, before the preparation."""
        return self.picture_shape or self.image_shape

    def build(self) -> nn.Module:
        """A new model with fresh weights."""
        return create_model(self.name, self.image_shape, len(self.class_names), **self.options)

    def as_json(self) -> str:
        """For the header of a weights file."""
        return json.dumps(
            {
                "name": self.name,
                "image_shape": list(self.image_shape),
                "class_names": list(self.class_names),
                "options": self.options,
                "preparation": asdict(self.preparation),
                "picture_shape": list(self.fitted_shape),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """Back from the header; one from before there was a preparation has none."""
        values = json.loads(text)
        channels, height, width = values["image_shape"]
        shape = channels, height, width
        channels, height, width = values.get("picture_shape", shape)
        preparation = Preparation(**values.get("preparation", {}))
        names, options = tuple(values["class_names"]), values["options"]
        return cls(values["name"], shape, names, options, preparation, (channels, height, width))


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
    for name in (RECIPE, WEIGHTS, CHECKPOINT, METRICS):
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


def save_weights(path: Path, model: nn.Module, spec: ModelSpec) -> None:
    """The weights as safetensors, with the way to build the model in the header."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    content = save(tensors, {"torchcaps": spec.as_json()})
    write_atomically(path, lambda temporary: _write_bytes(temporary, content))


def load_weights(path: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
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
        return ModelSpec.from_json(header["torchcaps"]), tensors
    except (KeyError, ValueError, TypeError, DataError) as error:
        raise RunError(
            f"{path} holds weights, but not of a torchcaps model: its header lacks the model ({error})."
        ) from None


def load_model(path: str | os.PathLike[str]) -> tuple[nn.Module, ModelSpec]:
    """The trained model of a run folder, or of a weights file, ready to use."""
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
    return model.eval(), spec


def read_run_recipe(folder: str | os.PathLike[str]) -> Recipe:
    """The recipe of a run folder."""
    from torchcaps.training.recipes import recipe_from_file

    path = Path(folder) / RECIPE
    if not path.is_file():
        raise RunError(f"{folder} is not a run folder: it has no {RECIPE}.")
    return recipe_from_file(path)


def model_spec(recipe: Recipe, source: Source) -> ModelSpec:
    """The model of a recipe for its data; several objects per image are told to the models that can decode them."""
    options, objects = dict(recipe.model.options), source.objects
    if objects > 1:
        if "objects" not in inspect.signature(model_factory(recipe.model.name)).parameters:
            raise RunError(
                f"{recipe.data.name} shows {objects} objects per image, which {recipe.model.name} cannot tell apart: "
                "choose a capsule network."
            )
        options.setdefault("objects", objects)
    spec = ModelSpec(recipe.model.name, source.image_shape, source.class_names, options)
    if isinstance(source, PreparedImages):
        return replace(spec, preparation=source.preparation, picture_shape=source.picture_shape)
    return spec


__all__ = [
    "ModelSpec",
    "RunError",
    "load_model",
    "load_weights",
    "model_spec",
    "new_run_folder",
    "read_run_recipe",
    "save_weights",
    "write_recipe",
    "write_versions",
]
