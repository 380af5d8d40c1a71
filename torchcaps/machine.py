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
    """Bytes that can still be had: of the machine, of a container, of what the user allows; None if nobody tells."""
    known = [free for free in (_free_of_machine(), _free_of_group(), _free_of_limit()) if free is not None]
    return min(known, default=None)


def _free_of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, other systems not these names
        return None


def _free_of_group(root: Path = Path("/sys/fs/cgroup"), member: Path = Path("/proc/self/cgroup")) -> int | None:
    """Bytes that the control groups of this process, such as a container's, still leave it; files do not count."""
    frees = []
    try:
        for line in member.read_text(encoding="ascii").splitlines():
            _, names, group = line.split(":", 2)
            first = names == ""  # version 2 has one hierarchy without a name, version 1 one called memory
            if not first and "memory" not in names.split(","):
                continue
            base = root if first else root / "memory"
            most, used = ("memory.max", "memory.current") if first else _VERSION_1
            place = base / group.lstrip("/")
            for folder in (place, *place.parents):  # each may have a limit of its own
                if (folder / most).is_file() and (free := _free_of_folder(folder, most, used)) is not None:
                    frees.append(free)
                if folder == base:
                    break
    except (OSError, ValueError):
        pass
    return min(frees, default=None)


_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes"


def _free_of_folder(folder: Path, most: str, used: str) -> int | None:
    limit = (folder / most).read_text(encoding="ascii").strip()
    if not limit.isdigit() or int(limit) >= 2**60:  # "max", or version 1's number for it
        return None
    lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    stat = {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}
    files = stat.get("inactive_file", 0) + stat.get("active_file", 0)  # given back when memory is wanted
    return max(0, int(limit) - int((folder / used).read_text(encoding="ascii")) + files)


def _free_of_limit() -> int | None:
    """Bytes below the limit that a shell (ulimit -v) or a scheduler has set for this process."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))
    except (ImportError, OSError, ValueError):
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
        if (
            func in _MAKERS and torch.device((kwargs or {}).get("device") or "cpu").type != "meta"
        ):  # which has no memory
            self.made += _count(args, kwargs or {})
            if self.made > self.most:
                raise self.refuse(self.made)
        return func(*args, **(kwargs or {}))


def _count(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """How many numbers a call such as ``torch.empty(3, 4)`` or ``torch.zeros((3, 4))`` makes."""
    size = args[0] if args and not isinstance(args[0], (int, float)) else kwargs.get("size", args)
    return math.prod(int(length) for length in size) if isinstance(size, Sequence) else 0
