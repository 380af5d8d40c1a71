"""Files and folders that are missing, of another kind, empty, broken or not to be opened."""

import errno
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from torchcaps.pretrained import weights_path

NO_FILE = "torchcaps-no-such-file"


def write_image(path, side=12):
    Image.fromarray(np.zeros((side, side), np.uint8)).save(path)


@pytest.fixture
def place(tmp_path):
    """A folder with all that can be given by mistake."""
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "empty").mkdir()
    for ending in ("npz", "csv", "tsv", "jsonl", "png", "jpg", "txt", "safetensors"):
        (tmp_path / f"empty.{ending}").touch()
        (tmp_path / f"noise.{ending}").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "words.csv").write_text("hello\nworld\n")
    (tmp_path / "one-class.csv").write_text("text,label\n" + "good,up\n" * 20)
    (tmp_path / "header.csv").write_text("text,label\n")
    (tmp_path / "quote.csv").write_text('text,label\n"good,up\nbad,down\n')
    (tmp_path / "half.jsonl").write_text('{"text": "good", "label": "up"}\n{"text": \n')
    (tmp_path / "list.jsonl").write_text("[1, 2]\n[3, 4]\n")
    (tmp_path / "noise.yaml").write_bytes(bytes(range(256)))
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "open.yaml").write_text("data: [")
    (tmp_path / "twice.yaml").write_text("data: {}\ndata: {}\n")
    (tmp_path / "strange.yaml").write_text("trainig: {epochs: 3}\n")
    np.savez(tmp_path / "no-y.npz", x=np.zeros((4, 12, 12), np.uint8))
    np.savez(tmp_path / "short-y.npz", x=np.zeros((4, 12, 12), np.uint8), y=np.arange(3))
    np.savez(tmp_path / "flat.npz", x=np.zeros(4, np.uint8), y=np.arange(4))
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 12, 12), np.uint8), y=np.zeros(0, int))
    np.savez(tmp_path / "nan.npz", x=np.full((20, 12, 12), np.nan, np.float32), y=np.arange(20) % 2)
    np.savez(tmp_path / "one.npz", x=np.zeros((20, 12, 12), np.uint8), y=np.zeros(20, int))
    (tmp_path / "photos").mkdir()
    write_image(tmp_path / "photos" / "loose.png")
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "cat").mkdir()
    (tmp_path / "single" / "cat").mkdir(parents=True)
    for number in range(4):
        write_image(tmp_path / "single" / "cat" / f"{number}.png")
    (tmp_path / "broken" / "cat").mkdir(parents=True)
    (tmp_path / "broken" / "dog").mkdir()
    for name in ("cat", "dog"):
        for number in range(3):
            (tmp_path / "broken" / name / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n no image")
    (tmp_path / "cut.safetensors").write_bytes(weights_path("mnist").read_bytes()[:5000])
    return tmp_path


DATA = [
    "empty", "empty.npz", "empty.csv", "empty.tsv", "empty.jsonl", "empty.txt", "noise.npz", "noise.csv", "noise.tsv",
    "noise.jsonl", "noise.png", "words.csv", "one-class.csv", "header.csv", "quote.csv", "half.jsonl", "list.jsonl",
    "no-y.npz", "short-y.npz", "flat.npz", "none.npz", "nan.npz", "one.npz", "photos", "hollow", "single", "broken",
    "missing", "missing/", "missing.npz", "missing.csv", "missing.jsonl", "missing/train.csv", "/dev/null", "/dev/zero",
    "no\x1b[31msuch", "no\nsuch.npz", "x" * 300, "x" * 300 + ".npz", "nul\0.npz",
]  # fmt: skip


@pytest.mark.parametrize("name", DATA, ids=lambda name: name[:20].encode("unicode_escape").decode())
def test_data_to_train_on(name, place, refused):
    texts = name.endswith((".csv", ".tsv", ".jsonl"))
    refused("train", *(["text"] if texts else []), "--data.name", name)


@pytest.mark.parametrize("name", DATA, ids=lambda name: name[:20].encode("unicode_escape").decode())
def test_data_to_measure_on(name, place, refused):
    refused("evaluate", "mnist", "--data", name)


@pytest.mark.parametrize("name", [n for n in DATA if n not in ("one-class.csv", "one.npz", "single", "nan.npz")],
                         ids=lambda name: name[:20].encode("unicode_escape").decode())  # fmt: skip
def test_data_to_check(name, place, refused):
    if name in ("broken", "short-y.npz") or name.startswith(("header", "quote")):
        pytest.skip("which is what data check reports")
    refused("data", "check", name)


@pytest.mark.parametrize(
    "name", ["empty.yaml", "noise.yaml", "list.yaml", "open.yaml", "twice.yaml", "strange.yaml", "missing.yaml",
             "empty", "photos/loose.png", "noise.npz", "/dev/null", "nul\0", "x" * 300, "a\nb"]
)  # fmt: skip
def test_recipes(name, place, refused):
    refused("train", name)


RUNS = ["missing", "empty", "photos", "empty.safetensors", "noise.safetensors", "cut.safetensors", "photos/loose.png",
        "empty.yaml", "/dev/null", "no\x1b[31msuch", "a\nb", "nul\0", "x" * 300]  # fmt: skip


@pytest.mark.parametrize("command", ["evaluate", "predict", "explain", "explore", "train --resume"])
@pytest.mark.parametrize("name", RUNS, ids=lambda name: name[:20].encode("unicode_escape").decode())
def test_runs(name, command, place, refused):
    refused(*command.split(), name)


PICTURES = [
    "missing.png",
    "empty.png",
    "noise.png",
    "noise.jpg",
    "words.csv",
    "empty",
    "/dev/null",
    "nul\0.png",
    "x" * 300,
]


REFUSED = ("empty", "nul\0.png")
"""Nothing is there to read, or no file can have such a name."""


@pytest.mark.parametrize("name", PICTURES, ids=lambda name: name[:20].encode("unicode_escape").decode())
def test_pictures(name, place, refused):
    (refused if name in REFUSED else refused.unread)("predict", "mnist", name)


def spoil(run, name, content):
    (run / name).write_bytes(content)


SPOILED = {
    "an empty recipe": ("recipe.yaml", b""),
    "a recipe of noise": ("recipe.yaml", bytes(range(256))),
    "a recipe with an unknown key": ("recipe.yaml", b"traning: {epochs: 1}\n"),
    "a recipe with a wrong type": ("recipe.yaml", b"training: {epochs: ten}\n"),
    "empty weights": ("weights.safetensors", b""),
    "weights of noise": ("weights.safetensors", bytes(range(256)) * 100),
    "pickled weights": ("weights.safetensors", b"\x80\x02}q\x00."),
}
CHECKPOINTS = {
    "empty": b"", "noise": bytes(range(256)) * 100, "pickle": b"\x80\x02}q\x00.",
    "a packed file": b"PK\x03\x04" + bytes(500),
}  # fmt: skip


@pytest.mark.parametrize("command", ["evaluate", "predict", "explain"])
@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_runs(name, command, image_run, tmp_path, refused):
    shutil.copytree(image_run, tmp_path / "run")
    spoil(tmp_path / "run", *SPOILED[name])
    refused(command, "run", *(["x.png"] if command == "predict" else []))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_spoiled_checkpoints(name, image_run, tmp_path, refused):
    shutil.copytree(image_run, tmp_path / "run")
    spoil(tmp_path / "run", "checkpoint.ckpt", CHECKPOINTS[name])
    assert "checkpoint" in refused("train", "--resume", "run")


def test_a_checkpoint_that_is_cut_short(image_run, tmp_path, refused):
    shutil.copytree(image_run, tmp_path / "run")
    content = (image_run / "checkpoint.ckpt").read_bytes()
    spoil(tmp_path / "run", "checkpoint.ckpt", content[: len(content) // 2])
    assert "damaged" in refused("train", "--resume", "run")


@pytest.mark.parametrize("what", ["weights.safetensors", "recipe.yaml"])
@pytest.mark.parametrize("command", ["evaluate", "explain", "train --resume"])
def test_a_folder_in_the_place_of_a_file(what, command, image_run, tmp_path, refused):
    if "resume" in command and "weights" in what:
        pytest.skip("a training reads its checkpoint")
    shutil.copytree(image_run, tmp_path / "run")
    (tmp_path / "run" / what).unlink()
    (tmp_path / "run" / what).mkdir()
    refused(*command.split(), "run")


TEXTS = {"missing": "missing.txt", "a folder": "empty", "empty": "empty.txt", "noise": "noise.txt", "nul": "a\0b"}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name, text_run, place, refused):
    (refused.unread if name in ("missing", "noise") else refused)("predict", text_run, TEXTS[name])


OF_TEXT_RUNS = [
    ("--text", "good", "--class", "none"), ("--text", "good", "--by", "couplings"),
    ("--text", "good", "--words", "--json"),
    ("--text", "good", "--words"), ("--text", "good", "--html", "no/where.html"), ("--text", " "),
    ("--words", "--text", "a", "--by", "x"),
]  # fmt: skip


@pytest.mark.parametrize("words", OF_TEXT_RUNS, ids=" ".join)
def test_words_of_a_run_that_has_none(words, text_run, refused):
    refused("predict", text_run, *words)


OF_IMAGE_RUNS = [
    ("evaluate", "--split", "validation"), ("evaluate", "--crops", "13"), ("evaluate", "--data", "mr-mini"),
    ("evaluate", "--data", "mnist-mini"), ("explain", "--data", "mnist-mini"),
    ("explain", "--images", "0"), ("explain", "--output", "/dev/null"), ("train --resume", "--optimizer.lr", "1"),
    ("train --resume", "--model.name", "capsnet"), ("train --resume", "--data.name", "mr-mini"),
    ("train --resume", "--data.name", "missing"), ("train --resume", "--data.name", "mnist-mini"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "name", "value"), OF_IMAGE_RUNS)
def test_what_a_run_has_not(command, name, value, image_run, refused):
    refused(*command.split(), image_run, name, value)


@pytest.mark.parametrize(
    "output", ["file", "file/x", "/dev/null", "/dev/null/x", "full", "nul\0", "x" * 300, "/proc/x"]
)
@pytest.mark.parametrize(
    "command", ["train", "explain mnist --data mnist-mini", "reproduce squashes --data mnist-mini"]
)
def test_where_nothing_can_be_written(command, output, tmp_path, refused):
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    if output == "full" and not command.startswith("train"):
        pytest.skip("others add to a folder")
    refused(*command.split(), "--output", output)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ELOOP, errno.EMFILE])
@pytest.mark.parametrize(
    "line", ["train own.yaml", "predict mnist a.png", "data check own.npz", "evaluate mnist --data own.csv"]
)
def test_what_must_not_be_read(line, number, tmp_path, refused, monkeypatch):
    """As a user without the right to; who runs the tests may have every right."""
    for name in ("own.yaml", "a.png", "own.npz", "own.csv"):
        (tmp_path / name).write_bytes(b"x")
    real = os.open

    def forbid(path, *rest, **named):
        if str(path).endswith(("own.yaml", "a.png", "own.npz", "own.csv")):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", forbid)
    (refused.unread if line.startswith("predict") else refused)(*line.split())
