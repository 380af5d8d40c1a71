"""What hostile input may cost and do: two seconds, 300 MB, no import, no call, no file written outside its folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_SECONDS = 2.0
MOST_MEGABYTES = 300
CANARY = "torchcaps_canary"
"""A module that nothing in the package imports; hostile input asks for it."""

_CALLS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn")
_NETWORK = ("socket.connect", "socket.getaddrinfo", "urllib.Request")
_CHANGES = ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.symlink", "os.link", "os.chmod", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IGNORED = ("/dev/", "/proc/")


class Watch:
    """What Python's audit hook has seen while it was on."""

    def __init__(self) -> None:
        self.on = False
        self.folder = Path()
        self.misdeeds: list[str] = []

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See ``sys.addaudithook``; it cannot be taken off again, so it is switched."""
        if not self.on:
            return
        if event == "import" and str(arguments[0]).split(".")[0] == CANARY:
            self.misdeeds.append(f"imported {arguments[0]}")
        elif event.startswith(_CALLS):
            self.misdeeds.append(f"called {event} {arguments[:1]}")
        elif event.startswith(_NETWORK) and not (event == "socket.connect" and isinstance(arguments[1], str)):
            self.misdeeds.append(f"used the network: {event}")
        elif (event == "open" and arguments[2] and arguments[2] & _WRITING) or event in _CHANGES:
            self._written(arguments[0])

    def _written(self, path: Any) -> None:
        if isinstance(path, int):
            return
        place = os.path.realpath(os.fsdecode(path))
        inside = Path(place).is_relative_to(self.folder.resolve())
        if not inside and not place.startswith(_IGNORED) and "__pycache__" not in place:
            self.misdeeds.append(f"wrote {place}")


_watch = Watch()
sys.addaudithook(_watch.hook)


def peak_megabytes() -> float:
    """The most memory this process has held since :func:`_reset_peak`; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # not Linux: then the peak does not fall, and nothing is measured


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Fail if what is done inside costs too much or does what hostile input must not do.

    Time is that of the processor: the tests run beside each other.

    Args:
        folder: where files may be written.
    """
    _reset_peak()
    before, began = peak_megabytes(), time.process_time()
    _watch.folder, _watch.misdeeds, _watch.on = folder, [], True
    try:
        yield
    finally:
        _watch.on = False
    seconds, megabytes = time.process_time() - began, peak_megabytes() - before
    assert not _watch.misdeeds, _watch.misdeeds
    assert seconds < MOST_SECONDS, f"took {seconds:.1f} s"
    assert megabytes < MOST_MEGABYTES, f"took {megabytes:.0f} MB"


def assert_sentence(message: str) -> None:
    """One readable refusal: words, an end, nothing of Python's, no control characters."""
    assert message.strip(), "nothing was said"
    assert message.strip().endswith((".", "?")) or "\n" in message, message
    assert "Traceback" not in message
    assert not any(ord(letter) < 32 and letter != "\n" for letter in message), repr(message)
    assert len(message) < 2_000, len(message)
