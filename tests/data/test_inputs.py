"""Where inputs are found: pieces of streams, columns of tables."""

import io
import os

import pytest

from torchcaps.data.columns import read_column
from torchcaps.data.inputs import Tally, find_files, find_images
from torchcaps.data.text.inputs import find_texts
from torchcaps.errors import FileError
from torchcaps.io import split_stream


@pytest.fixture
def told():
    return []


@pytest.fixture
def tally(told):
    return Tally(lambda name, error: told.append((name, str(error))))


@pytest.mark.parametrize("size", [1, 2, 3, 65_536])
def test_pieces_of_a_stream(size):
    """However little of it is there at a time."""

    class Slow(io.BytesIO):
        def read1(self, most):
            return super().read1(min(most, size))

    assert list(split_stream(Slow(b"a\n\nbcd\n"))) == [b"a", b"", b"bcd"]
    assert list(split_stream(Slow(b"a\nb\0c"), b"\0")) == [b"a\nb", b"c"]
    assert list(split_stream(Slow(b""))) == []
    with pytest.raises(FileError, match="more than 3 bytes in one line"):
        list(split_stream(Slow(b"a\nabcd\n"), most=3))


def test_a_line_is_there_before_the_next_is_written():
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream, os.fdopen(write, "wb", buffering=0) as sink:
        lines = split_stream(stream)
        for line in (b"one", b"two"):
            sink.write(line + b"\n")
            assert next(lines) == line


def test_a_line_that_never_ends_is_told(tally, told, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\n" + b"x" * 10_100_000)
    assert list(find_texts([str(tmp_path)], tally)) == ["good"]
    assert "more than 10,000,000 bytes" in told[0][1]


@pytest.mark.parametrize("header", ["text,other", "other;text", "other\ttext", '"text","other"', " text , other"])
def test_the_delimiter_is_found(header, tally, told):
    delimiter = next(sign for sign in ",;\t" if sign in header)
    place = header.split(delimiter).index(next(name for name in header.split(delimiter) if "text" in name))
    row = delimiter.join("good" if at == place else "1" for at in range(2))
    cells = read_column(iter([header.encode(), b"", row.encode()]), "t", ["text"], tally)
    assert [tuple(cell) for cell in cells] == [("good", 3)]
    assert not told


def test_a_column_twice_is_refused(tally, told):
    assert list(read_column(iter([b"text,text", b"a,b"]), "t", ["text"], tally)) == []
    assert "more than one 'text'" in told[0][1]


def test_a_field_that_is_too_long_does_not_stop_the_rest(tally, told):
    lines = [b"text", b'"' + b"x" * 200_000 + b'"', b"good"]
    assert [cell.value for cell in read_column(iter(lines), "t", ["text"], tally)] == ["good"]
    assert "line 2 of t is no proper CSV" in told[0][1]


def test_a_pipe_in_a_folder_is_not_waited_for(tally, told, tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "b.csv")
    assert list(find_texts([str(tmp_path)], tally)) == []
    assert len(told) == 2
    assert "a pipe, a socket or a device" in told[0][1]


def test_a_folder_that_cannot_be_opened_is_told(tally, told, tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert list(find_files(str(tmp_path), (".png",), tally)) == []
    assert told == [(str(tmp_path), f"{tmp_path} cannot be opened: Permission denied.")]


def test_files_are_found_one_by_one(tally, tmp_path):
    """What comes later in a folder need not be there yet."""
    for number in range(3):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "a.png").touch()
    found = find_images([str(tmp_path)], tally)
    assert next(found).endswith(os.path.join("0", "a.png"))
    (tmp_path / "1" / "b.png").touch()
    assert [os.path.relpath(path, tmp_path) for path in found] == ["1/a.png", "1/b.png", "2/a.png"]
