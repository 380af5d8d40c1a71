"""Runs on texts of one's own: any number of labels, scripts without spaces, edited words, and what is told."""

import csv
import itertools
import json
import shutil

import pytest
import torch

import torchcaps
from torchcaps.cli import main
from torchcaps.data.dataset import Files
from torchcaps.data.memory import MemoryTexts, make_text_set
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.record import RECORD
from torchcaps.data.registry import make_text_dataset
from torchcaps.data.sources import text_sources
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import DataError, TorchcapsError
from torchcaps.training.errors import RunError
from torchcaps.training.fit import train
from torchcaps.training.runs import load_weights, read_run_recipe
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks.text import VOCABULARY

SMALL = {
    "training.batch_size": 8, "training.threads": 1, "text.vector_size": 16, "optimizer.lr": 0.01,
    "model.options": {"filters": 12, "types": 4, "pose": 6, "dropout": 0.0},
}  # fmt: skip
WORDS = {"price": ("cheap", "cost"), "taste": ("sweet", "bitter"), "place": ("garden", "room")}


def several(count=120):
    """Texts that name all of their labels, of which there may be none."""
    kinds = [labels for n in range(4) for labels in itertools.combinations(WORDS, n)]
    for number in range(count):
        labels = kinds[number % len(kinds)]
        words = ["it", "was", *(WORDS[label][number // 8 % 2] for label in labels), f"day{number % 5}", f"n{number}"]
        yield " ".join(words), list(labels)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A run on a CSV with any number of labels per text."""
    place = tmp_path_factory.mktemp("several")
    with (place / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "labels"), *((text, "|".join(labels)) for text, labels in several())])
    said = []
    run = torchcaps.fit(place / "own.csv", epochs=10, overrides=SMALL, folder=place / "run", say=said.append)
    return place, run, said


def test_any_number_of_labels_from_end_to_end(labelled, capsys):
    place, run, said = labelled
    assert any(
        "may have any number of 3 labels (place, price, taste): 1.50 on average, 15 have none" in line for line in said
    )
    result = run.evaluate()
    assert result["f1"] > 0.9
    assert result["exact_match"] > 0.7
    assert {"precision", "recall", "f1_of_samples"} < set(result)
    assert "confusion_matrix" not in result
    found = run.predict(["it was cheap sweet day1 of"])
    assert {label for label, score in zip(found[0].labels, found[0].scores, strict=True) if score > 0.5} == {
        "price", "taste"
    }  # fmt: skip
    with pytest.raises(SystemExit):
        main(["predict", str(place / "run"), "--text", "it was cheap sweet day1 of", "--json"])
    assert sorted(json.loads(capsys.readouterr().out)["label"]) == ["price", "taste"]


def test_the_record_has_all_labels_and_every_split_has_each(labelled):
    place, run, _ = labelled
    with (place / "run" / RECORD).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    for split in ("train", "validation", "test"):
        labels = {label for row in rows if row["split"] == split for label in row["label"].split(" | ")}
        assert labels >= set(WORDS), split
    shutil.copy(place / "own.csv", place / "elsewhere.csv")
    assert run.evaluate(place / "elsewhere.csv")["texts"] == run.evaluate()["texts"], "known by its content"


def test_texts_with_several_labels_are_explained(labelled, tmp_path):
    _, run, _ = labelled
    report = run.explain(tmp_path / "explain", images=20)
    numbers = json.loads((tmp_path / "explain" / "numbers.json").read_text())
    assert "price" in json.dumps(numbers)
    assert report is not None


def test_data_of_one_label_each_is_measured_by_a_model_of_several(labelled, tmp_path):
    _, run, _ = labelled
    (tmp_path / "one.csv").write_text("text,label\nit was cheap,price\nit was sweet,taste\nit was a room,place\n")
    result = run.evaluate(tmp_path / "one.csv")
    assert (result["texts"], "exact_match" in result) == (3, True)
    single = torchcaps.fit(
        (["a b", "c d", "a e", "c f"] * 3, ["x", "y"] * 6), epochs=1, folder=tmp_path / "run",
        overrides=SMALL | {"training.batch_size": 2, "data.validation": 0, "training.keep": "last"},
    )  # fmt: skip
    (tmp_path / "many.jsonl").write_text('{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": []}\n')
    with pytest.raises(RunError, match="any number of labels, but this model was trained for x, y with one label each"):
        single.evaluate(tmp_path / "many.jsonl")


@pytest.mark.parametrize("flags", [False, True])
def test_lists_and_flags_in_memory(tmp_path, flags):
    texts, labels = zip(*several(60), strict=True)
    names = sorted(WORDS)
    given = torch.tensor([[name in each for name in names] for each in labels]) if flags else list(labels)
    dataset = MemoryTexts(make_text_set((list(texts), given), names if flags else None))
    overrides = SMALL | {"model.name": "text-cnn", "loss.kind": "cross-entropy", "model.options": {}}
    run = torchcaps.fit(dataset, epochs=1, overrides=overrides, folder=tmp_path / "run")
    assert run.classes == tuple(names)
    result = run.evaluate()
    assert result["trained_on"] == 0
    assert "exact_match" in result
    assert run.evaluate((["it was cheap", "it was"], [["price"], []]))["texts"] == 2


def test_labels_that_cannot_be_watched_are_told():
    texts = [f"word{n} here" for n in range(12)]
    labels = [["a", "b"], ["a"], ["b"]] * 4
    labels[5] = ["b", "rare"]
    data = MemoryTexts(
        make_text_set((texts, labels)),
        make_text_set((["x"], [["a"]]), ["a", "b", "rare"]),
    )
    said = []
    train_source, validation = text_sources(
        data, DataOptions(validation=0.2), TextOptions(), 0, Files(notice=said.append)
    )
    assert validation.data.labels.any(dim=0).tolist() == [True, True, False]
    assert train_source.data.labels.any(dim=0).all()
    assert "has the labels rare" in said[0]


def test_labels_that_share_their_first_class_are_several_classes(tmp_path):
    rows = [f"text{n} word,a|{'bc'[n % 2]}" for n in range(20)]
    (tmp_path / "own.csv").write_text("\n".join(["text,labels", *rows]))
    dataset = make_text_dataset(DataOptions(str(tmp_path / "own.csv")))
    assert text_sources(dataset, DataOptions(), TextOptions(), 0)[0].class_names == ("a", "b", "c")


# ---------------------------------------------------------------- scripts without spaces

SUBJECTS = ("这部电影", "剧情", "演员", "音乐", "结局", "画面", "导演", "故事")
GOOD, BAD = ("很精彩", "值得推荐", "真好看", "让人感动"), ("太无聊", "很糟糕", "浪费时间", "令人失望")


def reviews():
    for subject, (number, praise), end in itertools.product(
        SUBJECTS, enumerate((*GOOD, *BAD)), ("。", "！", "，是吗？")
    ):
        yield f"{subject}{praise}{end}", "好" if number < len(GOOD) else "差"


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    place = tmp_path_factory.mktemp("chinese")
    with (place / "own.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *reviews()])
    said = []
    run = torchcaps.fit(place / "own.csv", epochs=3, overrides=SMALL, folder=place / "run", say=said.append)
    return place, run, said


def test_chinese_sentences_that_were_never_seen_are_understood(chinese):
    _, run, said = chinese
    assert any("(100 %) have Chinese or Japanese characters, which are read one by one" in line for line in said)
    assert run.task.units == "auto"
    assert run.evaluate()["accuracy"] > 0.9
    assert [answer.label for answer in run.predict(["那首歌真好看", "我的朋友说太无聊"])] == ["好", "差"]


def test_a_run_of_before_reads_texts_as_it_did(chinese, tmp_path):
    """A header and a recipe without the key are of 0.1, which took a sentence for a word."""
    place, run, _ = chinese
    header = json.loads(run.spec.to_json())
    assert header["units"] == "auto"
    old = {key: value for key, value in header.items() if key not in ("units", "vocabulary")}
    task = ModelSpec.from_json(json.dumps(old)).task
    assert task.units == "words"
    assert task.fingerprint is None
    assert json.loads(ModelSpec(run.spec.name, task, run.spec.options).to_json()) == old
    shutil.copytree(place / "run", tmp_path / "run")
    recipe = (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")
    assert "  units: auto\n" in recipe
    (tmp_path / "run" / "recipe.yaml").write_text(recipe.replace("  units: auto\n", ""), encoding="utf-8")
    assert read_run_recipe(tmp_path / "run").text.units == "words"
    assert read_run_recipe(place / "run").text.units == "auto"


@pytest.mark.parametrize("units", ["words", "characters"])
def test_what_texts_are_split_into_is_a_choice(tmp_path, units):
    texts = [f"这部电影{'好' if n % 2 else '差'} Nr{n}" for n in range(30)]
    said = []
    overrides = SMALL | {"text.units": units}
    run = torchcaps.fit((texts, [n % 2 for n in range(30)]), epochs=1, overrides=overrides, folder=tmp_path / "run",
                        say=said.append)  # fmt: skip
    words = set(Vocabulary.load(tmp_path / "run" / VOCABULARY).words)
    assert ("这部电影好" in words) == (units == "words")
    assert ("_" in words) == (units == "characters")
    assert torchcaps.load(tmp_path / "run").task.units == units
    source = run.open_data((texts, [n % 2 for n in range(30)])).source
    assert set(itertools.chain(*source.data.texts)) >= words, "data in memory is split in the same way"
    assert any("text.units=auto" in line for line in said) == (units == "words")
    report = run.explain(tmp_path / "explain", images=5)
    assert report is not None


def test_capitals_in_memory_are_kept_after_training_too(tmp_path):
    data = make_text_set((["Yes A", "No b"] * 10, [0, 1] * 10), lower=False)
    overrides = SMALL | {"training.batch_size": 2, "data.validation": 0, "training.keep": "last"}
    run = torchcaps.fit(MemoryTexts(data), epochs=1, folder=tmp_path / "run", overrides=overrides)
    assert not run.task.lower
    assert "Yes" in run.task.vocabulary.words


# ---------------------------------------------------------------- the words


def edit(folder, change):
    lines = (folder / VOCABULARY).read_text(encoding="utf-8").split("\n")
    (folder / VOCABULARY).write_text("\n".join(change(lines)), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [lines[0], "another", *lines[2:]],
    ],
    ids=["swapped", "replaced"],
)
def test_an_edited_vocabulary_is_noticed(chinese, tmp_path, change):
    shutil.copytree(chinese[0] / "run", tmp_path / "run")
    edit(tmp_path / "run", change)
    with pytest.raises(RunError, match="is not what it was when the model was trained"):
        torchcaps.load(tmp_path / "run")
    with pytest.raises(RunError, match="was their file edited"):
        train(read_run_recipe(tmp_path / "run"), tmp_path / "run", resume=True)


def test_a_saved_run_keeps_the_hash_of_its_words(chinese, tmp_path):
    chinese[1].save(tmp_path / "copy")
    spec, _ = load_weights(tmp_path / "copy" / "weights.safetensors")
    assert spec.task.fingerprint == chinese[1].task.vocabulary.fingerprint
    edit(tmp_path / "copy", lambda lines: [lines[0], lines[2], lines[1], *lines[3:]])
    with pytest.raises(RunError, match="is not what it was"):
        torchcaps.load(tmp_path / "copy")


@pytest.mark.parametrize(
    ("key", "value"), [("units", "syllables"), ("units", 3), ("vocabulary", 7), ("vocabulary", [])]
)
def test_a_header_with_something_else_is_refused(chinese, key, value):
    with pytest.raises(TorchcapsError, match=key):
        ModelSpec.from_json(json.dumps(json.loads(chinese[1].spec.to_json()) | {key: value}))


# ---------------------------------------------------------------- what is told


def test_texts_without_words_and_cut_texts_are_told(tmp_path):
    rows = [f"word{n} {'long ' * (n % 10)},{'xy'[n % 2]}" for n in range(40)]
    rows += ["...,x", "😀😀,y", '"",x', "same text,x", "same text,y"]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    said = []
    overrides = SMALL | {"text.max_length": 6}
    run = torchcaps.fit(tmp_path / "own.csv", epochs=1, overrides=overrides, folder=tmp_path / "run", say=said.append)
    told = " ".join(said)
    assert " have no words (such as line 4" in told
    assert " are longer than 6 words and are cut there, the longest has 10: text.max_length." in told
    assert "1 texts come more than once with different labels (such as line 45)" in told
    said.clear()
    run.evaluate(tmp_path / "own.csv", "all", notice=said.append)
    assert any("16 of 45 texts (36 %) are longer than 6 words" in line for line in said), said
    assert any("3 of 45 texts (7 %) have no words" in line for line in said)


def test_texts_that_are_all_without_words_are_refused(tmp_path):
    (tmp_path / "own.csv").write_text("text,label\n" + "...,x\n!!!,y\n".replace("!", ";") + "-,x\n_,y\n")
    with pytest.raises(DataError, match="no word comes 1 times"):
        torchcaps.fit(tmp_path / "own.csv", epochs=1, folder=tmp_path / "run",
                      overrides=SMALL | {"data.validation": 0, "training.keep": "last"})  # fmt: skip
