"""The command line as a user meets it."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from PIL import Image

from torchcaps.cli import main
from torchcaps.commands import COMMANDS
from torchcaps.commands.keys import parse_with_keys


def call(*words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return end.value.code


def test_help_is_there_within_a_second_and_without_torch():
    best = min(_seconds_of_help() for _ in range(3))
    assert best < 1
    code = "import sys, torchcaps.cli as c; c.make_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def _seconds_of_help():
    start = time.perf_counter()
    subprocess.check_output([sys.executable, "-m", "torchcaps", "--help"])
    return time.perf_counter() - start


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command, capsys):
    assert call(command, "--help") == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"torchcaps {command}" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "qickstart"], "Did you mean 'quickstart'"),
        (["train", "--data.nme", "x"], "Did you mean --data.name?"),
        (["train", "--lr", "1"], "Did you mean --optimizer.lr?"),
        (["train", "--training.epochs", "x"], "training.epochs"),
        (["train", "--epochs", "0"], "at least 1"),
        (["train", "--data.name", "no/where"], "no such folder"),
        (["train", "--model.name", "capsnt"], "Did you mean 'capsnet'"),
        (["train", "--model.options.routng", "em"], "Did you mean 'routing'"),
        (["train", "--loss.kind", "spread", "--data.name", "multi-mnist"], "one class index per image"),
        (["train", "--training.accelerator", "gpu"], "gpu"),
        (
            ["train", "--data.image_size", "20"],
            "mnist-mini has no option 'image_size'. Options of mnist-mini: none. (--data.options.image_size)",
        ),
        (["train", "--data.crop", "20"], "give shift 0 with it, got 2. (--data.shift)"),
        (["train", "--data.crops", "13"], "give --data.crop, such as 32."),
        (["train", "--data.crops", "7"], "data.crops"),
        (["train", "--data.crop", "40", "--data.shift", "0"], "larger than the images"),
        (["train", "multi-mnist", "--data.standardize", "true"], "own canvas"),
        (["train", "--output", "/dev/null/x"], "cannot be made"),
        (["train", "--resume", "no/where"], "not a run folder"),
        (["train", "--resume", "x", "--seed", "3"], "another experiment"),
        (["train", "quickstart", "--resume", "x"], "give neither"),
        (["evaluate", "no/where"], "not a run folder"),
        (["predict", "no/where", "x.png"], "is not there"),
        (["data", "check", "no/where"], "no such folder"),
        (["data", "check"], "which one"),
        (["data", "get", "mnist-mini"], "not fetched"),
        (["data", "get", "nothing"], "nothing to fetch"),
    ],
)
def test_mistakes_are_two_lines_and_exit_two(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(*words) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.startswith("torchcaps: ")
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.yaml"))  # a run that came to nothing leaves nothing


def test_debug_shows_the_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="no recipe"):
        main(["train", "nothing", "--debug"])


def test_keys_of_a_recipe_are_told_from_options():
    words = ["--training.epochs", "1", "mnist", "--list", "--data.mirror=true", "--model.options.a.b", "[2]"]
    own, given = parse_with_keys(words, COMMANDS["train"].add_arguments)
    assert own.recipe == "mnist"
    assert own.list is True
    assert given == {"training.epochs": 1, "data.mirror": True, "model.options.a.b": [2]}


def test_print_config_is_a_recipe_that_gives_itself(capsys, tmp_path):
    assert call("train", "mnist", "--seed", "3", "--print-config") == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["training"]["seed"] == 3
    (tmp_path / "again.yaml").write_text(text)
    assert call("train", str(tmp_path / "again.yaml"), "--print-config") == 0
    assert capsys.readouterr().out == text


def test_lists(capsys):
    assert call("train", "--list") == 0
    assert "quickstart" in capsys.readouterr().out
    assert call("train", "--keys") == 0
    assert "--optimizer.lr" in capsys.readouterr().out
    assert call("models") == 0
    assert "8,215,568" in capsys.readouterr().out
    assert call("data", "list") == 0
    assert "fashion-mnist" in capsys.readouterr().out
    assert call("data", "check", "mnist-mini") == 0
    assert "5,000 images of 1×28×28" in capsys.readouterr().out


@pytest.fixture(scope="module")
def own_images(tmp_path_factory):
    """A folder of class folders: photographs of different sizes, bright above or bright below."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for name, sign in (("above", 1), ("below", -1)):
        (folder / name).mkdir()
        for number in range(40):
            side = int(generator.integers(16, 30))
            pixels = generator.integers(0, 40, (side, side, 3), dtype=np.uint8)
            pixels[::sign][: side // 3] += 180
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def test_from_a_folder_of_images_to_predictions(own_images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--data.name", str(own_images), "--epochs", "10", "--training.batch_size", "8", "--evaluate"]
    assert call(*words) == 0
    out = capsys.readouterr().out
    assert "Run folder: runs/photos0-1" in out
    assert re.search(r"Test accuracy: 100.00% on 1\d images", out), "about a fifth of 80"
    assert call("evaluate", "runs/photos0-1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1
    files = [str(own_images / "above" / "0.png"), str(own_images / "below" / "1.png")]
    assert call("predict", "runs/photos0-1", *files) == 0
    assert [line.split(": ")[1].split(" ")[0] for line in capsys.readouterr().out.splitlines()] == ["above", "below"]
    assert call("predict", "runs/photos0-1", *files, "--csv") == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["label"] for row in table] == ["above", "below"]
    assert float(table[0]["above"]) > float(table[0]["below"])


def test_unreadable_images_are_named_or_skipped(own_images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    photos = tmp_path / "photos"
    shutil.copytree(own_images, photos)
    for number in range(12):
        (photos / "below" / f"broken{number}.png").write_bytes(b"not an image")
    words = ["train", "--data.name", str(photos), "--epochs", "1", "--training.batch_size", "8"]
    assert call(*words) == 2
    err = capsys.readouterr().err
    assert "broken0.png" in err
    assert "12" in err
    assert call(*words, "--data.unreadable", "skip") == 0
    assert "unreadable images were skipped" in capsys.readouterr().out


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m torchcaps train --keys | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, env=os.environ)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["info"], ["models"], ["data", "list"], ["data", "check", "mnist-mini"]])
def test_what_prints_numbers_prints_json_too(words, capsys):
    assert call(*words) == 0
    said = capsys.readouterr().out
    assert call(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found
    assert all(name in said for name in found)


def test_training_as_json(tmp_path, capsys):
    words = ["train", "--epochs", "1", "--data.validation", "0.9", "--output", str(tmp_path / "run"), "--evaluate"]
    assert call(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["epochs"] == 1
    assert found["run"] == str(tmp_path / "run")
    assert 0 <= found["evaluation"]["accuracy"] <= 1


def test_bars_are_for_people_and_leave_stdout_to_the_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    words = ["train", "--epochs", "1", "--data.validation", "0.9", "--output", str(tmp_path / "run"), "--json"]
    assert call(*words) == 0
    out, shown = capsys.readouterr()
    assert json.loads(out)["epochs"] == 1
    assert "epoch 1/1" in shown
    assert call("evaluate", str(tmp_path / "run"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["images"] == 1000


def test_evaluate_shows_what_accuracy_hides_and_draws_it(tmp_path, capsys):
    words = ("evaluate", "mnist", "--data", "mnist-mini")
    assert call(*words, "--pictures", str(tmp_path / "new" / "folder")) == 0
    shown = capsys.readouterr()
    assert "balanced accuracy 99." in shown.out
    assert "macro F1 99." in shown.out
    assert "top-3" in shown.out
    assert "calibration error 0.0" in shown.out
    assert "reliability.png" in shown.err
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {"confusion.png", "reliability.png"}
    (tmp_path / "file").write_text("")
    assert call(*words, "--pictures", str(tmp_path / "file")) == 2
    assert "the pictures cannot be written" in capsys.readouterr().err
