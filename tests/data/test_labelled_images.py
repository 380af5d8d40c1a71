"""A folder of images with a file that says what they are."""

import json
import os
import re

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data.dataset import Files
from torchcaps.data.labelled_images import LabelledImages
from torchcaps.data.options import DataOptions
from torchcaps.data.registry import find_dataset, make_dataset
from torchcaps.data.text.files import TextFile
from torchcaps.errors import DataError

NAMES = [f"pics/{number}.png" for number in range(12)]
LABELS = [("cat",), ("dog",), ("cat", "dog"), ()] * 3


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "photos"
    (place / "pics").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        Image.fromarray(np.random.default_rng(number).integers(9, 256, (6, 8, 3), dtype=np.uint8)).save(place / name)
    return place


def write(folder, text, name="labels.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def table(rows, header="file,labels"):
    return "\n".join([header, *(",".join(row) for row in rows)]) + "\n"


def single(folder):
    return write(folder, table([(name, "cat dog"[4 * (i % 2) :][:3]) for i, name in enumerate(NAMES)], "file,label"))


def several(folder, separator="|"):
    return write(folder, table([(name, separator.join(labels)) for name, labels in zip(NAMES, LABELS, strict=True)]))


def load(folder, split="all", notice=None, **options):
    return make_dataset(DataOptions(name=str(folder), options=options)).load(split, Files(notice=notice))


def test_one_label_each(folder):
    own = load(single(folder))
    assert not own.multi_label
    assert own.class_names == ("cat", "dog")
    assert own.labels.tolist() == [0, 1] * 6
    assert own.image_shape == (3, 6, 8)
    assert torch.equal(own.images[3], torch.from_numpy(np.asarray(Image.open(folder / NAMES[3])).copy()).movedim(2, 0))
    assert own.items[3].name == NAMES[3]


FILES = {
    "labels.csv": table([(name, "|".join(labels)) for name, labels in zip(NAMES, LABELS, strict=True)]),
    "labels.tsv": table(
        [(name, ";".join(labels)) for name, labels in zip(NAMES, LABELS, strict=True)], "Image,Tags"
    ).replace(",", "\t"),
    "metadata.csv": table(
        [("x", name, " | ".join(labels)) for name, labels in zip(NAMES, LABELS, strict=True)], "id,file_name,labels"
    ),
    "metadata.jsonl": "\n".join(
        json.dumps({"file_name": name, "labels": labels}) for name, labels in zip(NAMES, LABELS, strict=True)
    ),
    "labels.jsonl": "\n".join(
        json.dumps({"path": f"./{name}", "label": "|".join(labels)}) for name, labels in zip(NAMES, LABELS, strict=True)
    ),
}


@pytest.mark.parametrize(("name", "text"), FILES.items(), ids=FILES)
def test_several_labels_each(folder, name, text):
    write(folder, text, name)
    for path in (folder, folder / name):
        assert find_dataset(str(path)) is LabelledImages
        own = load(path)
        assert own.multi_label
        assert own.class_names == ("cat", "dog")
        assert own.labels[:4].tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("cell", "separator", "labels"),
    [("cat dog", " ", [True, True, False]), ('"cat, dog"', ",", [True, True, False]), ("cat|dog", "", 1)],
    ids=["spaces", "commas", "nothing"],
)
def test_what_parts_labels_can_be_said(folder, cell, separator, labels):
    rows = [(NAMES[0], cell), (NAMES[1], "cat"), (NAMES[2], "eel"), (NAMES[3], "cat")]
    own = load(write(folder, table(rows)), label_separator=separator)
    assert own.labels[0].tolist() == labels


@pytest.mark.parametrize("cell", ["cat dog", '"cat,dog"'])
def test_what_could_be_either_is_asked_for(folder, cell):
    rows = [(NAMES[0], cell), (NAMES[1], "cat"), (NAMES[2], "dog")]
    with pytest.raises(DataError, match="one label, or several") as refused:
        load(write(folder, table(rows)))
    assert refused.value.option == "data.options.label_separator"
    assert load(write(folder, table(rows, "file,label"))).labels.tolist() != []  # there it is the name of one


def test_columns_of_other_names(folder):
    write(folder, table([(NAMES[0], "a"), (NAMES[1], "b")], "photo,what"))
    with pytest.raises(DataError, match="no column of the images' files .*'photo', 'what'") as refused:
        load(folder)
    assert refused.value.option == "data.options.file_column"
    assert load(folder, file_column="photo", label_column="what").labels.tolist() == [0, 1]


