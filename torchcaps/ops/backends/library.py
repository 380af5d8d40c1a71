"""The library of kernels: found, loaded, checked, and called through plain C.

Every function takes one struct of 64-bit numbers and addresses. The struct is written once, in C; the library says
which fields it has and in which order, and a call is packed by their names. A library that has another number of the
interface, or other fields than Python fills, is of another version: it is refused, and torch serves.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping
from pathlib import Path

import torch

from torchcaps.errors import StateError

ABI = 2
"""Of the interface: raised in csrc/common/call.h and here when the meaning of a field changes."""
SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}
VARIANTS = ("portable", "AVX2", "AVX-512")
REINSTALL = (
    "Build it again: pip install --no-cache-dir --force-reinstall --no-deps torchcaps, or make setup in a clone."
)


class Function:
    """A function of the library, for every type of number."""

    def __init__(self, library: ctypes.CDLL, name: str, fields: tuple[str, ...]) -> None:
        self._fields, self._pack = fields, struct.Struct(f"{len(fields)}q").pack
        self._functions = {}
        for dtype, suffix in SUFFIXES.items():
            function = getattr(library, f"torchcaps_{name}_{suffix}")
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int64
            self._functions[dtype] = function

    def __call__(self, dtype: torch.dtype, values: Mapping[str, int]) -> int:
        """Call it; ``values`` has every field of its struct."""
        found: int = self._functions[dtype](self._pack(*[values[name] for name in self._fields]))
        return found


class Library:
    """The loaded kernels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.torchcaps_fields.argtypes, library.torchcaps_fields.restype = [ctypes.c_char_p], ctypes.c_char_p
        library.torchcaps_option.argtypes, library.torchcaps_option.restype = [ctypes.c_char_p], ctypes.c_int64
        library.torchcaps_use_variant.argtypes = [ctypes.c_int]
        self._options: dict[str, int] = {}

    @property
    def variant(self) -> str:
        """The instruction set in use."""
        return VARIANTS[self._library.torchcaps_variant()]

    def use_variant(self, name: str) -> str:
        """Use another instruction set, if the processor has it; returns the one in use."""
        return VARIANTS[self._library.torchcaps_use_variant(VARIANTS.index(name))]

    def fields(self, call: str) -> tuple[str, ...]:
        """The fields of the struct of that name, in their order; none if it is unknown."""
        return tuple((self._library.torchcaps_fields(call.encode()) or b"").decode().split())

    def mismatch(self, call: str, expected: frozenset[str]) -> str | None:
        """Why a struct of the library cannot be filled by this version of the package, None if it can."""
        own = set(self.fields(call))
        if own == expected:
            return None
        return (
            f"the library of kernels is of another version: the call {call!r} lacks {sorted(expected - own) or 'none'}"
            f" and has {sorted(own - expected) or 'nothing'} too many. {REINSTALL}"
        )

    def function(self, name: str, call: str) -> Function:
        """A function that takes the struct named ``call``."""
        return Function(self._library, name, self.fields(call))

    def option(self, name: str) -> int:
        """The number by which the library knows an option such as a kind of squash."""
        found = self._options.get(name)
        if found is None:
            found = int(self._library.torchcaps_option(name.encode()))
            if found < 0:
                raise StateError(f"the library of kernels does not know the option {name!r}. {REINSTALL}")
            self._options[name] = found
        return found


def _share_openmp() -> None:
    """Make the OpenMP runtime that torch brings visible to the kernel, or else the system's."""
    bundled = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    for candidate in (*map(str, bundled), "libgomp.so.1"):
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
            return
        except OSError:
            continue


def open_library(path: Path) -> tuple[Library | None, str]:
    """A library of kernels, or None and why it is not used."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"{path.name} cannot be loaded: {error}"
    try:
        found = library.torchcaps_abi()
    except AttributeError:
        found = None
    if found != ABI:
        return None, (
            f"{path.name} is of another version of torchcaps: its interface has the number {found or 'of none'}, "
            f"expected {ABI}. {REINSTALL}"
        )
    return Library(library), ""


@functools.cache
def load_library() -> tuple[Library | None, str]:
    """The library of the package, or None and why it is not used."""
    found = sorted(Path(__file__).parents[2].glob("_native*.so"))
    if not found:
        return None, "the package was installed without a C++ compiler; install one and reinstall torchcaps"
    _share_openmp()
    return open_library(found[0])
