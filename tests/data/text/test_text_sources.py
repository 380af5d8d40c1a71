"""Texts as batches: padding, parts by length, validation, and which names are text."""

import pytest
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.registry import find_dataset, make_text_dataset
from torchcaps.data.sources import text_sources
from torchcaps.data.text import texts as texts_module
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.vectors import make_initial_vectors
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import DataError


def sources_of(options, text, seed):
    return text_sources(make_text_dataset(options), options, text, seed, Files(options.dir))


def texts(*lengths, max_length=400):
    words = [tuple(f"w{n % 7}" for n in range(length)) for length in lengths]
    return Texts(
        TextSet(tuple(words), torch.arange(len(words)) % 2, ("a", "b")), Vocabulary.from_texts(words), max_length
    )


def test_a_batch_is_padded_to_its_longest_text():
    source = texts(3, 0, 5, 1)
    batch = source.batch(torch.tensor([0, 1, 3]))
    assert batch.inputs.shape == (3, 3)
    assert (batch.inputs != 0).sum(dim=1).tolist() == [3, 1, 1], "an empty text is one unknown word"
    assert batch.inputs[1, 0] == 1
    assert batch.labels.tolist() == [0, 1, 1]
    assert source.batch(torch.arange(4)).inputs.shape == (4, 5)
    expected = source.vocabulary.encode_batch([source.data.texts[2], source.data.texts[0]])
    assert torch.equal(source.batch(torch.tensor([2, 0])).inputs, expected)


def test_long_texts_are_cut():
    assert texts(10, 3, max_length=4).lengths.tolist() == [4, 3]
    with pytest.raises(DataError, match="at least 1"):
        texts(3, max_length=0)


def test_parts_for_evaluation_hold_every_text_once_and_little_padding(monkeypatch):
    monkeypatch.setattr(texts_module, "MOST_TOKENS", 40)
    source = texts(9, 1, 100, 2, 9, 9, 9, 9, 2, 3)
    parts = source.evaluation_parts(torch.arange(10), 500)
    assert sorted(torch.cat(list(parts)).tolist()) == list(range(10))
    for part in parts:
        width = int(source.lengths[part].max())
        assert len(part) == 1 or len(part) * width <= 40
    assert max(len(part) for part in source.evaluation_parts(torch.arange(10), 2)) == 2


def test_names_and_files_that_are_text(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.jsonl").write_text("{}")
    for name in ("mr-mini", "reuters8", "own.csv", "own.TSV", "a/b.jsonl", str(tmp_path / "folder")):
        assert find_dataset(name).kind == "texts"
    for name in ("mnist", "own.npz", str(tmp_path)):
        assert find_dataset(name).kind == "images"


def test_validation_texts_are_not_in_the_vocabulary():
    source, validation = sources_of(DataOptions(name="mr-mini", validation=0.1), TextOptions(), seed=3)
    assert len(source) == 3600
    assert validation is not None
    assert len(validation) == 400
    assert set(source.vocabulary.words) == {word for text in source.data.texts for word in text}
    assert (validation.token_ids == 1).any(), "some of its words are unknown"
    again, _ = sources_of(DataOptions(name="mr-mini", validation=0.1), TextOptions(), seed=3)
    assert torch.equal(again.token_ids, source.token_ids)
    whole, none = sources_of(DataOptions(name="mr-mini", validation=0.0), TextOptions(max_words=50), seed=3)
    assert none is None
    assert len(whole.vocabulary.words) == 50


def test_sst_has_validation_texts_of_its_own(tmp_path):
    (tmp_path / "text").mkdir()
    for split, count in (("train", 6), ("dev", 4), ("test", 2)):
        lines = [f"{n % 2} {split} text {n}" for n in range(count)]
        (tmp_path / "text" / f"stsa.binary.{split}").write_text("\n".join(lines))
    options = DataOptions(name="sst2", dir=str(tmp_path), validation=0.5)
    train, validation = sources_of(options, TextOptions(), seed=0)
    assert (len(train), len(validation)) == (6, 4)
    assert "dev" not in train.vocabulary.words


def test_reuters8_is_cut_as_described(tmp_path):
    import json

    place = tmp_path / "text" / "reuters"
    place.mkdir(parents=True)

    def write(name, *documents):
        lines = [json.dumps({"labels": labels, "title": "t", "body": "b"}) for labels in documents]
        (place / f"modapte90_{name}.jsonl").write_text("\n".join(lines))

    write("train", ["earn"], ["acq"], ["wheat"], ["earn", "acq"], ["grain", "wheat"])
    write("test", ["earn"], ["ship", "crude"], ["ship", "corn"])
    options = DataOptions(name="reuters8", dir=str(tmp_path))
    train, test = (make_text_dataset(options).load(split, Files(options.dir)) for split in ("train", "test"))
    assert train.labels.sum(dim=1).tolist() == [1, 1]
    named = [{name for name, on in zip(test.class_names, row, strict=True) if on} for row in test.labels.tolist()]
    assert named == [{"earn", "acq"}, {"ship", "crude"}], "those of both files, and no label but the eight"


def test_vectors_to_begin_with():
    vocabulary = Vocabulary(("a", "b"))
    vectors, found = make_initial_vectors(TextOptions(vector_size=7), vocabulary, seed=1)
    assert vectors.shape == (4, 7)
    assert found is None
    assert not torch.equal(vectors, make_initial_vectors(TextOptions(vector_size=7), vocabulary, seed=2)[0])
