"""What all models have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from torchcaps.models.config import ModelConfig
from torchcaps.models.output import ModelOutput


class Model(nn.Module):
    """A network that :func:`~torchcaps.create_model` makes: ``model(inputs, target=None)`` → :class:`ModelOutput`.

    Subclasses implement ``forward(inputs, target=None)``; the inputs are images ``[B, C, H, W]`` or token ids
    ``[B, L]``. Those that need no target take one all the same.

    Attributes:
        config: how to make such a model again; None for a model that was not made by a registered function.
    """

    config: ModelConfig | None = None

    if TYPE_CHECKING:

        def __call__(self, inputs: Tensor, /, target: Tensor | None = None) -> ModelOutput:
            """See ``forward``."""
