"""Arrays, texts and word vectors that claim too much, hold code, or never end."""

import gzip
import io
import json
import math
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from watching import CANARY, assert_sentence, watched

from torchcaps.data.datasets.small_norb import read_matrix
from torchcaps.data.idx import read_idx
from torchcaps.data.image_arrays import read_image_arrays
from torchcaps.data.options import DataOptions
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import training_sources
from torchcaps.data.text.files import read_text_file
from torchcaps.data.text.sets import read_content
from torchcaps.data.text.vectors import read_word_vectors
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import DataError, TorchcapsError

WORDS = Vocabulary(("a", "b"))


class Harmful:
    """Unpickling it would call."""

    def __reduce__(self):
        return eval, (f"__import__({CANARY!r}).sing()",)


def refuses(read, tmp_path):
    with watched(tmp_path), pytest.raises(TorchcapsError) as caught:
        read()
    assert_sentence(str(caught.value))
    return str(caught.value)


def npy(shape="(3, 4, 4)", dtype="'|u1'", order="False", content=b"", version=(1, 0), length=None):
    header = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(118) + b"\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + header + content


def npz(compress=zipfile.ZIP_DEFLATED, **arrays):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compress) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", array)
    return content.getvalue()


X, Y = npy(content=bytes(range(48))), npy("(3,)", "'<i8'", content=np.arange(3).tobytes())
ZEROS = bytes(250_000_000)
ARRAYS = {
    "bomb of images": lambda: npz(x=npy(f"({len(ZEROS) // 784}, 28, 28)", content=ZEROS), y=Y),
    "bomb with its labels": lambda: npz(
        x=npy("(250000, 10, 100)", content=ZEROS), y=npy("(250000,)", "'|u1'", content=bytes(250_000))
    ),
    "bomb of labels": lambda: npz(x=X, y=npy("(31250000,)", "'<i8'", content=ZEROS)),
    "bomb of texts": lambda: npz(x=X, y=npy("(3,)", "'<U20000000'", content=ZEROS[:240_000_000])),
    "claims terabytes": lambda: npz(x=npy("(1000000, 1000, 1000)"), y=npy("(1000000,)", "'<i8'")),
    "claims terabytes unpacked": lambda: npz(zipfile.ZIP_STORED, x=npy("(1000000, 1000, 1000)"), y=npy("(1000000,)")),
    "claims more than numbers hold": lambda: npz(x=npy(f"({10**18}, {10**18})"), y=Y),
    "negative sizes": lambda: npz(x=npy("(-3, 4, 4)"), y=Y),
    "sizes that are no numbers": lambda: npz(x=npy("('a',)"), y=Y),
    "objects": lambda: npz(x=X, y=npy("(3,)", "'|O'", content=pickle.dumps(Harmful()))),
    "objects in a structure": lambda: npz(x=X, y=npy("(3,)", "[('a', '|O')]", content=pickle.dumps(Harmful()))),
    "header that calls": lambda: npz(x=npy(f"__import__('{CANARY}').sing()"), y=Y),
    "deep header": lambda: npz(x=npy("(" * 4000 + ")" * 4000), y=Y),
    "long header": lambda: npz(x=npy("(" + "3, " * 30_000 + ")", version=(2, 0)), y=Y),
    "header longer than the file": lambda: npz(x=npy(version=(2, 0), length=2**31), y=Y),
    "unknown version": lambda: npz(x=npy(version=(9, 9)), y=Y),
    "cut short": lambda: npz(x=npy("(3, 400, 400)", content=b"abc"), y=Y),
    "no header": lambda: npz(x=b"hello", y=Y),
    "a pickle as array": lambda: npz(x=pickle.dumps(Harmful()), y=Y),
    "a pickle": lambda: pickle.dumps(Harmful()),
    "no archive": lambda: b"PK\x05\x06",
    "damaged": lambda: npz(x=X, y=Y)[:-30],
    "empty": lambda: b"",
    "no labels": lambda: npz(x=X),
    "other names": lambda: npz(**{"../x": X, "y": Y}),
    "names like folders": lambda: npz(**{"/etc/x": X, "y": Y}),
    "no images": lambda: npz(x=npy("(0, 4, 4)"), y=npy("(0,)", "'<i8'")),
    "five dimensions": lambda: npz(x=npy("(3, 1, 1, 4, 4)", content=bytes(48)), y=Y),
    "times": lambda: npz(x=npy("(3, 4, 4)", "'<M8[s]'", content=bytes(384)), y=Y),
    "not a number": lambda: npz(x=npy("(3, 4, 4)", "'<f4'", content=struct.pack("<f", math.nan) * 48), y=Y),
    "labels beyond": lambda: npz(x=X, y=npy("(3,)", "'<i8'", content=np.array([0, 1, 2**62]).tobytes())),
    "labels below": lambda: npz(x=X, y=npy("(3,)", "'<i8'", content=np.array([0, 1, -(2**63)]).tobytes())),
    "names that command": lambda: npz(
        x=X, y=npy("(3,)", "'<U4'", content=np.array(["\x1b[3m", "b", "c"], dtype="<U4").tobytes())
    ),
    "one colour": lambda: npz(x=npy("(3, 4, 4)", content=b"\x07" * 48), y=Y),
    "zeros and ones": lambda: npz(x=npy("(3, 4, 4)", content=b"\0\1" * 24), y=Y),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name, tmp_path, canary):
    (tmp_path / "own.npz").write_bytes(ARRAYS[name]())
    options = DataOptions(str(tmp_path / "own.npz"), validation=0, shift=0)
    refuses(lambda: training_sources(make_image_dataset(options), options, 0), tmp_path)


