"""The test set of one's own data never leaks: whatever happens to the files, what was trained on is not tested."""

import csv
import json
import re
import shutil
from collections import Counter

import numpy as np
import pytest
from PIL import Image

import torchcaps
from torchcaps.cli import main
from torchcaps.data.options import DataOptions
from torchcaps.data.record import RECORD, read_record
from torchcaps.data.registry import make_dataset
from torchcaps.errors import TorchcapsError

IMAGES = {
    "training.batch_size": 16, "training.threads": 1, "data.shift": 0,
    "model.options.decoder": False,
}  # fmt: skip
TEXTS = {
    "training.batch_size": 16, "training.threads": 1, "text.vector_size": 4,
    "model.options": {"filters": 4, "types": 2, "pose": 2, "dropout": 0.0},
}  # fmt: skip
COUNT = 60


def noise(number):
    return np.random.default_rng(number).integers(0, 256, (12, 12), dtype=np.uint8)


class Folder:
    """Class folders of images."""

    def __init__(self, place, overrides=IMAGES):
        self.place, self.data, self.overrides = place, place / "photos", overrides
        for left in ("photos", "moved"):
            shutil.rmtree(place / left, ignore_errors=True)
        for number in range(COUNT):
            self.add(number)
        self.save()

    def name(self, number):
        return self.data / f"class{number % 3}" / f"{number:03}.png"

    def add(self, number, content=None):
        self.name(number).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(number if content is None else content)).save(self.name(number))

    def remove(self, number):
        self.name(number).unlink()

    def rename(self, number):
        self.name(number).rename(self.name(number).with_name(f"zz{number}.png"))

    def save(self):
        """Nothing is left to do."""


class Rows(Folder):
    """Items that are kept in one file: renaming is another place in it."""

    def __init__(self, place, overrides):
        self.rows = {}
        super().__init__(place, overrides)

    def add(self, number, content=None):
        self.rows[number] = (number if content is None else content, number % 3)

    def remove(self, number):
        del self.rows[number]

    def rename(self, number):
        self.rows[1000 + number] = self.rows.pop(number)


class Arrays(Rows):
    """An .npz file."""

    def __init__(self, place):
        super().__init__(place, IMAGES)

    def save(self):
        self.data = self.place / "own.npz"
        contents, labels = zip(*self.rows.values(), strict=True)
        np.savez(self.data, x=np.stack([noise(content) for content in contents]), y=np.array(labels))


class Table(Rows):
    """A CSV file of texts."""

    def __init__(self, place):
        super().__init__(place, TEXTS)

    def save(self):
        self.data = self.place / "own.csv"
        lines = [f"word{content} and word{content % 7},class{label}" for content, label in self.rows.values()]
        self.data.write_text("\n".join(["text,label", *lines]))


class Lines(Table):
    """A file of JSON lines."""

    def save(self):
        self.data = self.place / "own.jsonl"
        rows = [{"text": f"word{content} of {content % 7}", "label": label} for content, label in self.rows.values()]
        self.data.write_text("\n".join(map(json.dumps, rows)))


KINDS = {"folder": Folder, "npz": Arrays, "csv": Table, "jsonl": Lines}


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    data = KINDS[request.param](place)
    torchcaps.fit(data.data, epochs=1, overrides=data.overrides, folder=place / "run")
    return place, request.param


@pytest.fixture
def own(trained, tmp_path):
    """A run and its data, both to be changed at will: the run is a copy, and so is the data, in its place."""
    place, kind = trained
    shutil.copytree(place / "run", tmp_path / "run")
    return KINDS[kind](place), tmp_path / "run"


def measure(run, **options):
    """How many items are tested, how many of these were trained on, and what is said of the data."""
    said = []
    result = torchcaps.load(run).evaluate(notice=said.append, **options)
    of_data = [sentence for sentence in said if "never answered" not in sentence]  # by a network that learned nothing
    return result.get("images", result.get("texts")), result["trained_on"], " ".join(of_data)


def numbers_of(run, *splits):
    """Numbers of the items of some splits: of the items to begin with their places in the order of their names."""
    with (run / RECORD).open(newline="") as file:
        rows = list(csv.DictReader(file))
    order = {int(re.search(r"(\d+)\D*$", row["item"])[1]): row["split"] for row in rows}
    assert len(order) == COUNT
    return [number for number, key in enumerate(sorted(order)) if order[key] in splits]


def test_the_split_is_recorded(own):
    _, run = own
    record = read_record(run)
    counts = [sum(row.split == split for row in record.rows) for split in ("train", "validation", "test")]
    assert sum(counts) == COUNT
    assert min(counts) >= 3
    for split in ("train", "validation", "test"):
        assert len({row.label for row in record.rows if row.split == split}) == 3
    assert measure(run) == (counts[2], 0, "")


