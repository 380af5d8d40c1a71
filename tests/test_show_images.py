"""`torchcaps train --show-images`: what a network would see, in a file, and nothing else."""

import io

import pytest
from PIL import Image

from torchcaps.cli import main


def call(*words):
    with pytest.raises(SystemExit) as done:
        main(list(words))
    return done.value.code


def test_a_sheet_of_changed_digits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b"):  # an ending is added
        words = ["--data.rotation", "15", "--data.erasing", "0.5", "--data.standardize", "true"]
        assert call("train", *words, "--show-images", name) == 0
    assert "10 training images of 1×28×28 in rows, each as the first 8 epochs" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]
    first, second = ((tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second  # nothing in it is by chance
    sheet = Image.open(io.BytesIO(first))
    assert sheet.size == (8 * 86 - 2, 10 * 86 - 2)
    grey = sheet.getchannel(0)
    assert len({grey.crop((86 * x, 0, 86 * x + 84, 84)).tobytes() for x in range(8)}) == 8  # every epoch another


def test_several_objects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("train", "--data.name", "multi-mnist", "--show-images", "x.png") == 0
    assert Image.open("x.png").size[0] > 100


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["text", "--show-images", "x.png"], "--show-images is for images, and mr-mini has texts"),
        (["--data.hue", "0.2", "--show-images", "x.png"], "these are grey"),
        (["--data.hue", "0.7", "--show-images", "x.png"], "in [0, 0.5]"),
        (["--show-images", "no/where.png"], "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_shown(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("train", *words) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
