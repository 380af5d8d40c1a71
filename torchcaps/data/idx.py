"""The IDX format of MNIST and its relatives."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.files import check_md5
from torchcaps.errors import DataError, FileError
from torchcaps.io import read_bytes, unpack_gzip


def read_idx(path: Path, dimensions: int, md5: str | None = None) -> Tensor:
    """An array of bytes from an IDX file, gzipped or not, uint8; ``md5`` is that of the unpacked content.

    The header is two zero bytes, the type (8: unsigned bytes), the number of dimensions, and each size as a big-endian
    32-bit number; the data follow, the last dimension fastest (Y. LeCun, yann.lecun.com/exdb/mnist).
    """
    try:
        content = read_bytes(path)
        if path.suffix == ".gz":
            content = unpack_gzip(content, path)
    except FileError as error:
        raise DataError(f"{error} It may be cut short; fetch it again.") from error
    header = 4 + 4 * dimensions
    if content[:3] != b"\0\0\x08" or len(content) < header or content[3] != dimensions:
        raise DataError(
            f"{path} is not an IDX file of bytes with {dimensions} dimensions; its header is {content[:4]!r}."
        )
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    wanted = 1
    for size in shape:
        wanted *= size
    if len(content) - header != wanted:
        raise DataError(
            f"{path} is cut short or damaged: {'×'.join(map(str, shape))} numbers were announced, "
            f"{len(content) - header} are there. Fetch it again."
        )
    if md5:
        check_md5(path, [content], md5)
    array = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return array[header:].view(*shape)
