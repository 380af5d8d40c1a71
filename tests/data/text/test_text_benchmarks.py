"""The benchmarks' formats in tiny files made here, folds, and the sentences in the package."""

import gzip
import json
from importlib import resources

import pytest
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.datasets.reuters import REUTERS_CLASSES
from torchcaps.data.datasets.text_benchmarks import fold_numbers
from torchcaps.data.options import DataOptions
from torchcaps.data.registry import dataset_class, make_text_dataset
from torchcaps.errors import DataError


def text_set(name, split, data_dir=None, *, fold=0, lower=None):
    dataset = make_text_dataset(DataOptions(name=name, options={"fold": fold} if fold else {}))
    return dataset.load(split, Files(data_dir), lower=lower)


FOLDED = {"mr": "rt-polarity.all", "subj": "subj.all", "cr": "custrev.all", "mpqa": "mpqa.all"}


@pytest.fixture(autouse=True)
def _only_tmp(tmp_path, monkeypatch):
    """No test sees data of this computer's user."""
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(tmp_path, name, content):
    path = tmp_path / "text" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))
    return path


@pytest.mark.parametrize(("name", "file"), FOLDED.items())
def test_ten_folds_are_disjoint_and_cover_everything(tmp_path, name, file):
    lines = [f"{int(index % 3 == 0)} word{index}" for index in range(47)]
    write(tmp_path, file, "\n".join(lines) + "\n")
    every = {(f"word{index}",) for index in range(47)}
    seen = []
    for fold in range(10):
        train, test = (text_set(name, split, tmp_path, fold=fold) for split in ("train", "test"))
        assert set(train.texts) | set(test.texts) == every
        assert not set(train.texts) & set(test.texts)
        assert len(test) in (4, 5)
        assert int(test.labels.sum()) in (1, 2)  # 16 of 47
        seen += test.texts
    assert len(seen) == 47
    assert set(seen) == every


def test_folds_depend_on_the_seed_alone():
    labels = torch.arange(1003) % 3
    first = fold_numbers(labels, 0)
    assert torch.equal(first, fold_numbers(labels, 0))
    assert not torch.equal(first, fold_numbers(labels, 1))
    for label in range(3):
        counts = first[labels == label].bincount(minlength=10)
        assert counts.max() - counts.min() <= 1
    assert sorted(first.bincount().tolist()) == [100] * 7 + [101] * 3


def test_fewer_items_than_folds():
    assert sorted(fold_numbers(torch.tensor([0, 1, 0]), 5).tolist()) == [0, 1, 2]
    assert fold_numbers(torch.empty(0, dtype=torch.int64), 0).tolist() == []


@pytest.mark.parametrize(
    ("name", "split", "file"),
    [
        ("trec", "train", "TREC.train.all"),
        ("trec", "test", "TREC.test.all"),
        ("sst1", "train", "stsa.fine.train"),
        ("sst1", "validation", "stsa.fine.dev"),
        ("sst1", "test", "stsa.fine.test"),
        ("sst2", "train", "stsa.binary.train"),
        ("sst2", "validation", "stsa.binary.dev"),
        ("sst2", "test", "stsa.binary.test"),
    ],
)
def test_official_splits(tmp_path, name, split, file):
    write(tmp_path, file, "1 What 's this ?\r\n0 \n1 it is\n\n")
    data = text_set(name, split, tmp_path)
    first = "What" if name == "trec" else "what"
    assert data.texts == ((first, "'s", "this", "?"), (), ("it", "is"))
    assert data.labels.tolist() == [1, 0, 1]
    assert data.class_names == dataset_class(name).class_names


def test_latin_1_and_utf_8_and_gzipped(tmp_path):
    write(tmp_path, "stsa.fine.dev", "4 crème \x85 brûlée\n".encode("latin-1"))
    write(tmp_path, "stsa.fine.test", "4 crème \u2028 brûlée\n".encode())
    write(tmp_path, "stsa.fine.train.gz", gzip.compress("4 crème brûlée".encode()))
    for split in ("train", "validation", "test"):
        assert text_set("sst1", split, tmp_path).texts == (("crème", "brûlée"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "TREC.test.all is empty"),
        (" \n\n", "TREC.test.all is empty"),
        ("0 what\n\n1 who\n", "line 2 of .*TREC.test.all has no label"),
        ("0 what\n who\n", "line 2 of .* has no label.*label sentence"),
        ("what is it\n", "line 1 of .*'what', which is no number"),
        ("-1 what\n", "'-1', which is no number"),
        ("1.0 what\n", "'1.0', which is no number"),
        ("1 a\n6 what\n", "line 2 of .*label 6, expected 0 … 5 for description"),
        (f"{10**30} what\n", "expected 0 … 5"),
    ],
)
def test_lines_that_are_refused(tmp_path, content, message):
    write(tmp_path, "TREC.test.all", content)
    with pytest.raises(DataError, match=message):
        text_set("trec", "test", tmp_path)