def add_some(data):
    for number in range(COUNT, COUNT + 6):
        data.add(number)


def remove_some(data):
    for number in range(0, COUNT, 7):
        data.remove(number)


def rename_some(data):
    for number in range(0, COUNT, 2):
        data.rename(number)


def change_some(data):
    for number in range(0, COUNT, 5):
        data.add(number, content=5000 + number)


def swap_some(data):
    """Contents change places: what was under a training item's name is now under a test item's."""
    for number in range(0, COUNT - 3, 6):
        data.add(number, content=number + 3)
        data.add(number + 3, content=number)


def copy_some(data):
    """The same contents again under new names, as after a careless merge."""
    for number in range(0, COUNT, 3):
        data.add(COUNT + number, content=number)


def do_all(data):
    for change in (add_some, remove_some, change_some):
        change(data)
    for number in range(1, COUNT, 7):
        data.rename(number)


CHANGES = [add_some, remove_some, rename_some, change_some, swap_some, copy_some, do_all]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_moves_from_train_to_test(own, change):
    """Whatever is done to the data: nothing that was trained on is tested, by default and with what is new."""
    data, run = own
    change(data)
    data.save()
    assert measure(run)[1] == 0
    assert measure(run, new_items=True)[1] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_new_cut_moves_nothing_either(tmp_path, kind, change):
    """Two runs on the same data, one before and one after a change, have no item on different sides.

    But for a class that would have nothing to test: it gets its nearest item, and that alone.
    """
    data = KINDS[kind](tmp_path)

    def cut():
        dataset = make_dataset(DataOptions(str(data.data)))
        return {split: {item.key for item in dataset.load(split).items} for split in ("train", "test")}

    before = cut()
    change(data)
    data.save()
    after = cut()
    label = {entry.key: entry.label for entry in make_dataset(DataOptions(str(data.data))).list_entries()}
    tested = Counter(label[key] for key in after["test"])
    assert all(tested[label[key]] == 1 for key in before["train"] & after["test"])
    assert len(before["train"] & after["test"]) < 2
    assert before["test"].isdisjoint(after["train"])


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_that_is_renamed_and_shuffled_is_the_same(tmp_path, kind):
    data = KINDS[kind](tmp_path)
    before = make_dataset(DataOptions(str(data.data)))
    first, *rest = data.data.read_text().split("\n")
    mixed = tmp_path / f"renamed.{kind}"
    mixed.write_text("\n".join([first, *rest[::-1]] if kind == "csv" else [*rest[::-1], first]))
    after = make_dataset(DataOptions(str(mixed)))
    for split in ("train", "test"):
        assert {item.key for item in before.load(split).items} == {item.key for item in after.load(split).items}


def test_pure_noise_stays_unknown_when_its_data_grows(own):
    """One more item per class once let 51 of 60 test items be among those trained on."""
    data, run = own
    before, _, _ = measure(run)
    for number in range(COUNT, COUNT + 3):
        data.add(number)
    data.save()
    count, seen, _ = measure(run)
    assert (count, seen) == (before, 0)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_new_texts_of_a_new_class_are_left_out_like_others(tmp_path, kind):
    data = KINDS[kind](tmp_path)
    run = torchcaps.fit(data.data, epochs=1, overrides=data.overrides, folder=tmp_path / "run")
    before = run.evaluate()["texts"]
    data.rows[999] = (999, 7)
    data.save()
    said = []
    assert torchcaps.load(tmp_path / "run").evaluate(notice=said.append)["texts"] == before
    assert "1 texts came after training" in said[0]
    with pytest.raises(TorchcapsError, match="classes that training does not know"):
        torchcaps.load(tmp_path / "run").evaluate(new_items=True)


def test_copies_of_what_was_trained_on_are_told(own):
    data, run = own
    copy_some(data)
    data.save()
    said = measure(run, new_items=True)[2]
    assert "with the same content as what was trained on" in said


def test_items_that_are_added_are_left_out_unless_asked_for(own):
    data, run = own
    before, _, _ = measure(run)
    for number in range(COUNT, COUNT + 6):
        data.add(number)
    data.save()
    count, seen, said = measure(run)
    assert (count, seen) == (before, 0)
    assert "6 " in said
    assert "left out (new_items counts them to the test)" in said
    assert measure(run, new_items=True)[:2] == (before + 6, 0)


