"""What can be wrong with a run."""

from __future__ import annotations

from torchcaps.errors import TorchcapsError


class RunError(TorchcapsError):
    """Something is wrong with a run folder or a recipe; the message says what to do."""