def test_a_damaged_gzipped_file(tmp_path):
    write(tmp_path, "TREC.test.all.gz", gzip.compress(b"0 what is it\n" * 50)[:-12])
    with pytest.raises(DataError, match="TREC.test.all.gz cannot be read.*get it again"):
        text_set("trec", "test", tmp_path)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="sst2 is not here") as error:
        text_set("sst2", "validation", tmp_path / "mine")
    for folder in (tmp_path / "mine", tmp_path / "cache" / "torchcaps"):
        assert str(folder / "text" / "stsa.binary.dev") in str(error.value)
    assert "put text/stsa.binary.dev, text/stsa.binary.test, text/stsa.binary.train into a data folder" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("arguments", "fold", "message"),
    [
        (("sst-2", "train"), 0, "unknown data set 'sst-2'. Did you mean 'sst2'"),
        (("nothing", "train"), 0, "Known: .*, cr, .*, mpqa, mr, mr-mini"),
        (("mr", "validation"), 0, "mr has the splits train, test, not 'validation'"),
        (("sst1", "dev"), 0, "splits train, validation, test, not 'dev'"),
        (("reuters", "valid"), 0, "splits train, test, train-all, test-all"),
        (("mr", "train"), 10, "fold of mr must be in 0 … 9, got 10"),
        (("mr", "train"), -1, "got -1"),
        (("trec", "train"), 1, "trec has no option 'fold'. Options of trec: none"),
        (("mr-mini", "train"), 1, "no option 'fold'"),
    ],
)
def test_unknown_names_splits_and_folds(arguments, fold, message):
    with pytest.raises(DataError, match=message):
        text_set(*arguments, fold=fold)


DOCUMENTS = [
    {"id": 1, "labels": ["earn"], "title": "ACME NET", "body": "Shr 3 cts\nNet 5"},
    {"id": 2, "labels": ["grain", "wheat"], "title": "", "body": "Wheat & corn"},
    {"id": 3, "labels": ["zinc", "zinc"], "title": "Zinc", "body": ""},
]


@pytest.mark.parametrize("packed", [False, True])
def test_reuters(tmp_path, packed):
    content = "".join(json.dumps(document) + "\n" for document in DOCUMENTS).encode()
    for part in ("train", "test"):
        name = f"reuters/modapte90_{part}.jsonl" + (".gz" if packed else "")
        write(tmp_path, name, gzip.compress(content) if packed else content)
    texts = (("acme", "net", "shr", "3", "cts", "net", "5"), ("wheat", "corn"), ("zinc",))
    expected = {"train": [0, 2], "test": [1], "train-all": [0, 1, 2], "test-all": [0, 1, 2]}
    for split, chosen in expected.items():
        data = text_set("reuters", split, tmp_path)
        assert data.multi_label
        assert data.class_names == REUTERS_CLASSES
        assert data.texts == tuple(texts[index] for index in chosen)
        names = [[name for name, on in zip(REUTERS_CLASSES, row, strict=True) if on] for row in data.labels.tolist()]
        assert names == [[["earn"], ["grain", "wheat"], ["zinc"]][index] for index in chosen]


def test_reuters_has_90_different_sorted_classes():
    assert len(REUTERS_CLASSES) == 90
    assert list(REUTERS_CLASSES) == sorted(set(REUTERS_CLASSES))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2 of .*modapte90_test.jsonl must be a JSON object"),
        (b"[]", "must be a JSON object"),
        (b'{"labels": ["earn"], "body": ""}', "KeyError.*title"),
        (b'{"labels": ["earn"], "title": null, "body": ""}', "must be a JSON object with labels"),
        (b'{"labels": 3, "title": "", "body": ""}', "must be a JSON object with labels"),
        (b'{"labels": [], "title": "", "body": ""}', "no label, expected some of the 90 classes"),
        (b'{"labels": ["earn", "gossip"], "title": "", "body": ""}', "labels gossip, which are none of the 90"),
        (b'{"labels": ["earn"], "title": "caf\xe9", "body": ""}', "not UTF-8: byte 0xe9 at position .*UTF-8"),
    ],
)
def test_reuters_lines_that_are_refused(tmp_path, line, message):
    good = json.dumps(DOCUMENTS[0]).encode() + b"\n"
    write(tmp_path, "reuters/modapte90_test.jsonl", good + line)
    with pytest.raises(DataError, match=message):
        text_set("reuters", "test-all", tmp_path)


def test_mr_mini_is_in_the_package():
    sets = {split: text_set("mr-mini", split) for split in ("train", "test")}
    for split, count in {"train": 4000, "test": 1000}.items():
        assert len(sets[split]) == count
        assert sets[split].labels.bincount().tolist() == [count // 2, count // 2]
        assert sets[split].class_names == ("negative", "positive")
        assert all(sets[split].texts)
        assert 0.4 < float(sets[split].labels[:200].float().mean()) < 0.6  # mixed, not one class after the other
    assert len(set(sets["train"].texts) | set(sets["test"].texts)) == 5000


def test_mr_mini_is_small():
    assert len(resources.files("torchcaps.data.text").joinpath("mr_mini.txt.gz").read_bytes()) < 600_000
