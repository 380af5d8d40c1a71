"""Peak memory of a call, as Linux counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchcaps.errors import StateError

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def can_measure() -> bool:
    """Whether this system tells, which Linux does."""
    try:
        CLEAR.write_text("5")
        return _read_status("VmHWM") > 0
    except (OSError, RuntimeError):
        return False


def _read_status(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise StateError(f"{STATUS} has no {field}")


def measure_peak(function: Callable[[], object]) -> tuple[int, int]:
    """Resident bytes before a call, and the most while it runs."""
    before = _read_status("VmRSS")
    CLEAR.write_text("5")  # resets the peak
    function()
    return before, _read_status("VmHWM")
