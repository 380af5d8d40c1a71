"""A disk that is full, or fails, at any write: one sentence, and what was good before is good after."""

import errno
import os
import shutil
import threading

import pytest
from refusals import assert_refusal
from tensorboardX.event_file_writer import EventsWriter

import torchcaps
from torchcaps.cli import main

TRAINING = ["train", "--data.name", "data.npz", "--training.batch_size", "6", "--model.options.decoder", "false",
            "--training.checkpoint_every", "1"]  # fmt: skip


def fail(number):
    raise OSError(number, os.strerror(number))


@pytest.fixture
def failing(monkeypatch):
    """failing(n): the n-th file from now on cannot be brought to the disk, nor any after it."""
    real, state = os.fsync, {"left": None}

    def sync(handle):
        if state["left"] is not None:
            state["left"] -= 1
            if state["left"] <= 0:
                fail(errno.ENOSPC)
        return real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    return lambda count: state.update(left=count)


def run_command(words, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    lines = capsys.readouterr().err.splitlines()
    return end.value.code, lines


def assert_told(words, folder, capsys):
    code, lines = run_command(words, capsys)
    assert code == 2, lines
    assert len(lines) == 1, lines
    message = lines[0].removeprefix("torchcaps: ").replace(str(folder), "folder")
    assert_refusal(message, words[0])
    assert "No space left on device" in message
    return message


@pytest.fixture
def place(image_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(image_run.parent / "tiny.npz", "data.npz")
    return tmp_path


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 9, 12, 16, 20])
def test_in_training(count, place, failing, capsys):
    failing(count)
    assert_told([*TRAINING, "--epochs", "2", "--output", "run"], place, capsys)
    left = sorted(path.name for path in place.rglob("*") if path.name.startswith("."))
    assert left == [], "half a file"
    failing(None)
    if (place / "run" / "checkpoint.ckpt").exists():
        assert run_command(["train", "--resume", "run"], capsys)[0] == 0, "what was written before is whole"
    if (place / "run" / "weights.safetensors").exists():
        torchcaps.load(place / "run")


def test_the_log_of_tensorboard(place, monkeypatch, capsys):
    real = EventsWriter.write_event

    def write(records, event):
        return real(records, event) if threading.current_thread() is threading.main_thread() else fail(errno.ENOSPC)

    monkeypatch.setattr(EventsWriter, "write_event", write)
    message = assert_told([*TRAINING, "--epochs", "4", "--output", "run"], place, capsys)
    assert "tensorboard" in message


def test_a_report(text_run, place, failing, capsys):
    failing(1)
    assert_told(["explain", text_run, "--output", "report", "--images", "4"], place, capsys)


def test_a_page_of_words(text_run, place, failing, capsys, monkeypatch):
    failing(1)
    before = sorted(os.listdir(place))
    code, lines = run_command(["predict", text_run, "--text", "good", "--html", "page.html"], capsys)
    assert code == 2
    assert len(lines) == 1
    assert sorted(os.listdir(place)) == before


def test_a_result_that_cannot_be_kept_is_told(image_run, place, failing, capsys):
    shutil.copytree(image_run, "run")
    failing(1)
    code, lines = run_command(["evaluate", "run"], capsys)
    assert code == 0
    assert any("could not be kept" in line and "No space left" in line for line in lines)


def test_weights_that_cannot_be_saved(place, failing):
    run = torchcaps.load("mnist")
    failing(1)
    with pytest.raises(torchcaps.TorchcapsError, match="No space left"):
        run.save(place / "copy")