def test_a_column_of_splits(folder):
    rows = [(name, "cat" if i % 2 else "dog", "test" if i < 4 else "Train") for i, name in enumerate(NAMES[:10])]
    rows += [(NAMES[10], "cat", "val"), (NAMES[11], "dog", "validation")]
    write(folder, table(rows, "file,label,split"))
    said = []
    assert [item.name for item in load(folder, "test", said.append).items] == NAMES[:4]
    assert [item.name for item in load(folder, "train").items] == NAMES[4:10]
    assert said == [
        "2 images of the split validation in labels.csv were left out; what training is watched by is cut from train "
        "(data.validation)."
    ]
    assert make_dataset(DataOptions(name=str(folder))).judged_split() == "test"
    assert make_dataset(DataOptions(name=str(single(folder)))).judged_split() == "all"


def test_what_is_left_out_is_told(folder):
    rows = [(name, "cat" if i % 2 else "dog") for i, name in enumerate(NAMES[:8])] + [("gone.png", "cat")]
    write(folder, table(rows, "file,label"))
    with pytest.raises(DataError, match="1 of 9 images .* gone.png .there is no such file") as refused:
        load(folder)
    assert refused.value.option == "data.options.unreadable"
    said = []
    assert len(load(folder, "all", said.append, unreadable="skip")) == 8
    assert said == [
        "1 image that labels.csv names was left out, such as gone.png: there is no such file.",
        f"4 images in {folder} that labels.csv does not name were left out, such as pics/10.png.",
    ]


def test_damaged_images_are_refused_or_skipped(folder):
    (folder / NAMES[5]).write_bytes(b"nothing")
    with pytest.raises(DataError, match="pics/5.png"):
        load(single(folder))
    said = []
    assert len(load(folder, "all", said.append, unreadable="skip")) == 11
    assert any("1 unreadable images were skipped, for example pics/5.png" in text for text in said)


def test_an_ending_that_is_missing_is_told(folder):
    rows = [(name.removesuffix(".png"), "cat" if i % 2 else "dog") for i, name in enumerate(NAMES)]
    with pytest.raises(DataError, match="names need their endings"):
        load(write(folder, table(rows, "file,label")))


def test_images_without_labels_are_told(folder):
    said = []
    load(several(folder), "train", said.append)
    assert said == ["3 images without any label were taken to show none of the classes."]


