"""The paths that this machine has: torch, and the kernel by each of its processor's instruction sets."""

from contextlib import contextmanager

from torchcaps.ops.backends import use_backend
from torchcaps.ops.backends.library import VARIANTS as ALL
from torchcaps.ops.backends.library import load_library

library, REASON = load_library()
HAS_KERNEL = library is not None
VARIANTS = list(ALL[: ALL.index(library.variant) + 1]) if HAS_KERNEL else []
PATHS = ["torch", *VARIANTS]


@contextmanager
def on_path(name):
    """Within this context everything is computed there."""
    if name == "torch":
        with use_backend("torch"):
            yield
        return
    before = library.variant
    assert library.use_variant(name) == name
    try:
        with use_backend("cpu"):
            yield
    finally:
        library.use_variant(before)
