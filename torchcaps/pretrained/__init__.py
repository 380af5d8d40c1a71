"""Small trained models that come with the package; each has a card that says how it was trained and what it measured.

:func:`torchcaps.load` opens one by its name. The weights are kept with 16 bits and computed with 32.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.checks import require_choice

NAMES = ("mnist", "fashion-mnist", "multi-mnist")
WEIGHTS, CARD, SAMPLES = ".safetensors", ".json", ".npz"


def list_pretrained() -> list[str]:
    """The names of the shipped models."""
    return list(NAMES)


def weights_path(name: str) -> Path:
    """The weights file of a shipped model."""
    return _file(name, WEIGHTS)


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
