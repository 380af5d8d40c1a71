"""Files that are opened with suspicion, and files that are written whole or not at all.

What is read may come from anyone: it is a regular file of a bounded size, and it becomes plain data (strings, numbers,
lists, maps) of a bounded depth before anything looks at it. Nothing in it is imported, called or followed elsewhere.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from torchcaps.errors import FileError
from torchcaps.extras import comes_with_an_extra

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Commands to terminals, changes of the direction of writing, and halves of characters, which cannot be written."""
MOST_TEXT = 100_000
"""Bytes of a recipe or another small file that people write: ours have less than 3,000."""
MOST_JSON = 10_000_000
"""Characters of JSON that programs write: the numbers of a report have less than 200,000."""
MOST_PIECE = 10_000_000
"""Bytes of a line among many."""
MOST_NUMBER = 2**63
MOST_NODES, MOST_DEPTH = 100_000, 20
"""Values in plain data, and how deep they may lie inside each other."""
MOST_UNPACKED, MOST_RATIO = 100_000_000, 200
"""A packed file may unpack to so many bytes, or to so many times its size. Deflate reaches 1,000 times for zeros."""


def read_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """All of a regular file.

    Args:
        path: of the file; a pipe or a device, which may never end, is refused.
        most: bytes; a larger file is refused before it is read.
    """
    try:
        with open(_open(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if most is not None and size > most:
                raise FileError(f"{path} has {size:,} bytes, more than the {most:,} that it could need.")
            return file.read() if most is None else file.read(most)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:  # a NUL in a name
        raise FileError(f"{os.fspath(path)!r} is no name of a file: {error}.") from None


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, to be read piece by piece; a pipe or a device, which may never end, is refused."""
    try:
        return open(_open(path), "rb")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise FileError(f"{os.fspath(path)!r} is no name of a file: {error}.") from None


def split_stream(stream: BinaryIO, separator: bytes = b"\n", most: int = MOST_PIECE) -> Iterator[bytes]:
    """The pieces of a stream between separators, each as soon as it is there; what is after the last one, too.

    Args:
        stream: a file or a pipe, open for reading.
        separator: a single byte, which is in no piece.
        most: bytes of a piece; a longer one is refused.
    """
    rest = b""
    while chunk := stream.read1(65_536):  # type: ignore[attr-defined] # what is there, without waiting for more
        *pieces, rest = (rest + chunk).split(separator)
        for piece in [*pieces, rest]:
            if len(piece) > most:
                raise FileError(f"it has more than {most:,} bytes in one line.")
        yield from pieces
    if rest:
        yield rest


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raise unless a path is that of a regular file: reading a pipe or a device may never end."""
    try:
        _require_regular(path, os.stat(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise FileError(f"{os.fspath(path)!r} is no name of a file: {error}.") from None


def _open(path: str | os.PathLike[str]) -> int:
    """A regular file, opened without waiting for whoever might write to a pipe."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _require_regular(path, os.fstat(handle))
    except FileError:
        os.close(handle)
        raise
    return handle


def _require_regular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise FileError(f"{path} is {kind}, not a file.")


def read_text(path: str | os.PathLike[str], most: int = MOST_TEXT) -> str:
    """A small UTF-8 file."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None


def unpack_gzip(content: bytes, path: object) -> bytes:
    """What gzip packed, unless it is many times larger than any data would be."""
    most = max(MOST_UNPACKED, MOST_RATIO * len(content))
    unpacked, rest = bytearray(), content
    while rest.strip(b"\0"):  # a file may hold several packed parts one after the other, and zeros at the end
        unpacker = zlib.decompressobj(wbits=31)
        try:
            unpacked += unpacker.decompress(rest, most - len(unpacked) + 1)
        except zlib.error as error:
            raise FileError(f"{path} cannot be read: {error}. If it is damaged, get it again.") from error
        if len(unpacked) > most:
            raise FileError(f"{path} unpacks to more than {MOST_RATIO} times its size, which no data does.")
        if not unpacker.eof:
            raise FileError(f"{path} cannot be read: it is cut short. If it is damaged, get it again.")
        rest = unpacker.unused_data
    return bytes(unpacked)


def parse_json(text: str, what: object) -> Any:
    """Plain data from JSON; ``what`` names it in errors."""
    if len(text) > MOST_JSON:
        raise FileError(f"{what} has {len(text):,} characters of JSON, more than the {MOST_JSON:,} that it could need.")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise FileError(f"{what} is not JSON: {reason}.") from None
    require_plain(value, what)
    return value


def read_json(path: str | os.PathLike[str]) -> Any:
    """Plain data from a JSON file."""
    return parse_json(read_text(path, MOST_JSON), path)


def dump_json(value: Any, indent: int | None = None, ascii_only: bool = False) -> str:
    """Plain data as JSON that every program reads: what is no finite number is null, and all of it can be printed.

    Names of files that are not UTF-8 keep their bytes as escapes, which Python's ``json`` reads back.

    Args:
        value: strings, numbers, truth values, None, and lists, tuples and maps of these.
        indent: of what lies inside; not given: all in one line.
        ascii_only: escape all other letters, for a reader of another encoding.
    """
    return make_printable(json.dumps(make_plain(value), indent=indent, ensure_ascii=ascii_only, allow_nan=False))


def write_json(path: Path, value: Any) -> None:
    """Plain data as a JSON file, all of it or nothing."""
    write_text(path, dump_json(value, indent=2) + "\n")


def make_plain(value: Any) -> Any:
    """As JSON can hold it: what is no number becomes null."""
    if isinstance(value, Mapping):
        return {str(name): make_plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def parse_yaml(text: str, what: object) -> Any:
    """Plain data from YAML: no tags that make objects, no aliases, no key twice; ``what`` names it in errors."""
    with comes_with_an_extra():
        import yaml

    from torchcaps.plain_yaml import PlainLoader

    if len(text) > MOST_TEXT:
        raise FileError(f"{what} has {len(text):,} characters, more than the {MOST_TEXT:,} that it could need.")
    try:
        value = yaml.load(text, Loader=PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise FileError(f"{what} is not YAML: {error.problem or error.context}{where}.") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).split("\n")[0]
        raise FileError(f"{what} is not YAML: {reason}.") from None
    require_plain(value, what)
    return value


def require_plain(value: Any, what: object) -> None:
    """Raise unless a value is strings, numbers, truth values, None, and lists and maps of these, not too many."""
    waiting, nodes = [(value, 0)], 0
    while waiting:
        entry, depth = waiting.pop()
        nodes += 1
        if nodes > MOST_NODES or depth > MOST_DEPTH:
            raise FileError(f"{what} holds more than {MOST_NODES:,} values, or nests them deeper than {MOST_DEPTH}.")
        if isinstance(entry, dict):
            strange = [key for key in entry if not isinstance(key, str)]
            if strange:
                raise FileError(f"{what} has the key {strange[0]!r:.60}, which is no text. Put it into quotes.")
            waiting += [(part, depth + 1) for part in entry.values()]
        elif isinstance(entry, list):
            waiting += [(part, depth + 1) for part in entry]
        elif isinstance(entry, int) and abs(entry) >= MOST_NUMBER:
            raise FileError(f"{what} holds a whole number beyond 2^63.")
        elif not (entry is None or isinstance(entry, (str, int, float))):
            raise FileError(f"{what} holds {entry!r:.60}, which is no text, number, list or map.")


def make_printable(text: str) -> str:
    """A text whose control characters are spelled out, as JSON does: a name from a file must not command a terminal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def require_inside(folder: Path, *names: str) -> None:
    """Raise if any of these entries of a folder is a link that leads out of it: nothing is written elsewhere."""
    root = os.path.realpath(folder)
    for name in names:
        path = folder / name
        target = os.path.realpath(path)  # of a link to itself the link
        if not Path(target).is_relative_to(root):
            raise FileError(f"{path} is a link that leads out of {folder}, to {target}. Delete the link.")


@contextmanager
def make_folders(folder: Path) -> Iterator[Path]:
    """A folder and those above it; if what is done inside fails, the new ones that are still empty go away again."""
    try:
        new = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = "a file is in its place" if isinstance(error, FileExistsError) else getattr(error, "strerror", error)
        raise FileError(f"the folder {make_printable(str(folder))} cannot be made: {reason}.") from error
    try:
        yield folder
    except BaseException:
        with suppress(OSError):  # one that is not empty ends it: others use it by now
            for place in new:
                place.rmdir()
        raise


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a temporary file, which takes the place of ``path`` when it is complete and on disk."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        write(Path(temporary))
        _sync(Path(temporary))
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        _sync(path.parent)  # a file's new name is in its folder
    finally:
        Path(temporary).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # there folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_text(path: Path, text: str) -> None:
    """A small text file, all of it or nothing."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """A file, all of it or nothing."""
    write_atomically(path, lambda temporary: _write(temporary, content))


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
