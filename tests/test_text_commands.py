"""Text from the command line: train, evaluate, predict, and the words that decide."""

import io
import json
import re
import sys

import pytest

from torchcaps.cli import main

SMALL = [
    "--text.vector_size=8",
    *(f"--model.options.{key}={n}" for key, n in {"filters": 6, "types": 3, "pose": 4}.items()),
]


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on one's own CSV, made by the command."""
    folder = tmp_path_factory.mktemp("commands")
    rows = [f"a {'good' if n % 2 else 'bad'} film number {n % 7},{'yes' if n % 2 else 'no'}" for n in range(60)]
    (folder / "own.csv").write_text("\n".join(["text,label", *rows]))
    words = ["train", "text", "--data.name", folder / "own.csv", "--output", folder / "run", *SMALL, "--epochs", "2"]
    assert call(*words) == 0
    return folder / "run"


def test_the_recipe_runs_on_its_own_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("train", "text", *SMALL, "--epochs", "1", "--training.batch_size", "200", "--evaluate") == 0
    out = capsys.readouterr().out
    assert "3600 texts to train on, 400 to validate" in out
    assert "on 1,000 texts never seen before" in out
    assert call("evaluate", "runs/text-1") == 0
    assert "1,000 test texts of mr-mini" in capsys.readouterr().out


def test_a_text_a_file_and_stdin_give_the_same(run, tmp_path, monkeypatch, capsys):
    text = "a good film — of 2026"
    (tmp_path / "texts.txt").write_text(f"\ufeff{text}\n\n", encoding="utf-8")
    found = []
    for words in (["--text", text], [tmp_path / "texts.txt"], ["-"], []):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
        assert call("predict", run, *words, "--json") == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["text"] == text
    assert set(found[0]["scores"]) == {"yes", "no"}
    assert found[0] == found[1] == found[2] == found[3]


def test_csv_and_plain_output(run, capsys):
    assert call("predict", run, "--text", 'so "good", really', "--text", "bad", "--csv") == 0
    header, first, _ = capsys.readouterr().out.splitlines()
    assert header == "text,label,no,yes"
    assert first.startswith('"so ""good"", really",')
    assert call("predict", run, "--text", "good " * 50) == 0
    assert "…: " in capsys.readouterr().out


def test_words_that_decide_in_the_terminal_and_as_a_page(run, tmp_path, capsys):
    assert call("predict", run, "--text", "a good film", "--words") == 0
    assert "a good film" in capsys.readouterr().out
    page = tmp_path / "words.html"
    assert call("predict", run, "--text", "a good film", "--text", "<b>", "--html", page, "--by", "leaving-out") == 0
    assert str(page) in capsys.readouterr().out.replace("\n", "")
    assert ">good</span>" in page.read_text()
    assert "without the word" in page.read_text()
    assert call("predict", run, "--text", "a good film", "--words", "--class", "no") == 0
    assert capsys.readouterr().out.startswith("no ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--text", "a", "--words", "--class", "maybe"], "no class 'maybe'"),
        (["--text", "a", "--class", "yes"], "go with --words"),
        (["--text", "a", "--by", "leaving-out"], "go with --words"),
        (["--text", "a", "--words", "--json"], "one or the other"),
        (["--text", "a", "--html", "no/such/folder/page.html"], "No such file"),
    ],
)
def test_mistakes(run, words, told, capsys):
    assert call("predict", run, *words) == 2
    assert told in capsys.readouterr().err


def test_broken_encoding_and_no_text(run, tmp_path, capsys):
    (tmp_path / "broken.txt").write_bytes(b"caf\xe9\n")
    assert call("predict", run, tmp_path / "broken.txt") == 1
    assert "not UTF-8" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_bytes(b"\n \n")
    assert call("predict", run, tmp_path / "empty.txt") == 2
    assert "no text" in capsys.readouterr().err


def test_lists_and_checks(run, capsys):
    assert call("data", "list") == 0
    out = capsys.readouterr().out
    assert "mr-mini" in out
    assert "reuters8" in out
    assert call("data", "check", "mr-mini") == 0
    out = capsys.readouterr().out
    assert "mr-mini train: 4,000 texts of 20.2 words" in out
    assert "negative 2,000, positive 2,000" in out
    assert call("data", "check", run.parent / "own.csv") == 0
    assert re.search(r"own.csv test: \d+ texts", capsys.readouterr().out)
    assert call("data", "get", "mr") == 2
    assert "nothing to fetch" in capsys.readouterr().err
    assert call("models") == 0
    assert "text-capsnet-b" in capsys.readouterr().out


def test_words_are_of_capsules_only(run, tmp_path, capsys):
    words = ["--model.name=text-cnn", "--loss.kind=cross-entropy", "--model.options.filters=4", "--text.vector_size=8"]
    own = ["--data.name", run.parent / "own.csv", "--output", tmp_path / "cnn", "--epochs", "1"]
    assert call("train", "text", *own, *words) == 0
    assert call("predict", tmp_path / "cnn", "--text", "a", "--words") == 2
    assert "text capsules only" in capsys.readouterr().err
