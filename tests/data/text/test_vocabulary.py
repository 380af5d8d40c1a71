"""Words as numbers."""

import pytest

from torchcaps.data.text.vocabulary import PADDING, UNKNOWN, Vocabulary
from torchcaps.errors import DataError

TEXTS = [("b", "a", "c"), ("c", "b"), ("c", "é"), ()]


def test_frequent_words_come_first_then_alphabetically():
    assert Vocabulary.from_texts(TEXTS).words == ("c", "b", "a", "é")
    assert Vocabulary.from_texts(TEXTS, min_count=2).words == ("c", "b")
    assert Vocabulary.from_texts(TEXTS, max_words=3).words == ("c", "b", "a")
    assert len(Vocabulary.from_texts(TEXTS)) == 6
    assert len(Vocabulary.from_texts([])) == 2


@pytest.mark.parametrize("wrong", [{"min_count": 0}, {"max_words": 0}])
def test_limits_must_be_positive(wrong):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Vocabulary.from_texts(TEXTS, **wrong)


def test_encode():
    words = Vocabulary.from_texts(TEXTS)
    assert words.encode(("c", "a", "new", "é")) == [2, 4, UNKNOWN, 5]
    assert words.encode(()) == [UNKNOWN]


def test_a_batch_is_padded_and_every_text_has_a_position():
    ids = Vocabulary.from_texts(TEXTS).encode_batch([("c", "b", "a"), (), ("new",), ("c", "c")])
    assert ids.tolist() == [[2, 3, 4], [1, 0, 0], [1, 0, 0], [2, 2, 0]]
    assert bool((ids != PADDING).any(1).all())


def test_a_batch_has_a_least_length():
    words = Vocabulary.from_texts(TEXTS)
    assert words.encode_batch([("c",)], min_length=4).tolist() == [[2, 0, 0, 0]]
    assert words.encode_batch([], min_length=4).shape == (0, 4)
    with pytest.raises(ValueError, match="min_length must be at least 1"):
        words.encode_batch([("c",)], min_length=0)


@pytest.mark.parametrize("texts", [TEXTS, [], [("#", "\x00", "\ufeff", "😀", "torchcaps")]])
def test_saved_and_loaded(tmp_path, texts):
    words = Vocabulary.from_texts(texts)
    words.save(tmp_path / "words.txt")
    assert Vocabulary.load(tmp_path / "words.txt") == words


def test_the_file_is_plain_lines(tmp_path):
    Vocabulary(("c", "é")).save(tmp_path / "words.txt")
    assert (tmp_path / "words.txt").read_bytes() == "torchcaps vocabulary, words: 2\nc\né\n".encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"c\nb\n", "no saved vocabulary"),
        (b"torchcaps vocabulary, words: many\nc\n", "no saved vocabulary"),
        (b"torchcaps vocabulary, words: 3\nc\nb\n", "cut short or was changed: it announces 3 words and has 2"),
        (b"torchcaps vocabulary, words: 2\nc\nc\n", "was changed: .*'c' comes twice"),
        (b"torchcaps vocabulary, words: 2\nc\n\n", "was changed: a word must have characters.*''"),
        (b"torchcaps vocabulary, words: 1\n\xe9\n", "is not UTF-8"),
    ],
)
def test_files_that_are_refused(tmp_path, content, message):
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(DataError, match=f"words.txt.*{message}"):
        Vocabulary.load(tmp_path / "words.txt")


def test_absent_file(tmp_path):
    with pytest.raises(DataError, match="words.txt cannot be read"):
        Vocabulary.load(tmp_path / "words.txt")


@pytest.mark.parametrize("word", ["", "a b", "a\n", " "])
def test_words_with_spaces_are_refused(word):
    with pytest.raises(DataError, match="no space among them"):
        Vocabulary.from_texts([("a", word)])
