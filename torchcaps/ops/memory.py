"""Memory that is kept for the next call: large tensors without the price of fresh pages.

torch gives back what a large tensor took, and the system clears every page again when the next one asks for it. That
is several times as slow as writing to memory one has. What is given out here comes back when the last tensor that
shares it is gone, and is given out again.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

LEAST = 1 << 20
"""Bytes below which torch's own memory serves: malloc keeps such pieces itself."""
MOST_KEPT = 1 << 29
"""Bytes that may wait for the next call; what comes back beyond is released, that which has waited longest first."""
_PAGE = 1 << 21  # of the large pages that Linux has


class KeptMemory:
    """Gives out tensors and keeps their memory. Any number of threads may ask.

    Args:
        most: bytes that may wait.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self.most = most
        self._waiting: list[mmap.mmap] = []  # those that wait longest first
        # A tensor may end at any line, even while this thread holds the lock; what it gives back waits here.
        self._returned: deque[mmap.mmap] = deque()
        self._lock = threading.Lock()

    def empty(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> Tensor:
        """A tensor that holds anything, as :func:`torch.empty`."""
        count = prod(shape)
        size = count * dtype.itemsize
        if size < LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
            return torch.empty(tuple(shape), dtype=dtype, memory_format=memory_format)
        view = memoryview(block := self._take(size))
        weakref.finalize(view, self._returned.append, block).atexit = False
        storage = torch.frombuffer(view, dtype=dtype, count=count).untyped_storage()
        strides = torch.empty(tuple(shape), device="meta", memory_format=memory_format).stride()
        # No view of another tensor: whoever gets it may change it in place.
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape), strides)

    def waiting(self) -> int:
        """Bytes that wait for the next call."""
        with self._lock:
            self._collect()
            return sum(map(len, self._waiting))

    def release(self) -> None:
        """Give all memory that waits back to the system."""
        with self._lock:
            self._collect()
            self._waiting.clear()

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            self._collect()
            fitting = [block for block in self._waiting if size <= len(block) <= max(5 * size // 4, size + _PAGE)]
            if fitting:
                block = min(fitting, key=len)
                self._waiting.remove(block)
                return block
        block = mmap.mmap(-1, -(-size // _PAGE) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a system without large pages: small ones serve
                block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _collect(self) -> None:
        while self._returned:
            self._waiting.append(self._returned.popleft())
        while sum(map(len, self._waiting)) > self.most:
            self._waiting.pop(0)


kept = KeptMemory()
"""What the convolutions take their memory from."""


def empty_cache() -> None:
    """Give the memory that is kept for further convolutions back to the system, as ``torch.cuda.empty_cache`` does."""
    from torchcaps.ops.conv.cpu import spectra

    spectra.clear()
    kept.release()
