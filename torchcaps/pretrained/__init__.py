"""Small trained models that come with the package; each has a card that says how it was trained and what it measured.

>>> from torchcaps.pretrained import load_pretrained
>>> model, spec = load_pretrained("mnist")
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.checks import require_choice
from torchcaps.models import Model
from torchcaps.training.runs import load_model
from torchcaps.training.specs import ModelSpec

NAMES = ("mnist", "fashion-mnist", "multi-mnist")
WEIGHTS, CARD, SAMPLES = ".safetensors", ".json", ".npz"


def list_pretrained() -> list[str]:
    """The names of the shipped models."""
    return list(NAMES)


def load_pretrained(name: str) -> tuple[Model, ModelSpec]:
    """A shipped model, ready to use, and how it is fed. The weights are kept with 16 bits and computed with 32.

    Args:
        name: one of :func:`list_pretrained`.
    """
    model, spec = load_model(_file(name, WEIGHTS))
    assert isinstance(spec, ModelSpec)  # none of them reads text
    return model, spec


def pretrained_card(name: str) -> dict[str, Any]:
    """How a shipped model was trained, and what it measured on test images."""
    card: dict[str, Any] = json.loads(_file(name, CARD).read_text(encoding="utf-8"))
    return card


def pretrained_samples(name: str) -> dict[str, np.ndarray]:
    """Some test images of a shipped model's data: ``images`` uint8 ``[N, C, H, W]`` and ``labels`` ``[N, M]``.

    Where images show several objects, ``parts`` ``[N, M, C, H, W]`` has each alone.
    """
    with np.load(_file(name, SAMPLES), allow_pickle=False) as file:
        return dict(file)


def _file(name: str, ending: str) -> Path:
    require_choice("pretrained model", name, NAMES)
    return Path(str(files(__name__) / f"{name}{ending}"))
