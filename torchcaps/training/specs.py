"""What a weights file says about its model: how to build it, and what it is for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from torchcaps.io import parse_json
from torchcaps.models import Model, create_model
from torchcaps.training.errors import RunError
from torchcaps.training.tasks import ImageTask, Task, TextTask
from torchcaps.training.tasks.headers import read_model

ORDER = ("reads", "name", "image_shape", "words", "vector_size", "class_names", "options", "preparation",
         "picture_shape", "longest", "lower", "multi_label", "units", "vocabulary", "fit")  # fmt: skip
"""Keys of a header, as 0.1 wrote them, and later ones: the same model gives the same file, byte by byte."""


@dataclass(frozen=True)
class ModelSpec:
    """How to build a model again, and how to feed it.

    Args:
        name: of the model.
        task: what it is for.
        options: of the model.
    """

    name: str
    task: Task
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Model:
        """A new model with fresh weights."""
        return create_model(self.name, self.task.input_shape, len(self.task.class_names), **self.options)

    def to_json(self) -> str:
        """For the header of a weights file."""
        values = {"name": self.name, "options": self.options, **self.task.to_header()}
        return json.dumps({key: values[key] for key in sorted(values, key=ORDER.index)})

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """What :meth:`to_json` wrote; nothing of it is believed."""
        values = parse_json(text, "its header")
        if not isinstance(values, dict):
            raise RunError(f"its header must be keys with values, got {values!r:.60}.")
        name, options = read_model(values)
        task = TextTask if values.get("reads") == TextTask.reads else ImageTask
        return cls(name, task.from_header(values), options)