def test_items_that_are_renamed_stay_where_they_are(own):
    data, run = own
    before, _, _ = measure(run)
    for number in range(0, COUNT, 2):
        data.rename(number)
    data.save()
    assert measure(run) == (before, 0, "")


def test_items_that_are_removed_or_changed_are_named(own):
    data, run = own
    before, _, _ = measure(run)
    train, test = numbers_of(run, "train", "validation"), numbers_of(run, "test")
    data.remove(test[0])
    data.add(train[0], content=7000)
    data.save()
    count, seen, said = measure(run)
    assert (count, seen) == (before - 1, 0)
    assert "1 missing" in said or "changed" in said  # in a file of rows others have moved to its place
    count, seen, _ = measure(run, new_items=True)
    assert seen == 0


def test_a_resume_on_changed_data_is_refused_unless_told(own):
    data, run = own
    from torchcaps.training.fit import train
    from torchcaps.training.runs import read_run_recipe

    recipe = read_run_recipe(run)
    data.remove(numbers_of(run, "train")[0])
    data.save()
    with pytest.raises(TorchcapsError, match=r"is not what it was: .*changed_data"):
        train(recipe, run, resume=True)
    said = []
    if data.overrides is TEXTS:  # without that text its words are unknown
        with pytest.raises(TorchcapsError, match="another (one|model)"):
            train(recipe, run, resume=True, changed_data=True)
        return
    train(recipe, run, resume=True, changed_data=True, say=said.append)
    assert "The data has changed" in " ".join(said)


def test_data_that_was_moved_is_found_by_its_content(own, capsys):
    data, run = own
    before, _, _ = measure(run)
    moved = data.place / "moved" / data.data.name
    moved.parent.mkdir(exist_ok=True)
    if not moved.exists():
        (shutil.copytree if data.data.is_dir() else shutil.copy)(data.data, moved)
    result = torchcaps.load(run).evaluate(moved)
    assert result.get("images", result.get("texts")) == before
    with pytest.raises(SystemExit) as end:
        main(["train", "--resume", str(run), "--data.name", str(moved)])
    assert end.value.code == 0, capsys.readouterr().err
    assert torchcaps.load(run).recipe.data.name == str(moved)


def test_other_data_is_measured_as_a_whole_and_what_was_trained_on_is_told(own, tmp_path):
    data, run = own
    for number in range(COUNT, COUNT + 3):
        data.add(number)
    data.save()
    other = tmp_path / data.data.name
    (shutil.copytree if data.data.is_dir() else shutil.copy)(data.data, other)
    said = []
    result = torchcaps.load(run).evaluate(other, notice=said.append)
    trained = len(numbers_of(run, "train", "validation"))
    assert result["split"] == "all"
    assert result.get("images", result.get("texts")) == COUNT + 3
    assert result["trained_on"] == trained
    assert f"{trained} of these {COUNT + 3}" in said[0]


def test_data_is_found_from_another_folder(tmp_path, monkeypatch):
    Folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = torchcaps.fit("photos", epochs=1, overrides=IMAGES, folder="run")
    before = run.evaluate()["accuracy"]
    monkeypatch.chdir("/")
    assert torchcaps.load(tmp_path / "run").evaluate()["accuracy"] == before
    shutil.move(tmp_path / "photos", tmp_path / "elsewhere")
    with pytest.raises(TorchcapsError, match="If it was moved, give its new place \\(data\\)"):
        torchcaps.load(tmp_path / "run").evaluate()


def test_test_images_that_are_trained_on_are_told(tmp_path):
    for part, numbers in (("train", range(30)), ("test", range(24, 36))):
        for number in numbers:
            place = tmp_path / "photos" / part / f"class{number % 3}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise(number)).save(place / f"{number}.png")
    said = []
    run = torchcaps.fit(tmp_path / "photos", epochs=1, overrides=IMAGES, folder=tmp_path / "run", say=said.append)
    assert any("6 of the 12 test images are among those to train on" in line for line in said)
    assert run.evaluate()["trained_on"] == 6
    assert run.evaluate(tmp_path / "photos")["images"] == 12


def test_a_run_that_recorded_nothing_is_cut_as_before(tmp_path):
    Folder(tmp_path)
    run = torchcaps.fit(tmp_path / "photos", epochs=1, overrides=IMAGES, folder=tmp_path / "run")
    run.save(tmp_path / "copy")
    assert torchcaps.load(tmp_path / "copy").evaluate() == run.evaluate()
    (tmp_path / "run" / RECORD).unlink()
    said = []
    assert torchcaps.load(tmp_path / "run").evaluate(notice=said.append)["images"] == COUNT // 5
    assert "did not record" in said[0]
