"""What becomes of a run that is taken up: more epochs, weights that are gone, no checkpoint, data that was moved."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
import yaml

import torchcaps
from torchcaps.cli import main
from torchcaps.data.record import RECORD
from torchcaps.training import fit, runs
from torchcaps.training.errors import RunError
from torchcaps.training.runs import begin_run, read_run_recipe
from torchcaps.training.trainers import fit_batch_size

STEADY = ("--optimizer.schedule", "decay", "--optimizer.decay_steps", "5")


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def weights(folder):
    return (folder / runs.WEIGHTS).read_bytes()


@pytest.fixture(scope="module")
def steady_run(tiny_data, tmp_path_factory):
    """A run of two epochs with a learning rate that can go on."""
    folder = tmp_path_factory.mktemp("steady") / "run"
    words = ["train", "--data.name", tiny_data, "--data.validation", 0.25, "--training.batch_size", 6, "--epochs", 2]
    assert call(*words, *STEADY, "--output", folder) == 0
    return folder


@pytest.fixture
def steady(steady_run, tmp_path):
    return shutil.copytree(steady_run, tmp_path / "run")


@pytest.fixture(scope="module")
def cycle_run(tiny_data, tmp_path_factory):
    """A run of one epoch with the learning rate of the quickstart."""
    folder = tmp_path_factory.mktemp("cycle") / "run"
    assert call("train", "--data.name", tiny_data, "--epochs", 1, "--output", folder) == 0
    return folder


def test_more_epochs_end_where_as_many_from_the_beginning_do(steady, tiny_recipe, tmp_path, capsys):
    torchcaps.load(steady).evaluate()
    assert call("train", "--resume", steady, "--epochs", 4) == 0
    out = capsys.readouterr().out
    assert "epoch 3/4" in out
    assert "epoch 2/4" not in out
    (tmp_path / "whole").mkdir()
    fit.train(tiny_recipe(*STEADY, "--epochs", "4"), tmp_path / "whole")
    assert weights(steady) == weights(tmp_path / "whole")
    assert read_run_recipe(steady).training.epochs == 4
    assert json.loads((steady / "summary.json").read_text())["epochs"] == 4
    assert not (steady / runs.EVALUATION).exists(), "it was of other weights"


@pytest.mark.parametrize("epochs", [None, 1, 2])
def test_a_finished_run_is_left_as_it_is(steady, capsys, epochs):
    before = {path.name: path.read_bytes() for path in steady.iterdir() if path.is_file()}
    assert call("train", "--resume", steady, *(() if epochs is None else ("--epochs", epochs))) == 0
    assert "has trained its 2 epochs already: nothing is left to do" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in steady.iterdir() if path.is_file()} == before


def test_one_cycle_cannot_go_on_and_the_way_out_is_told(cycle_run, capsys):
    before = weights(cycle_run)
    assert call("train", "--resume", cycle_run, "--epochs", 3) == 2
    err = capsys.readouterr().err
    assert "one-cycle" in err
    assert "--from" in err
    assert "start_from" not in err
    assert weights(cycle_run) == before
    assert read_run_recipe(cycle_run).training.epochs == 1
    assert call("train", "--resume", cycle_run, "--epochs", 1) == 0


MEAN = ("--optimizer.ema", "0.9")
EM = ("--model.options.routing", "em", "--training.inverse_temperature", "[0.01, 0.05]")


@pytest.mark.parametrize("options", [(), MEAN, EM])
def test_weights_that_are_gone_come_from_the_checkpoint(tiny_recipe, tmp_path, options):
    recipe = tiny_recipe("--epochs", "2", "--training.batch_size", "27", *options)
    fit.train(recipe, tmp_path)
    before = weights(tmp_path)
    (tmp_path / runs.WEIGHTS).unlink()
    said = []
    fit.train(recipe, tmp_path, resume=True, say=said.append)
    assert weights(tmp_path) == before
    assert "written again" in said[-1]


def test_the_weights_of_a_best_epoch_that_are_gone_are_gone(steady, tmp_path):
    recipe = read_run_recipe(steady)
    recipe.training.keep = "best"
    checkpoint = torch.load(steady / runs.CHECKPOINT, weights_only=True)
    for row, accuracy in zip(checkpoint["callbacks"]["EpochLog"]["rows"], (0.9, 0.5), strict=True):
        row["val_accuracy"] = accuracy
    torch.save(checkpoint, steady / runs.CHECKPOINT)
    (steady / runs.WEIGHTS).unlink()
    with pytest.raises(RunError, match=r"best epoch, 1, and the checkpoint has only the last one, 2"):
        fit.train(recipe, steady, resume=True)


@pytest.mark.parametrize("rows", [[{"seconds": "x"}], [{}], ["row"], 3, None])
def test_rows_that_are_none_are_refused(steady, rows):
    checkpoint = torch.load(steady / runs.CHECKPOINT, weights_only=True)
    checkpoint["callbacks"]["EpochLog"]["rows"] = rows
    torch.save(checkpoint, steady / runs.CHECKPOINT)
    with pytest.raises(RunError, match="not of a training"):
        fit.train(read_run_recipe(steady), steady, resume=True)


def test_nothing_starts_over_unasked(steady, capsys):
    (steady / runs.CHECKPOINT).unlink()
    before = weights(steady)
    assert call("train", "--resume", steady) == 2
    err = capsys.readouterr().err
    assert "has no checkpoint to go on from" in err
    assert f"--from {steady}" in err
    assert call("train", "--resume", steady, "--restart") == 2
    assert "nothing to lose" in capsys.readouterr().err
    assert weights(steady) == before
    (steady / runs.WEIGHTS).unlink()
    assert call("train", "--resume", steady) == 2
    assert "--restart" in capsys.readouterr().err
    assert call("train", "--resume", steady, "--restart") == 0
    assert weights(steady) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--restart"], "goes with --resume"),
        (["--changed-data"], "goes with --resume"),
        (["--resume", "RUN", "--restart"], "a checkpoint: resume it without"),
        (["--resume", "RUN", "--from", "mnist"], "--from"),
        (["--resume", "RUN", "--find-lr"], "--find-lr"),
        (["--resume", "RUN", "--optimizer.lr", "1"], "another experiment"),
        (["--resume", "RUN", "--epochs", "0"], "at least 1"),
    ],
)
def test_what_does_not_go_together_is_told(steady_run, words, told, capsys):
    assert call("train", *(steady_run if word == "RUN" else word for word in words)) == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def own_arrays(tmp_path, monkeypatch):
    """Data in a folder that is also the working directory."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    np.savez("own.npz", x=generator.integers(0, 255, (40, 8, 8), dtype=np.uint8), y=np.arange(40) % 2)
    return tmp_path


