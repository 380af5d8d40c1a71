"""What this machine can hold: sizes are looked at before anything of them is made."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchcaps.errors import TorchcapsError

_MAKERS = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye})


class TooLargeError(TorchcapsError):
    """Something that this machine cannot hold; the message says how large it would be."""


def free_memory() -> int | None:
    """Bytes that can still be had, None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, other systems not these names
        return None


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raise :class:`TooLargeError` if so many bytes cannot be had; ``what`` needs them, ``advice`` helps."""
    free = free_memory()
    if free is not None and needed > free:
        raise TooLargeError(
            f"{what} would need {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free. {advice}"
        )


class WeightLimit(TorchFunctionMode):
    """Within this context new tensors have so many numbers at most, all together; a model that asks for more stops.

    Args:
        most: numbers.
        refuse: makes the error, given how many would be needed so far.
    """

    def __init__(self, most: int, refuse: Callable[[int], Exception]) -> None:
        super().__init__()
        self.most, self.refuse, self.made = most, refuse, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """See torch: look at the size, then do what was asked."""
        if func in _MAKERS:
            self.made += _count(args, kwargs or {})
            if self.made > self.most:
                raise self.refuse(self.made)
        return func(*args, **(kwargs or {}))


def _count(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """How many numbers a call such as ``torch.empty(3, 4)`` or ``torch.zeros((3, 4))`` makes."""
    size = args[0] if args and not isinstance(args[0], (int, float)) else kwargs.get("size", args)
    return math.prod(int(length) for length in size) if isinstance(size, Sequence) else 0
