"""``torchcaps explain`` as a user meets it."""

import json
import re
import sys

import numpy as np
import pytest

import torchcaps.report
from torchcaps.cli import main


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


@pytest.fixture(scope="module")
def explained_run(tmp_path_factory):
    """A run on one's own images, made by the command."""
    folder = tmp_path_factory.mktemp("explain")
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = generator.integers(0, 60, (60, 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    np.savez(folder / "own.npz", x=images, y=labels)
    words = ["--data.name", folder / "own.npz", "--epochs", 1, "--training.batch_size", 8, "--output", folder / "run"]
    assert call("train", *words) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def explained_texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    rows = [f"a {'good' if n % 2 else 'bad'} film number {n % 7},{'yes' if n % 2 else 'no'}" for n in range(60)]
    (folder / "own.csv").write_text("\n".join(["text,label", *rows]))
    return folder / "own.csv"


def test_a_report_is_written_into_the_run(explained_run, capsys):
    assert call("explain", explained_run) == 0
    out, err = capsys.readouterr()
    assert "accuracy" in out
    assert re.search(r"on 1\d test images of own.npz", out), "about a fifth of 60"
    assert "routing: entropy" in out
    assert out.splitlines()[-1] == f"Report: {explained_run / 'explain' / 'report.html'}"
    assert not err, "a progress bar is for a terminal"
    files = {path.name for path in (explained_run / "explain").iterdir()}
    assert files == {"report.html", "numbers.json", "pictures"}


def test_json_is_what_is_written(explained_run, tmp_path, capsys):
    assert call("explain", explained_run, "--output", tmp_path / "new" / "folder", "--json", "--images", 4) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "new" / "folder" / "numbers.json").read_text())
    assert printed["images"] == 4
    assert printed["command"] == (
        f"torchcaps explain {explained_run} --output {tmp_path / 'new' / 'folder'} --images 4 --seed 0"
    )


def test_a_terminal_sees_progress(explained_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert call("explain", explained_run, "--output", tmp_path, "--images", 3) == 0
    assert "routing" in capsys.readouterr().err


def test_texts_show_the_words_that_decide(explained_texts, tmp_path, capsys):
    small = [f"--model.options.{name}={n}" for name, n in {"filters": 6, "types": 3, "pose": 4}.items()]
    words = [
        "--data.name",
        explained_texts,
        "--text.vector_size=8",
        *small,
        "--epochs",
        2,
        "--output",
        tmp_path / "run",
    ]
    assert call("train", "text", *words) == 0
    capsys.readouterr()
    assert call("explain", tmp_path / "run", "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    cases = numbers["words"]["right"] + numbers["words"]["wrong"]
    assert cases
    assert all(len(case["words"]) == len(case["relevance"]) for case in cases)
    text = (tmp_path / "run" / "explain" / "report.html").read_text()
    footer = text[text.index("<footer>") :]
    there = {path.name for path in (tmp_path / "run" / "explain").iterdir()}
    assert {"report.html", "numbers.json"} <= there
    assert "numbers.json" in footer
    assert ("pictures" in footer) == ("pictures" in there), "the footer names what is there"
    assert ">good</span>" in text or ">bad</span>" in text
    assert 'id="words"' in text


def test_texts_without_capsules_show_answers(explained_texts, tmp_path, capsys):
    words = ["--model.name=text-cnn", "--loss.kind=cross-entropy", "--model.options.filters=4", "--text.vector_size=8"]
    own = ["--data.name", explained_texts, "--output", tmp_path / "run", "--epochs", 1]
    assert call("train", "text", *own, *words) == 0
    assert call("explain", tmp_path / "run") == 0
    assert "has no capsules" in (tmp_path / "run" / "explain" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "nothing"], "data set"),
        (["--data", "no/where"], "no such folder"),
        (["--data", "mnist-mini"], "has images of"),
        (["--data", "mr-mini"], "has texts"),
        (["--images", "0"], "at least 1"),
        (["--seed", "99999999999999999999999"], "below 2^62"),
        (["--seed", "-1"], "at least 0"),
        (["--output", "/dev/null/x"], "/dev/null"),
        (["--output", "/dev/null"], "/dev/null"),
    ],
)
def test_what_explain_refuses(explained_run, words, told, capsys):
    assert call("explain", explained_run, *words) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.startswith("torchcaps: ")
    assert err.count("\n") == 1


def test_a_single_image_is_no_plural(explained_run, tmp_path, capsys):
    assert call("explain", explained_run, "--output", tmp_path, "--images", 1) == 0
    out = capsys.readouterr().out
    assert "on 1 test image of own.npz" in out
    assert "mean of all other" not in out, "there is no other"


def test_not_a_run_folder_is_one_line(tmp_path, capsys):
    assert call("explain", tmp_path) == 2
    err = capsys.readouterr().err
    assert "not a run folder" in err
    assert err.count("\n") == 1


def test_without_matplotlib_the_extra_is_named(explained_run, monkeypatch, capsys):
    monkeypatch.setattr(torchcaps, "report", torchcaps.report)  # a new import would leave another one behind
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "torchcaps.report"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert call("explain", explained_run) == 2
    assert 'pip install "torchcaps[explain]"' in capsys.readouterr().err