def test_data_is_found_from_elsewhere_and_after_a_move(own_arrays, monkeypatch, capsys):
    assert call("train", "--data.name", "own.npz", "--training.batch_size", "8", "--epochs", "1", *STEADY) == 0
    run = own_arrays / "runs" / "own-1"
    assert run.is_dir(), "named after its data"
    (own_arrays / "elsewhere").mkdir()
    monkeypatch.chdir(own_arrays / "elsewhere")
    assert call("train", "--resume", "../runs/own-1", "--epochs", "2") == 0
    shutil.move(own_arrays / "own.npz", own_arrays / "elsewhere" / "moved.npz")
    assert call("train", "--resume", run, "--epochs", "3") == 2
    assert "If it was moved, give its new place as --data.name" in capsys.readouterr().err
    assert call("train", "--resume", run, "--epochs", "3", "--data.name", "moved.npz") == 0
    assert read_run_recipe(run).data.name == str(own_arrays / "elsewhere" / "moved.npz")
    other = np.load("moved.npz")
    np.savez("other.npz", x=other["x"][::-1] // 2, y=other["y"])
    assert call("train", "--resume", run, "--epochs", "4", "--data.name", "other.npz") == 2
    assert "is not what it was" in capsys.readouterr().err
    assert call("evaluate", run) == 0


def test_relative_paths_of_old_recipes_lead_from_the_run_too(own_arrays, monkeypatch, capsys):
    assert call("train", "--data.name", "own.npz", "--training.batch_size", "8", "--epochs", "1", *STEADY) == 0
    run = own_arrays / "runs" / "own-1"
    values = yaml.safe_load((run / runs.RECIPE).read_text())
    values["data"]["name"] = "own.npz"  # as version 0.1 wrote it, without a record
    old = yaml.safe_dump(values)
    (run / runs.RECIPE).write_text(old)
    (run / RECORD).unlink()
    monkeypatch.chdir("/")
    assert call("evaluate", run) == 0
    assert read_run_recipe(run).data.name == str(own_arrays / "own.npz")
    assert call("train", "--resume", run, "--epochs", "1") == 0
    (run / runs.RECIPE).write_text(old)
    shutil.move(own_arrays / "own.npz", run / "own.npz")
    assert read_run_recipe(run).data.name == str(run / "own.npz")
    monkeypatch.chdir(own_arrays)
    os.mkdir("own.npz")
    assert read_run_recipe(run).data.name == "own.npz", "the working directory comes first"
    assert read_run_recipe(run, {"data.name": "mnist-mini"}).data.name == "mnist-mini"


def test_refusals_leave_no_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wrong = ("--data.crop", "40", "--data.shift", "0")
    assert call("train", *wrong) == 2
    assert call("train", *wrong, "--output", "a/b/c") == 2
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    (tmp_path / "mine").mkdir()
    assert call("train", *wrong) == 2
    assert call("train", *wrong, "--output", "mine") == 2
    assert call("train", *wrong, "--output", "mine/new") == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "runs"], "what was there stays"
    with pytest.raises(FileNotFoundError), begin_run("x", "mine") as folder:
        shutil.copy("nowhere", shutil.copy(__file__, folder))
    assert not list((tmp_path / "mine").iterdir())
    with pytest.raises(KeyError), begin_run("x"), begin_run("y"):
        raise KeyError
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("asked", "items", "devices", "made"),
    [
        (64, 64, 1, 64), (64, 63, 1, 15), (64, 10, 1, 2), (64, 9, 1, 2), (64, 2, 1, 2), (64, 1, 1, 1),
        (64, 63, 2, 14), (64, 63, 4, 12), (64, 5, 4, 4), (64, 3, 4, 64),
    ],
)  # fmt: skip
def test_a_batch_fits_a_small_set(tiny_recipe, asked, items, devices, made):
    recipe, said = tiny_recipe("--training.batch_size", str(asked), "--devices", str(devices)), []

    class Few:
        kind = "images"

        def __len__(self):
            return items

    assert fit_batch_size(recipe, Few(), said.append).training.batch_size == made
    assert len(said) == (asked != made)


@pytest.mark.parametrize("count", [2, 3, 4, 10])
def test_very_small_sets_train(tmp_path, count):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (count, 12, 12), dtype=np.uint8)
    said = []
    run = torchcaps.fit((images, np.arange(count) % 2), epochs=1, folder=tmp_path / "run", say=said.append)
    assert any("is larger than the" in line for line in said)
    assert run.recipe.training.batch_size <= count
    assert read_run_recipe(tmp_path / "run").training.batch_size == run.recipe.training.batch_size
