"""Files: found, fetched, checked; nothing half-written stays."""

import gzip
import hashlib
import http.server
import importlib
import struct
import threading

import pytest
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.files import RemoteFile, cache_folder, data_folders, fetch
from torchcaps.data.idx import read_idx
from torchcaps.data.registry import dataset_class
from torchcaps.errors import DataError

mnist_module = importlib.import_module("torchcaps.data.datasets.mnist")


def idx(array):
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes([0, 0, 8, array.dim()]) + sizes + array.numpy().tobytes()


IMAGES = torch.arange(2 * 4 * 4, dtype=torch.uint8).view(2, 4, 4)
LABELS = torch.tensor([3, 7], dtype=torch.uint8)


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    """A data folder with two digits as MNIST, and checksums to match."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    md5 = {}
    for (_, part), name in mnist_module.NAMES.items():
        content = idx(IMAGES if part == "images" else LABELS)
        (folder / name).write_bytes(gzip.compress(content))
        md5[name] = ("", hashlib.md5(content).hexdigest())
    monkeypatch.setattr(mnist_module.MNIST, "md5", md5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    return folder


def test_mnist_is_read_packed_and_unpacked(tiny_mnist):
    for _ in range(2):
        data = dataset_class("mnist")().load("train", Files(tiny_mnist.parent))
        assert torch.equal(data.images[:, 0], IMAGES)
        assert data.labels.tolist() == [3, 7]
        for path in tiny_mnist.glob("*.gz"):
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()


def test_folders_are_searched_in_order(tiny_mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "data"))
    assert len(dataset_class("mnist")().load("test")) == 2
    assert data_folders("given") == [type(tmp_path)("given"), tmp_path / "data", cache_folder()]


def test_absent_files_say_where_they_were_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError) as caught:
        dataset_class("mnist")().load("train", Files(tmp_path / "given"))
    words = str(caught.value)
    for place in ("given/mnist/train-images", "here/mnist/train-images", "cache/torchcaps/mnist/train-images"):
        assert place in words
    assert "torchcaps data get mnist" in words


def test_another_content_is_refused_by_its_checksum(tiny_mnist):
    path = tiny_mnist / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx(torch.tensor([3, 8], dtype=torch.uint8))))
    with pytest.raises(DataError, match="md5"):
        dataset_class("mnist")().load("train", Files(tiny_mnist.parent))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (idx(IMAGES)[:-3], "29 are there"),
        (idx(IMAGES) + b"\0", "33 are there"),
        (b"\x89PNG\r\n", "not an IDX file"),
        (b"", "not an IDX file"),
        (idx(LABELS), "3 dimensions"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "announced"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, content, words):
    for path, packed in ((tmp_path / "x", content), (tmp_path / "x.gz", gzip.compress(content))):
        path.write_bytes(packed)
        with pytest.raises(DataError, match=words):
            read_idx(path, 3)


def test_a_truncated_or_corrupted_gzip_is_refused(tmp_path):
    whole = gzip.compress(idx(IMAGES))
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[:-9], bytes(damaged), b"not gzip"):
        (tmp_path / "x.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"x\.gz"):
            read_idx(tmp_path / "x.gz", 3)


@pytest.fixture
def server():
    """Serves CONTENT under any name; /short breaks off in the middle, /gone is not there."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/gone":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:100_000] if self.path == "/short" else CONTENT)

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()


CONTENT = bytes(range(256)) * 1000
MD5 = hashlib.md5(CONTENT).hexdigest()


def test_a_fetched_file_is_complete_and_progress_is_told(server, tmp_path):
    told = []
    path = fetch(RemoteFile("a.bin", MD5, f"{server}/a.bin"), tmp_path / "new", lambda *news: told.append(news))
    assert path.read_bytes() == CONTENT
    assert told[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [entry.name for entry in path.parent.iterdir()] == ["a.bin"]


@pytest.mark.parametrize(("name", "md5"), [("a.bin", "0" * 32), ("short", MD5), ("gone", MD5)])
def test_a_failed_download_leaves_nothing_and_keeps_what_was_there(server, tmp_path, name, md5):
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(DataError):
        fetch(RemoteFile(name, md5, f"{server}/{name}"), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"old"


def test_no_network_is_told(tmp_path):
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(RemoteFile("a", MD5, "http://127.0.0.1:9/a"), tmp_path)
