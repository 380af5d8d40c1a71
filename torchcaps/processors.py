"""How busy this machine's processors are, and what to do beside other programs. No torch here: some of it comes before.

Threads that work together wait for each other many times in a training step. They wait by spinning, which is fastest on
an idle machine; where another program has one of the processors, a spinning thread keeps it from the very thread that
all wait for, and a step takes many times as long.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import NamedTuple

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables of the environment by which a user says how threads wait; then nothing is decided here."""
LOOKS, PAUSE = 7, 0.004


class Load(NamedTuple):
    """What has happened on the processors that this process may use, in seconds since the machine was started.

    Attributes:
        busy: time in which they worked for anyone, summed over them.
        waited: time that threads of this process were ready and had none, summed over threads.
    """

    busy: float
    waited: float


def count_processors() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_load(proc: Path = Path("/proc")) -> Load | None:
    """The load so far; None where the system does not tell, such as outside Linux."""
    try:
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        busy = 0
        for line in (proc / "stat").read_text(encoding="ascii").splitlines():
            name, *times = line.split()
            if name in allowed:
                user, nice, system, _, _, irq, soft, steal, *_ = map(int, times)
                busy += user + nice + system + irq + soft + steal
        waited = 0
        for thread in os.listdir(proc / "self" / "task"):
            try:
                waited += int((proc / "self" / "task" / thread / "schedstat").read_text(encoding="ascii").split()[1])
            except FileNotFoundError:  # a thread that has ended since
                continue
        return Load(busy / os.sysconf("SC_CLK_TCK"), waited / 1e9)
    except (AttributeError, OSError, ValueError, IndexError):
        return None


def count_running(proc: Path = Path("/proc")) -> int | None:
    """Threads of all programs that run or could run at this moment, this one among them."""
    try:
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("procs_running"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def is_shared(
    processors: int,
    threads_each: int = 1,
    running: Callable[[], int | None] = count_running,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether other programs run on processors that a team of threads would want, looked at several times.

    Args:
        processors: that this process may use.
        threads_each: threads that a core holds at once; a team has one for each core.
        running: see :func:`count_running`.
        pause: between two looks.
    """
    others = []
    for _ in range(LOOKS):
        found = running()
        if found is None:
            return False
        others.append(found - 1)
        pause(PAUSE)
    typical = statistics.median(others)
    return typical >= 1 and typical + processors // threads_each > processors


def _threads_each(place: Path = Path("/sys/devices/system/cpu/smt/active")) -> int:
    try:
        return 2 if place.read_text(encoding="ascii").strip() == "1" else 1
    except OSError:
        return 1


def wait_gently(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Let threads that wait for each other sleep, not spin, if other programs are running; before torch is imported.

    Results are the same to the bit. On an idle machine nothing is done, because spinning is faster there.

    Args:
        environment: of this process, which the library of the threads reads when it is loaded.
    """
    if any(name in environment for name in WAITING) or count_processors() < 2:
        return False
    if not is_shared(count_processors(), _threads_each()):
        return False
    environment["OMP_WAIT_POLICY"] = "passive"
    return True
