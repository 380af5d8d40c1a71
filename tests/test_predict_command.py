"""``torchcaps predict`` on what people have: folders, patterns, lists and tables, some of it broken."""

import csv
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchcaps.cli import main
from torchcaps.data.registry import dataset_class

SMALL = ["text.vector_size=8", "model.options.filters=6", "model.options.types=3", "model.options.pose=4"]


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def pipe(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def files_in(out):
    return [line.rsplit(": ", 1)[0] for line in out.splitlines()]


@pytest.fixture(scope="module")
def digits():
    """20 of the test digits, each as the content of a PNG file."""
    found = []
    for pixels in dataset_class("mnist-mini")().load("test").images[:20, 0].numpy():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found.append(file.getvalue())
    return found


@pytest.fixture
def photos(tmp_path, monkeypatch, digits):
    """A folder as people have it, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["b.png", "a.PNG", "deep/er/c.png", "deep/d[1].png", ".hidden.png", ".git/e.png"]):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(digits[number])
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "photos" / "deep" / "f.webp")
    (tmp_path / "photos" / "Thumbs.db").write_bytes(b"?")
    (tmp_path / "photos" / "notes.txt").write_bytes(b"?")
    (tmp_path / "photos" / "again").symlink_to("deep")
    return Path("photos")


ALL = ["photos/a.PNG", "photos/b.png", "photos/deep/d[1].png", "photos/deep/f.webp", "photos/deep/er/c.png"]


# ---------------------------------------------------------------- many files, some of them bad


def test_bad_files_do_not_stop_the_rest(tmp_path, monkeypatch, capsys, digits):
    monkeypatch.chdir(tmp_path)
    bad = {7: b"", 8: b"not an image", 100: digits[0][:60], 200: b"\x89PNG\r\n\x1a\n", 250: b"%PDF", 298: b"GIF89a"}
    for number in range(299):
        Path(f"{number:03}.png").write_bytes(bad.get(number, digits[number % 20]))
    names = [f"{number:03}.png" for number in range(299)] + ["gone.png"]
    assert call("predict", "mnist", *names, "--csv", "--errors", "bad.csv") == 1
    out, err = capsys.readouterr()
    table = list(csv.DictReader(io.StringIO(out)))
    assert [row["file"] for row in table] == [name for n, name in enumerate(names[:299]) if n not in bad], "in order"
    assert len(table) == 293
    assert "7 of 300 files could not be read" in err
    assert "007.png: the file is empty" in err
    with open("bad.csv", encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    assert [row["input"] for row in listed] == [*(f"{number:03}.png" for number in bad), "gone.png"]
    assert all(row["error"] in err for row in listed)
    assert {row["label"] for row in table} > {"1", "7"}


def test_the_first_bad_files_are_named_and_the_rest_counted(tmp_path, monkeypatch, capsys, digits):
    monkeypatch.chdir(tmp_path)
    Path("good.png").write_bytes(digits[0])
    assert call("predict", "mnist", *(f"{number}.png" for number in range(31)), "good.png") == 1
    out, err = capsys.readouterr()
    assert files_in(out) == ["good.png"]
    assert "31 of 32 files" in err
    assert "  19.png: it cannot be read: No such file or directory\n" in err
    assert "20.png" not in err
    assert "and 11 more; --errors FILE writes all of them" in err


def test_exit_codes(photos, capsys, monkeypatch):
    assert call("predict", "mnist", photos / "b.png") == 0
    assert call("predict", "mnist", "gone.png") == 1, "all was bad"
    assert "the only file could not be read" in capsys.readouterr().err
    (photos / "empty").mkdir()
    pipe(monkeypatch, b"\n")
    for words, told in (
        ([photos / "empty"], "no image"),
        ([], "which images?"),
        (["-"], "no image"),
        ([photos, "--text", "a"], "reads images"),
        ([photos, "--null"], "--null"),
        ([photos, "--batch-size", "0"], "batch_size must be at least 1"),
        ([photos, "--errors", "no/where.csv"], "No such file"),
    ):
        assert call("predict", "mnist", *words) == 2, words
        assert told in capsys.readouterr().err


def test_options_stand_anywhere(photos, capsys):
    assert call("predict", "--json", "mnist", photos / "b.png", "--batch-size", "1", photos / "a.PNG") == 0
    assert [json.loads(line)["file"] for line in capsys.readouterr().out.splitlines()] == [
        "photos/b.png",
        "photos/a.PNG",
    ]


# ---------------------------------------------------------------- folders, patterns, lists, tables


def test_a_folder_with_all_that_is_in_it(photos, capsys):
    assert call("predict", "mnist", photos) == 0
    out, err = capsys.readouterr()
    assert files_in(out) == ALL
    assert "left out: hidden 2, linked folders 1, .db 1, .txt 1." in err


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("photos/*.png", ["photos/b.png"]),
        ("photos/[ab].*", ALL[:2]),
        ("**/*.png", ["photos/b.png", "photos/deep/d[1].png", "photos/deep/er/c.png"]),
        ("photos/**/*.png", ["photos/b.png", "photos/deep/d[1].png", "photos/deep/er/c.png"]),
        ("pho*/**/er/?.png", ["photos/deep/er/c.png"]),
        ("photos/**", ALL),
        ("photos/d*", ALL[2:]),
        ("photos/deep/d[1].png", ["photos/deep/d[1].png"]),
    ],
)
def test_patterns_that_no_shell_expanded(pattern, found, photos, capsys):
    assert call("predict", "mnist", pattern) == 0
    assert files_in(capsys.readouterr().out) == found


def test_a_pattern_that_nothing_fits_is_told(photos, capsys):
    assert call("predict", "mnist", "photos/*.jpeg", "photos/b.png") == 1
    out, err = capsys.readouterr()
    assert files_in(out) == ["photos/b.png"]
    assert "nothing fits the pattern photos/*.jpeg" in err


def test_lists_of_files(photos, capsys, monkeypatch):
    pipe(monkeypatch, b"photos\nphotos/b.png\r\n\nphotos/gone.png\nphotos/deep/er/c.png")
    assert call("predict", "mnist", "-") == 1
    out, err = capsys.readouterr()
    assert files_in(out) == ["photos/b.png", "photos/deep/er/c.png"]
    assert "1 of 3 files" in err
    assert "left out: folders of the list 1" in err
    strange = b"photos/two\nlines.png"
    os.link("photos/b.png", strange)
    pipe(monkeypatch, strange + b"\0photos/b.png\0")
    assert call("predict", "mnist", "-", "-0", "--json") == 0
    assert [json.loads(line)["file"] for line in capsys.readouterr().out.splitlines()] == [
        strange.decode(),
        "photos/b.png",
    ]


def test_names_that_are_not_utf8_survive(photos, capsys, monkeypatch):
    strange = b"photos/caf\xe9.png"
    os.link("photos/b.png", strange)
    pipe(monkeypatch, strange)
    assert call("predict", "mnist", "-", "--json") == 0
    out = capsys.readouterr().out
    assert os.fsencode(json.loads(out)["file"]) == strange
    out.encode("utf-8")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("list.csv", 'file,label\nb.png,1\n"deep/er/c.png",2\n', []),
        ("list.tsv", "no\tpath\r\n1\tb.png\r\n2\tdeep/er/c.png\r\n", []),
        ("list.jsonl", '{"image": "b.png"}\n\n{"image": "deep/er/c.png"}\n', []),
        ("list.csv", "\ufeffid; photo\n1;b.png\n2;deep/er/c.png", ["--column", "photo"]),
        ("list.txt", "photo\nb.png\ndeep/er/c.png", ["--column", "photo"]),
    ],
)
def test_tables_with_a_column_of_files(name, content, words, photos, capsys):
    (photos / name).write_text(content, encoding="utf-8", newline="")
    assert call("predict", "mnist", photos / name, *words) == 0
    assert files_in(capsys.readouterr().out) == ["photos/b.png", "photos/deep/er/c.png"]


def test_rows_that_cannot_be_read(photos, capsys, monkeypatch):
    outside = str((photos / "b.png").absolute())
    rows = ["file,n", "b.png,1", "../photos/b.png,2", f"{outside},3", ",4", "b.png", '"b"x,5', "b\0.png,6", "b.png,7"]
    table = "\n".join(rows).encode() + b"\nb\xe9.png,8\n"
    (photos / "list.csv").write_bytes(table)
    assert call("predict", "mnist", photos / "list.csv") == 1
    out, err = capsys.readouterr()
    assert files_in(out) == ["photos/b.png"] * 2
    assert "7 of 9 files" in err
    assert err.count("leads out of the folder") == 2
    for told in (
        "line 5 of {} names no file",
        "line 6 of {} has 1 fields",
        "line 7 of {}",
        "line 10 of {} is not UTF-8",
    ):
        assert told.format("photos/list.csv") in err
    pipe(monkeypatch, table)
    assert call("predict", "mnist", "-", "--column", "file") == 1
    assert files_in(capsys.readouterr().out) == [outside], "what is piped in may be anywhere"


def test_a_table_without_the_column_names_those_it_has(photos, capsys):
    (photos / "list.csv").write_text("name,size\nb.png,3\n")
    assert call("predict", "mnist", photos / "list.csv", photos / "b.png") == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "nor 'path' among 'name', 'size'. Say by --column which" in err


# ---------------------------------------------------------------- texts


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    """A run on one's own CSV, whose column of texts is called review."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [f"a {'good' if n % 2 else 'bad'} film number {n % 7},{'yes' if n % 2 else 'no'}" for n in range(40)]
    (folder / "own.csv").write_text("\n".join(["review,verdict", *rows]))
    columns = ["--data.options.text_column", "review", "--data.options.label_column", "verdict"]
    words = [
        "train",
        "text",
        "--data.name",
        folder / "own.csv",
        *columns,
        "--output",
        folder / "run",
        *(f"--{key}" for key in SMALL),
    ]
    assert call(*words, "--epochs", "1") == 0
    return folder / "run"


def texts_in(out):
    return [json.loads(line)["text"] for line in out.splitlines()]


def test_tables_are_read_by_the_column_of_the_training(text_run, capsys):
    table = text_run.parent / "own.csv"
    assert call("predict", text_run, table, "--json") == 0
    out, err = capsys.readouterr()
    assert texts_in(out) == [f"a {'good' if n % 2 else 'bad'} film number {n % 7}" for n in range(40)]
    assert f"own.csv has labels, too: torchcaps evaluate {text_run} --data {table} measures" in err
    assert call("evaluate", text_run, "--data", table) == 0, "as it says"


def test_a_column_of_any_table(text_run, tmp_path, capsys, monkeypatch):
    table = 'body;n\n"good; or bad";1\n;2\n"two\nlines";3\n'
    for name in ("t.csv", "t.txt"):
        (tmp_path / name).write_text(table)
        assert call("predict", text_run, tmp_path / name, "--column", "body", "--json") == 0
        assert texts_in(capsys.readouterr().out) == ["good; or bad", "", "two\nlines"], "as many answers as rows"
    pipe(monkeypatch, table.encode())
    assert call("predict", text_run, "-", "--column", "body", "--json") == 0
    assert len(texts_in(capsys.readouterr().out)) == 3
    assert call("predict", text_run, tmp_path / "t.csv") == 1
    assert "has no 'review' among 'body', 'n'" in capsys.readouterr().err
    assert call("predict", text_run, "--text", "good", "--column", "body") == 2


def test_lines_that_look_like_a_table_are_told(text_run, tmp_path, capsys):
    for name, line in (("a.txt", "text,label"), ("b.txt", '{"text": "good", "label": 1}')):
        (tmp_path / name).write_text(f"{line}\ngood\n")
        assert call("predict", text_run, tmp_path / name) == 0
        assert f"{name} looks like a table" in capsys.readouterr().err
    (tmp_path / "c.txt").write_text("good, but not a table\n")
    assert call("predict", text_run, tmp_path / "c.txt") == 0
    assert capsys.readouterr().err == ""


def test_bad_rows_and_lines_do_not_stop_the_rest(text_run, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"review": "good"}\n{"review": 3}\n[1]\n{"text": "x"}\n{\n{"review": "bad"}\n')
    (tmp_path / "b.txt").write_bytes(b"good\n\ncaf\xe9\n \nbad")
    (tmp_path / "c.txt").write_bytes("good".encode("utf-16"))
    (tmp_path / "d.csv").write_bytes(b"")
    (tmp_path / "e.md").write_bytes(b"# left out")
    assert call("predict", text_run, tmp_path, "--json") == 1
    out, err = capsys.readouterr()
    assert texts_in(out) == ["good", "bad", "good", "bad"]
    assert "7 of 11 inputs could not be read" in err
    for told in ("'review' in line 2 of", "line 3 of", "line 4 of", "line 5 of", "c.txt is UTF-16", "d.csv is empty"):
        assert told in err
    assert "left out: empty lines 2, .md 1." in err
    assert call("predict", text_run, "photo.png") == 1
    assert "photo.png is an image by its name" in capsys.readouterr().err


def test_texts_of_several_lines_come_separated_by_nul(text_run, capsys, monkeypatch):
    pipe(monkeypatch, b"good\nfilm\0bad\0")
    assert call("predict", text_run, "-0", "--json") == 0
    assert texts_in(capsys.readouterr().out) == ["good\nfilm", "bad"]


def test_words_are_shown_of_what_can_be_read(text_run, tmp_path, capsys):
    (tmp_path / "b.txt").write_bytes(b"good\ncaf\xe9\nbad")
    assert call("predict", text_run, tmp_path / "b.txt", "--words") == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "1 of 3 inputs" in err


def test_answers_are_counted_on_the_terminal_only_where_they_are_not_seen(photos, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert call("predict", "mnist", photos, "--csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
