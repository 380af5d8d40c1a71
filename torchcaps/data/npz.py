"""Arrays of an .npz file, looked at before they are unpacked: what a small file claims may not fit into any memory."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from torchcaps.errors import DataError, FileError
from torchcaps.io import MOST_RATIO, MOST_UNPACKED, require_regular
from torchcaps.machine import require_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_LETTERS = 10_000
"""In a text of an array of texts, all of which take the memory of the longest."""


class ArrayHeader(NamedTuple):
    """What an array says of itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """That it takes in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_headers(path: Path, advice: str) -> dict[str, ArrayHeader]:
    """The arrays that a file has, without their content; ``advice`` says how such a file is made."""
    try:
        import numpy  # noqa: F401 - the parts of the archive are read with it
    except ImportError as error:
        raise DataError("reading .npz files needs NumPy: pip install numpy") from error
    try:
        require_regular(path)
        with path.open("rb") as file:
            single = file.read(6) == b"\x93NUMPY"
    except FileError as error:
        raise DataError(f"{error} {advice}") from None
    if single:
        raise DataError(f"{path} is a single array, not an .npz file. {advice}")
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                part.filename.removesuffix(".npy"): _read_header(archive, part)
                for part in archive.infolist()
                if part.filename.endswith(".npy")
            }
    except Exception as error:  # a damaged archive or header raises one of many kinds
        raise DataError(
            f"{path} is not an .npz file of arrays (pickles are not opened: they can run code). {advice}"
        ) from error


def _read_header(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> ArrayHeader:
    import numpy as np

    with archive.open(part) as file:
        version = np.lib.format.read_magic(file)
        read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(_shorten(file))
    return ArrayHeader(tuple(shape), dtype)


def _shorten(file: IO[bytes]) -> IO[bytes]:
    """The beginning of a file: a header is not longer."""
    from io import BytesIO

    return BytesIO(file.read(20_000))


def read_arrays(
    path: Path, names: Sequence[str], headers: dict[str, ArrayHeader], advice: str
) -> dict[str, NDArray[Any]]:
    """The arrays of these names, unless they hold objects or unpack to what no data and no memory has room for."""
    import numpy as np

    for name in names:
        if headers[name].dtype.hasobject:
            raise DataError(
                f"{name} in {path} : Python objects (dtype object) are refused, because loading them can run "
                f"code. Convert them to numbers or unicode strings. {advice}"
            )
        if headers[name].dtype.kind == "U" and headers[name].dtype.itemsize > 4 * MOST_LETTERS:
            raise DataError(f"{name} in {path} has texts of more than {MOST_LETTERS:,} letters. {advice}")
    needed, packed = sum(headers[name].bytes for name in names), path.stat().st_size
    if needed > max(MOST_UNPACKED, MOST_RATIO * packed):
        raise DataError(
            f"{path} has {packed:,} bytes and claims to hold {needed:,}, more than {MOST_RATIO} times as many. Images "
            "of nothing? Save it without compression if it is meant: np.savez(file, x=images, y=labels)."
        )
    require_memory(2 * needed, f"{path}", "Give a part of it.")  # once as it is, once as the pixels or numbers used
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in names}
    except Exception as error:  # a damaged archive raises one of many kinds
        raise DataError(f"{path} cannot be read: {error}. {advice}") from error
