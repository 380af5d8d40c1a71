"""Photographs with several labels, from a folder with a CSV to a report and the explorer."""

import base64
import json
import shutil

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image, ImageDraw

import torchcaps
from torchcaps.cli import main
from torchcaps.data.record import read_record
from torchcaps.explorer import create_app
from torchcaps.training.errors import RunError

BOXES = {"left": (2, 4, 12, 14), "right": (22, 4, 32, 14), "below": (2, 18, 32, 23)}
SMALL = {"data.shift": 0, "training.batch_size": 16, "model.options.decoder": [16], "data.options.image_size": 20}


def paint(path, labels, number, size=(34, 26)):
    pixels = np.random.default_rng(number).integers(0, 30, (*size[::-1], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    for label in labels:
        ImageDraw.Draw(image).rectangle(BOXES[label], fill=(230, 200, 90))
    image.save(path)


def make_photos(folder, count, start=0):
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["file,labels"]
    for number in range(start, start + count):
        labels = [label for at, label in enumerate(BOXES) if number >> at & 1]
        paint(folder / f"{number}.png", labels, number)
        lines.append(f"{number}.png,{'|'.join(labels)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has learned to tell three boxes, from pictures that are stretched."""
    base = tmp_path_factory.mktemp("labelled")
    make_photos(base / "photos", 160)
    said = []
    overrides = {**SMALL, "data.options.fit": "stretch", "optimizer.lr": 0.005}
    run = torchcaps.fit(base / "photos", "capsnet-small", 8, overrides=overrides, folder=base / "run", say=said.append)
    return run, base, said


def test_it_learns_and_is_measured(trained):
    run, base, said = trained
    result = run.evaluate()
    assert result["exact_match"] > 0.8
    assert set(result["per_class"]) == {"below", "left", "right"}
    assert run.task.multi_label
    assert run.task.fit == "stretch"
    assert any("160 of 160 images, of 34×26 pixels" in text and "(stretch)" in text for text in said)
    assert any("20 images without any label" in text for text in said)
    record = read_record(base / "run")
    assert {row.label for row in record.rows} >= {"", "left", "below | left | right"}
    watched = [row for row in record.rows if row.split == "validation"]
    assert {name for row in watched for name in row.label.split(" | ")} >= {"left", "right", "below"}


def test_it_is_opened_and_asked_again(trained, tmp_path, capsys):
    _, base, _ = trained
    paint(tmp_path / "both.png", ["left", "below"], 500)
    paint(tmp_path / "none.png", [], 501)
    again = torchcaps.load(base / "run")
    both, none = again.predict([tmp_path / "both.png", tmp_path / "none.png"])
    assert set(again.task.choose(both.labels, both.scores)) == {"left", "below"}
    assert again.task.choose(none.labels, none.scores) == ()
    with pytest.raises(SystemExit) as end:
        main(["predict", str(base / "run"), str(tmp_path / "both.png"), "--json"])
    assert end.value.code == 0
    assert set(json.loads(capsys.readouterr().out)["label"]) == {"left", "below"}


def test_other_data_is_fitted_as_in_training(trained, tmp_path):
    run, _, _ = trained
    make_photos(tmp_path / "new", 16, 300)
    said = []
    result = run.evaluate(str(tmp_path / "new"), notice=said.append)
    assert result["images"] == 16
    assert result["split"] == "all"
    assert any("(stretch); as in training" in text for text in said)


def test_data_that_grows_does_not_leak(trained, tmp_path):
    run, base, _ = trained
    shutil.copytree(base / "run", tmp_path / "run")
    shutil.copytree(base / "photos", tmp_path / "photos")
    make_photos(tmp_path / "photos", 40, 160)
    old = (base / "photos" / "labels.csv").read_text()
    new = (tmp_path / "photos" / "labels.csv").read_text().removeprefix("file,labels\n")
    (tmp_path / "photos" / "labels.csv").write_text(old + new)
    said = []
    moved = torchcaps.load(tmp_path / "run")
    moved.recipe.data.name = str(tmp_path / "photos")
    result = moved.evaluate(notice=said.append)
    assert result["trained_on"] == 0
    assert result["images"] == run.evaluate()["images"]
    assert any("40 images came after training" in text for text in said)


def test_one_class_each_can_be_judged_but_not_the_other_way_round(trained, tmp_path):
    run, base, _ = trained
    for number, name in enumerate(BOXES):
        for copy in range(2):
            (tmp_path / "folders" / name).mkdir(parents=True, exist_ok=True)
            paint(tmp_path / "folders" / name / f"{copy}.png", [name], 10 * number + copy)
    result = run.evaluate(str(tmp_path / "folders"))
    assert result["images"] == 6
    assert "exact_match" in result
    overrides = {**SMALL, "training.batch_size": 2}
    single = torchcaps.fit(tmp_path / "folders", epochs=1, overrides=overrides, folder=tmp_path / "single")
    with pytest.raises(RunError, match="trained for one class each"):
        single.evaluate(str(base / "photos"))


def test_the_report_shows_all_labels(trained, tmp_path):
    run, _, _ = trained
    numbers = run.explain(tmp_path / "report", images=24).numbers
    cases = [case for kind in ("right", "wrong") for case in numbers["reconstructions"]["cases"][kind]]
    assert any(len(case["labels"]) > 1 for case in cases)
    assert all(case["labels"] == case["predictions"] for case in numbers["reconstructions"]["cases"]["right"])
    assert {"dimensions", "routing", "movements"} <= numbers.keys()
    page = (tmp_path / "report" / "report.html").read_text()
    assert "exactly the right labels" in page
    assert "all classes that are found together" in page


def test_the_explorer_finds_any_number(trained, tmp_path):
    run, base, _ = trained
    client = TestClient(create_app([base / "run"], pretrained=False))
    (about,) = client.get("/api/models").json()["models"]
    assert about["multi_label"]
    samples = client.get(f"/api/models/{about['id']}/samples").json()["samples"]
    assert {len(sample["labels"]) for sample in samples} == {0, 1, 2, 3}
    for sample in samples[:10]:
        look = client.post(f"/api/models/{about['id']}/look", json={"pixels": sample["pixels"]}).json()
        assert look["found"] == sorted(
            (k for k, length in enumerate(look["lengths"]) if length > 0.5), key=lambda k: -look["lengths"][k]
        )
        assert len(look["drawings"]) == (1 if look["found"] else 0)
    paint(tmp_path / "both.png", ["left", "right"], 700)
    content = (tmp_path / "both.png").read_bytes()
    uploaded = client.post(f"/api/models/{about['id']}/upload", content=content).json()["pixels"]
    pixels = np.frombuffer(base64.b64decode(uploaded), dtype=np.uint8).reshape(20, 20, 3)
    wanted = next(iter(run.task.read_items([tmp_path / "both.png"]))).inputs[0, 0]
    assert np.array_equal(pixels.transpose(2, 0, 1), (wanted * 255).round().to(torch.uint8))


def test_in_memory(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 12), dtype=np.uint8)
    names = [["a", "b"], ["b"], [], ["a"]] * 10
    overrides = {"data.shift": 0, "training.batch_size": 8, "model.options.decoder": False}
    run = torchcaps.fit((images, names), epochs=1, overrides=overrides, folder=tmp_path / "run")
    assert run.evaluate()["per_class"].keys() == {"a", "b"}
    assert run.evaluate((images[:8], names[:8]))["images"] == 8


@pytest.mark.parametrize("model", ["cnn-small", "matrix-capsnet-small"])
def test_other_models(trained, tmp_path, model):
    """One without capsules, whose probabilities are each class's own, and one of matrix capsules."""
    _, base, _ = trained
    overrides = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
    overrides["loss.kind"] = "cross-entropy" if model == "cnn-small" else "margin"
    run = torchcaps.fit(base / "photos", model, 1, overrides=overrides, folder=tmp_path / "run")
    assert 0 <= run.evaluate()["f1"] <= 1
    assert run.explain(tmp_path / "report", images=8).page.is_file()