REFUSED = {
    "out of the folder": (table([("../secret.png", "a"), (NAMES[0], "b")]), "stay inside"),
    "out of it in the middle": (table([("pics/../../secret.png", "a"), (NAMES[0], "b")]), "stay inside"),
    "absolute": (table([("/etc/passwd", "a"), (NAMES[0], "b")]), "stay inside"),
    "of a drive": (table([("C:\\secret.png", "a"), (NAMES[0], "b")]), "stay inside"),
    "out of it, backwards": (table([("..\\secret.png", "a"), (NAMES[0], "b")]), "stay inside"),
    "no name": (table([("", "a"), (NAMES[0], "b")]), "stay inside"),
    "NUL": (table([("a\0.png", "a"), (NAMES[0], "b")]), "stay inside|no proper CSV"),
    "twice": (table([(NAMES[0], "a"), (f"./{NAMES[0]}", "b")]), "lines 2 and 3"),
    "no label": (table([(NAMES[0], "a"), (NAMES[1], "")], "file,label"), "line 3 .* has no label"),
    "a label twice": (table([(NAMES[0], "a|a"), (NAMES[1], "b")]), "label twice"),
    "one class": (table([(NAMES[0], "a"), (NAMES[1], "a")]), "one class only"),
    "no rows": ("file,label\n", "names no images"),
    "nothing": ("", "no column"),
    "two columns of files": (table([(NAMES[0], NAMES[0], "a")], "file,image,label"), "more than one column"),
    "too many fields": (table([(NAMES[0], "a", "b")]), "3 fields"),
    "an open quote": (f'file,label\n"{NAMES[0]},a\n', "no proper CSV"),
    "no split": (
        table([(NAMES[0], "a", "dev"), (NAMES[1], "b", "test")], "file,label,split"),
        "train or test, got 'dev'",
    ),
    "a split for some": (table([(NAMES[0], "a", ""), (NAMES[1], "b", "test")], "file,label,split"), "train or test"),
    "only train": (table([(NAMES[0], "a", "train"), (NAMES[1], "b", "train")], "file,label,split"), "no test images"),
    "classes of the test": (
        table([(NAMES[0], "a", "train"), (NAMES[1], "b", "train"), (NAMES[2], "c", "test")], "file,label,split"),
        "training does not know: c",
    ),
    "a strange class": (table([(NAMES[0], "a\x1b[2J"), (NAMES[1], "b")]), "cannot be shown"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_files_that_are_refused(folder, text, sentence):
    (folder.parent / "secret.png").write_bytes((folder / NAMES[0]).read_bytes())
    with pytest.raises(DataError, match=sentence):
        load(write(folder, text), "train")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[1]", "must be a JSON object"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"file": 3, "label": "a"}', "'file' in line 1 .* must be a text"),
        ('{"file": "pics/0.png", "label": 1.5}', "whole number or a list"),
        ('{"file": "pics/0.png", "label": ["a", ["b"]]}', "whole number or a list"),
        ('{"file": "pics/0.png"}', "no column of their labels"),
    ],
)
def test_lines_of_json_that_are_refused(folder, line, sentence):
    with pytest.raises(DataError, match=sentence):
        load(write(folder, line, "labels.jsonl"))


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_links_are_not_followed_out(folder):
    (folder.parent / "secret.png").write_bytes((folder / NAMES[0]).read_bytes())
    (folder / "link.png").symlink_to(folder.parent / "secret.png")
    (folder / "inner.png").symlink_to(folder / NAMES[1])
    rows = [(NAMES[0], "a"), ("inner.png", "b")]
    assert len(load(write(folder, table(rows, "file,label")))) == 2
    with pytest.raises(DataError, match="link that leads out of the folder"):
        load(write(folder, table([*rows, ("link.png", "a")], "file,label")))


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_a_pipe_is_no_file_of_labels(tmp_path):
    os.mkfifo(tmp_path / "labels.csv")
    assert find_dataset(str(tmp_path / "labels.csv")) is TextFile
    with pytest.raises(DataError, match="not as they are read"):
        find_dataset(str(tmp_path))


def test_files_of_texts_stay_what_they_are(folder):
    (folder / "texts.csv").write_text("text,label\npics/0.png,a\n")
    (folder / "urls.csv").write_text("path,label\nnowhere/0.png,a\n")
    (folder / "both.csv").write_text("text,path,label\nhello,pics/0.png,a\n")
    for name in ("texts.csv", "urls.csv", "both.csv"):
        assert find_dataset(str(folder / name)) is TextFile


def test_two_files_of_labels(folder):
    write(several(folder), "x", "metadata.jsonl")
    with pytest.raises(DataError, match=re.escape("labels.csv and metadata.jsonl")):
        find_dataset(str(folder))


@pytest.mark.parametrize("make", [single, several])
def test_adding_and_renaming_never_moves_an_image(folder, make):
    make(folder)
    before = {split: {item.key for item in load(folder, split).items} for split in ("train", "test")}
    assert not before["train"] & before["test"]
    text = (folder / "labels.csv").read_text().replace("pics/3.png", "pics/moved.png")
    (folder / "pics/3.png").rename(folder / "pics/moved.png")
    for number in range(20, 40):
        name = f"pics/{number}.png"
        Image.fromarray(np.random.default_rng(number).integers(9, 256, (6, 8, 3), dtype=np.uint8)).save(folder / name)
        text = text.replace("\n", f"\n{name},{('cat', 'dog')[number % 2]}\n", 1)
    write(folder, text)
    assert not before["train"] & {item.key for item in load(folder, "test").items}
    assert not before["test"] & {item.key for item in load(folder, "train").items}


def test_entries_have_the_names_of_all_labels(folder):
    entries = make_dataset(DataOptions(name=str(several(folder)))).list_entries()
    assert [entry.label for entry in entries[:4]] == ["cat", "dog", "cat | dog", ""]
    assert entries[2].name == NAMES[2]


def test_labels_of_a_trained_model(folder):
    dataset = make_dataset(DataOptions(name=str(several(folder))))
    own = dataset.load("all", class_names=("dog", "bird", "cat"))
    assert own.labels[:3].tolist() == [[False, False, True], [True, False, False], [True, False, True]]
    with pytest.raises(DataError, match="the model does not know: cat"):
        dataset.load("all", class_names=("dog", "bird"))
