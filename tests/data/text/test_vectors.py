"""Word vectors from files made here."""

import gzip

import numpy as np
import pytest
import torch

from torchcaps.data.text.vectors import draw_vectors, read_word_vectors
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import DataError

WORDS = Vocabulary(("good", "Bad", "é", "new"))
GLOVE = "the 1 2 3\ngood 0.5 -1 2e-1\nbad 3 2 1\né 1 0 -1\ngood 9 9 9\n"
EXPECTED = {2: [0.5, -1, 0.2], 3: [3, 2, 1], 4: [1, 0, -1]}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def check(vectors, found):
    assert vectors.shape == (6, 3)
    assert vectors.dtype == torch.float32
    assert found == 3
    assert vectors[0].tolist() == [0, 0, 0]
    for row, values in EXPECTED.items():
        assert vectors[row].tolist() == pytest.approx(values, abs=1e-3)
    for row in (1, 5):
        assert bool((vectors[row] != 0).all())


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        "5 3\n" + GLOVE,
        GLOVE.replace("\n", " \r\n"),
        GLOVE.replace("bad", ". . . 1 2 3\nbad"),
        "a 1 2 3\n\n" + GLOVE,
        b"a 1 2 3\n\xff\xfe 1 2 3\n" + GLOVE.encode(),
    ],
)
def test_text_files(tmp_path, content):
    check(*read_word_vectors(write(tmp_path / "glove.txt", content), WORDS))


def test_gzipped_text(tmp_path):
    check(*read_word_vectors(write(tmp_path / "glove.txt.gz", gzip.compress(GLOVE.encode())), WORDS, dim=3))
    damaged = write(tmp_path / "bad.txt.gz", gzip.compress(GLOVE.encode())[:-9])
    with pytest.raises(DataError, match="bad.txt.gz cannot be read"):
        read_word_vectors(damaged, WORDS)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arrays(tmp_path, dtype):
    vectors = np.array([[1, 2, 3], [0.5, -1, 0.2], [3, 2, 1], [1, 0, -1]], dtype=dtype)
    np.savez(tmp_path / "glove.npz", words=np.array(["the", "good", "bad", "é"]), vectors=vectors)
    check(*read_word_vectors(tmp_path / "glove.npz", WORDS))


def test_a_word_as_it_is_goes_before_its_lower_case(tmp_path):
    path = write(tmp_path / "glove.txt", "bad 1 1\nBad 2 2\n")
    vectors, found = read_word_vectors(path, Vocabulary(("Bad", "BAD", "bad")))
    assert vectors[2:].tolist() == [[2, 2], [1, 1], [1, 1]]
    assert found == 3


def test_words_not_found_have_the_variance_of_those_found(tmp_path):
    values = torch.randn(50, 20) * 0.4
    lines = [" ".join([f"w{row}", *(f"{value:.6f}" for value in vector)]) for row, vector in enumerate(values.tolist())]
    path = write(tmp_path / "glove.txt", "\n".join(lines))
    words = Vocabulary(tuple(f"w{row}" for row in range(2000)))
    vectors, found = read_word_vectors(path, words, seed=1)
    assert found == 50
    random = vectors[52:]
    assert float(random.var()) == pytest.approx(float(values.var()), rel=0.03)
    assert float(random.mean()) == pytest.approx(0, abs=0.01)
    assert torch.equal(vectors, read_word_vectors(path, words, seed=1)[0])
    assert not torch.equal(random, read_word_vectors(path, words, seed=2)[0][52:])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("the 1 2\ngood 1 2 3\n", "line 2 of .*glove.txt has 3 numbers, the lines before have 2"),
        ("the 1 2\ngood 1\n", "line 2 of .* has 1 numbers"),
        ("the 1 2\nother 1\n", "line 2 of .* has 1 numbers"),
        ("2 3\ngood 1 2\n", "line 2 of .* has 2 numbers, the lines before have 3"),
        ("good\n", "line 1 of .* single word and no numbers"),
        ("the 1 2\ngood 1 x\n", "line 2 of .* no number.*'x'"),
        ("<html> <head>\n", "line 1 of .* no number"),
        ("other 1 2\n", "none of the 4 words of the vocabulary"),
        ("good 1 nan\n", "not finite"),
        (b"PK\x03\x04 1", "zip archive. Unpack it"),
    ],
)
def test_text_files_that_are_refused(tmp_path, content, message):
    path = write(tmp_path / "glove.txt", content)
    with pytest.raises(DataError, match=message):
        read_word_vectors(path, WORDS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"words": np.array(["good"])}, "arrays words and vectors"),
        ({"words": np.array(["good"], dtype=object), "vectors": np.ones((1, 2))}, "can run code"),
        ({"words": np.array([b"good"]), "vectors": np.ones((1, 2))}, "must be unicode strings"),
        ({"words": np.array(["good"]), "vectors": np.ones((2, 2))}, r"floats \[1, D\] for 1 words.*\(2, 2\)"),
        ({"words": np.array(["good"]), "vectors": np.ones((1, 2), int)}, "got int64"),
        ({"words": np.array([], dtype="U1"), "vectors": np.ones((0, 2))}, "is empty"),
        ({"words": np.array(["other"]), "vectors": np.ones((1, 2))}, "none of the 4 words"),
    ],
)
def test_arrays_that_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "glove.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_word_vectors(tmp_path / "glove.npz", WORDS)


def test_no_archive_no_file_and_another_length(tmp_path):
    with pytest.raises(DataError, match="is not an .npz file of arrays"):
        read_word_vectors(write(tmp_path / "glove.npz", GLOVE), WORDS)
    with pytest.raises(DataError, match="there is no file"):
        read_word_vectors(tmp_path / "nothing.txt", WORDS)
    with pytest.raises(DataError, match="have 3 numbers, expected 50"):
        read_word_vectors(write(tmp_path / "glove.txt", GLOVE), WORDS, dim=50)


def test_random_vectors():
    vectors = draw_vectors(WORDS, 400, seed=3)
    assert vectors.shape == (6, 400)
    assert vectors[0].abs().max() == 0
    assert 0.24 < float(vectors.abs().max()) <= 0.25
    assert torch.equal(vectors, draw_vectors(WORDS, 400, seed=3))
    assert not torch.equal(vectors, draw_vectors(WORDS, 400, seed=4))
    with pytest.raises(ValueError, match="dim must be at least 1"):
        draw_vectors(WORDS, 0)
