"""Progress of what takes longer than a few seconds: bars on stderr, because numbers go to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable

Ticks = Callable[[int], None]
"""Told how many more are done."""

Progress = Callable[[str, int], Ticks]
"""Called with a name for the work and the number of its pieces; gives a function to call as pieces are done."""


def silent(_: str, __: int) -> Ticks:
    """No bar."""
    return lambda _: None


def bars() -> Progress:
    """A bar that vanishes when all is done; nothing where stderr is not read by a person."""
    if not sys.stderr.isatty():
        return silent
    from tqdm import tqdm

    def progress(text: str, total: int) -> Ticks:
        line = tqdm(total=total, desc=text, leave=False, file=sys.stderr, delay=1)

        def tick(count: int) -> None:
            line.update(count)
            if line.n >= total:
                line.close()

        return tick

    return progress