@pytest.mark.parametrize("name", ["objects", "bomb of images", "no archive", "no labels", "deep header", "empty"])
def test_arrays_of_vectors(name, tmp_path, canary):
    (tmp_path / "own.npz").write_bytes(ARRAYS[name]())
    refuses(lambda: read_word_vectors(tmp_path / "own.npz", WORDS), tmp_path)


VECTORS = {
    "one endless line": lambda: b"a " + b"1 " * 2_000_000,
    "claims a billion numbers": lambda: b"5 1000000000\na 1 2\n",
    "no numbers": lambda: b"a\n",
    "not finite": lambda: b"a nan nan\nb 1 2\n",
    "code": lambda: b"a __import__('os') 1\n",
    "bytes": lambda: os.urandom(10_000).replace(b"\n", b""),
    "empty": lambda: b"",
    "huge numbers": lambda: b"a " + b"9" * 1_000 + b" 1\n",
}


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize("name", VECTORS)
def test_lines_of_vectors(name, packing, tmp_path, canary):
    content = VECTORS[name]()
    (tmp_path / f"v.txt{packing}").write_bytes(gzip.compress(content) if packing else content)
    refuses(lambda: read_word_vectors(tmp_path / f"v.txt{packing}", WORDS), tmp_path)


TEXTS = {
    "own.csv": {
        "no end of a quote": b'text,label\n"a,b\n' + b"x" * 200_000,
        "long field": b"text,label\n" + b"x" * 5_000_000 + b",a\n",
        "no label": b"text,label\na,\n",
        "many columns": b"text,label" + b",x" * 100_000 + b"\na,b\n",
        "nul": b"text,label\n\0,\0\n",
        "utf-16": "text,label\na,b\n".encode("utf-16"),
        "command in a label": b"text,label\na,\x1b[31mup\nb,down\nc,down\nd,down\n",
        "one class": b"text,label\na,b\nc,b\n",
        "columns twice": b"text,text,label\na,b,c\n",
        "binary": bytes(range(256)) * 10,
        "empty": b"",
        "blank": b"\n" * 100_000,
    },
    "own.jsonl": {
        "deep list": b"[" * 100_000,
        "deep value": b'{"text": "a", "label": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "huge number": b'{"text": "a", "label": ' + b"9" * 5_000 + b"}",
        "no object": b"5\n",
        "not a number": b'{"text": "a", "label": NaN}',
        "a class": json.dumps({"text": "a", "label": {"class_path": f"{CANARY}.Bird"}}).encode(),
        "text of a list": b'{"text": ["a"], "label": "b"}',
        "half a character": b'{"text": "a", "label": "\\ud800"}\n{"text": "a", "label": "b"}\n' * 5,
        "cut short": b'{"text": "a"',
        "pickle": pickle.dumps(Harmful()),
        "empty": b"",
    },
}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in TEXTS for name in TEXTS[file]])
def test_texts(file, name, tmp_path, canary):
    (tmp_path / file).write_bytes(TEXTS[file][name])
    refuses(lambda: read_text_file(tmp_path / file, "train"), tmp_path)


READERS = {
    "idx.gz": lambda path: read_idx(path, 3),
    "norb.gz": read_matrix,
    "lines.gz": read_content,
    "own.csv": lambda path: read_text_file(path, "train"),
    "own.jsonl": lambda path: read_text_file(path, "train"),
    "own.npz": lambda path: read_image_arrays(path, "train"),
    "vectors.txt": lambda path: read_word_vectors(path, WORDS),
    "vectors.npz": lambda path: read_word_vectors(path, WORDS),
    "vocabulary.txt": Vocabulary.load,
}


@pytest.mark.parametrize("file", READERS)
def test_what_is_no_file_is_not_waited_for(file, tmp_path, canary):
    os.mkfifo(tmp_path / file)
    refuses(lambda: READERS[file](tmp_path / file), tmp_path)
    (tmp_path / file).unlink()
    (tmp_path / file).symlink_to("/dev/zero")
    refuses(lambda: READERS[file](tmp_path / file), tmp_path)


@pytest.fixture(scope="module")
def bomb():
    return gzip.compress(bytes(150_000_000), 9)


@pytest.mark.parametrize("file", ["idx.gz", "norb.gz", "lines.gz"])
@pytest.mark.parametrize("start", [b"", b"\0\0\x08\x03" + struct.pack(">3I", 9999, 9999, 9999)], ids=["bare", "header"])
def test_packed_bombs(file, start, bomb, tmp_path, canary):
    (tmp_path / file).write_bytes((gzip.compress(start) if start else b"") + bomb)
    refuses(lambda: READERS[file](tmp_path / file), tmp_path)


DAMAGED = {
    "magic number": b"\x1f\x8b",
    "noise": b"\x1f\x8b\x08" + b"\xff" * 50,
    "cut short": gzip.compress(b"x")[:-4],
    "no gzip": b"hello",
}


# By name: the bytes hold the time of packing, and every worker must collect tests of the same names.
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("file", ["idx.gz", "norb.gz", "lines.gz"])
def test_packed_files_that_are_damaged(file, content, tmp_path, canary):
    (tmp_path / file).write_bytes(content)
    refuses(lambda: READERS[file](tmp_path / file), tmp_path)


def test_a_shift_that_leaves_nothing(tmp_path):
    options = DataOptions("mnist-mini", shift=28)
    with pytest.raises(DataError, match="out of sight"):
        training_sources(make_image_dataset(options), options, 0)
