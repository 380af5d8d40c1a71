"""Where data files are looked for, how they are checked, and how they are fetched."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import DataError

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with a file's name, bytes so far, and the expected number or None."""


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its name, md5, and where it can be had."""

    name: str
    md5: str
    url: str


def data_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where data is looked for, in order: the folder given, ``TORCHCAPS_DATA``, the user's cache."""
    folders = [Path(data_dir)] if data_dir else []
    if os.environ.get("TORCHCAPS_DATA"):
        folders.append(Path(os.environ["TORCHCAPS_DATA"]))
    return [*folders, cache_folder()]


def cache_folder() -> Path:
    """The user's cache: ``$XDG_CACHE_HOME/torchcaps`` or what the system has in its place."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "torchcaps"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torchcaps"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "torchcaps" / "cache"
    return Path.home() / ".cache" / "torchcaps"


def find_file(folders: Sequence[Path], name: str) -> Path | None:
    """The first folder's file of that name, or the same without ``.gz``."""
    for folder in folders:
        for candidate in (folder / name, folder / name.removesuffix(".gz")):
            if candidate.is_file():
                return candidate
    return None


def require_file(
    data_set: str, folders: Sequence[Path], file: RemoteFile, download: bool, progress: DownloadProgress | None = None
) -> Path:
    """A data set's file, found in one of the folders or else downloaded to the first of them."""
    path = find_file(folders, file.name)
    if path is not None:
        return path
    if download:
        return fetch(file, folders[0], progress)
    looked = " or ".join(str(folder / file.name) for folder in folders)
    raise DataError(
        f"{data_set} is not here: {file.name} was looked for as {looked}. "
        f"Run `torchcaps data get {data_set}`, or put the file from {file.url} into one of these folders."
    )


def print_progress(name: str, done: int, total: int | None) -> None:
    """How far a download is, on a terminal."""
    if sys.stderr.isatty():
        part = f" of {total / 1e6:.1f}" if total else ""
        end = "\n" if total and done >= total else ""
        print(f"\r{name}: {done / 1e6:.1f}{part} MB", end=end, file=sys.stderr, flush=True)  # noqa: T201


def read_parts(path: Path) -> Iterator[bytes]:
    """The content of a file, a part at a time."""
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            yield part


def check_md5(path: Path, content: Iterable[bytes | bytearray], expected: str) -> None:
    """Refuse content, of a file or unpacked from it, whose md5 is not the published one."""
    digest = hashlib.md5(usedforsecurity=False)
    for part in content:
        digest.update(part)
    if digest.hexdigest() != expected:
        raise DataError(
            f"{path} is damaged or another version: the md5 of its content is {digest.hexdigest()}, the published file "
            f"has {expected}. Delete it and fetch it again."
        )


def fetch(file: RemoteFile, folder: Path, progress: DownloadProgress | None = None, timeout: float = 30) -> Path:
    """Download a file into a folder. It appears under its name only when it is complete and its md5 is right."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=f".{file.name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(file.url, timeout=timeout) as response:
            total = response.headers.get("Content-Length")
            done = 0
            while part := response.read(1 << 16):
                out.write(part)
                done += len(part)
                if progress:
                    progress(file.name, done, int(total) if total else None)
        check_md5(Path(partial), read_parts(Path(partial)), file.md5)
        target = folder / file.name
        os.replace(partial, target)
        return target
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise DataError(
            f"{file.name} could not be downloaded from {file.url}: {error}. Or put the file into {folder}."
        ) from error
    finally:
        Path(partial).unlink(missing_ok=True)
