"""One process trains in a run folder at a time.

The lock is the kernel's, on the file ``.lock`` in the folder: it ends with the process that holds it, however that
ends, so a lock is never stale. It holds between machines where the network's file system passes locks on, as NFS and
SMB do; where a file system has none, training goes on and says so.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchcaps.errors import FileError, TorchcapsError
from torchcaps.io import dump_json, make_printable, read_json, require_inside

LOCK = ".lock"
SECONDS_BETWEEN = 0.2
"""Between two looks at a lock that is waited for."""
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link elsewhere, no waiting pipe


class LockedError(TorchcapsError):
    """Another process holds the lock; the message says which."""


@contextmanager
def locked(folder: Path, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a run folder.

    Args:
        folder: of the run.
        say: told if this file system has no locks.

    Raises:
        LockedError: another process has it.
    """
    path = folder / LOCK
    require_inside(folder, LOCK)
    try:
        handle = os.open(path, os.O_CREAT | _FLAGS, 0o666)
    except OSError as error:
        raise FileError(f"{path} cannot be made: {error.strerror}.") from error
    try:
        if not _lock(handle) or not _is_at(handle, path):  # or who had it has just ended, and taken the file away
            raise LockedError(f"{folder} is in use: {_describe_holder(path)} trains there. Wait for it, or stop it.")
    except OSError as error:
        os.close(handle)
        path.unlink(missing_ok=True)
        if say:
            say(f"{folder} cannot be locked ({error.strerror}): let no other process train there.")
        yield
        return
    except LockedError:
        os.close(handle)
        raise
    try:
        who = {"process": os.getpid(), "machine": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(handle, 0)
        os.write(handle, dump_json(who).encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: nobody else's
        os.close(handle)


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made; wait while another process has it. Without locks, go on without."""
    handle = os.open(path, os.O_CREAT | _FLAGS, 0o666)
    try:
        with suppress(OSError):
            while not _lock(handle):
                time.sleep(SECONDS_BETWEEN)
        yield
    finally:
        os.close(handle)


def find_holder(folder: Path) -> str | None:
    """Who trains in a folder, None if nobody does."""
    path = folder / LOCK
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        return None if _lock(handle) else _describe_holder(path)
    except OSError:
        return None
    finally:
        os.close(handle)  # and with it the lock, if it was free


def _lock(handle: int) -> bool:
    """Take the lock if it is free. Raises OSError where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _lock_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_on_windows(handle: int) -> bool:
    import msvcrt

    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except PermissionError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _describe_holder(path: Path) -> str:
    try:
        holder = read_json(path)
        since, machine = make_printable(str(holder["since"]))[:40], make_printable(str(holder["machine"]))[:100]
        return f"process {int(holder['process'])} on {machine}, since {since},"
    except (FileError, KeyError, TypeError, ValueError):
        return "another process"
