"""The official files, where they are."""

import os
from pathlib import Path

import pytest

from torchcaps.data.dataset import Files
from torchcaps.data.registry import dataset_class
from torchcaps.data.text.vectors import read_word_vectors
from torchcaps.data.text.vocabulary import Vocabulary


def text_set(name, split, data_dir=None, *, lower=None, **options):
    return dataset_class(name)(**options).load(split, Files(data_dir), lower=lower)


DATA = Path(os.environ["TORCHCAPS_DATA"]) if os.environ.get("TORCHCAPS_DATA") else None
pytestmark = pytest.mark.skipif(
    DATA is None or not (DATA / "text").is_dir(), reason="TORCHCAPS_DATA names no folder with text/"
)
COUNTS = {"mr": (10662, [5331, 5331]), "subj": (10000, [5000, 5000]), "cr": (3775, [1368, 2407])}
COUNTS["mpqa"] = (10606, [7294, 3312])
VECTORS = "wordvectors/glove.6B.100d.subset.npz"


def require(name):
    files = [DATA / "text" / file for file in dataset_class(name).files_by_split.values()]
    if not all(file.is_file() or file.with_name(f"{file.name}.gz").is_file() for file in files):
        pytest.skip(f"the files of {name} are not in text/ of TORCHCAPS_DATA")


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_the_folded(name):
    require(name)
    train, test = (text_set(name, split, DATA, fold=3) for split in ("train", "test"))
    count, classes = COUNTS[name]
    assert len(train) + len(test) == count
    assert abs(len(test) - count / 10) < 1
    assert (train.labels.bincount() + test.labels.bincount()).tolist() == classes


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("trec", {"train": 5452, "test": 500}),
        ("sst1", {"train": 8544, "validation": 1101, "test": 2210}),
        ("sst2", {"train": 6920, "validation": 872, "test": 1821}),
        ("reuters", {"train": 6578, "test": 436, "train-all": 7770, "test-all": 3019}),
        ("reuters8", {"train": 5502, "test": 339}),
    ],
)
def test_counts_of_the_split(name, counts):
    require(name)
    assert {split: len(text_set(name, split, DATA)) for split in counts} == counts


def test_reuters_classes_all_occur():
    require("reuters")
    for split in ("train-all", "test-all"):
        assert bool(text_set("reuters", split, DATA).labels.any(0).all())
    assert int(text_set("reuters", "train", DATA).labels.any(0).sum()) == 58


def test_most_words_have_a_glove_vector():
    if not (DATA / VECTORS).is_file():
        pytest.skip(f"{VECTORS} is not in TORCHCAPS_DATA")
    vocabulary = Vocabulary.from_texts(text_set("mr-mini", "train").texts)
    vectors, found = read_word_vectors(DATA / VECTORS, vocabulary, dim=100)
    assert vectors.shape == (len(vocabulary), 100)
    assert found > 0.9 * len(vocabulary)
