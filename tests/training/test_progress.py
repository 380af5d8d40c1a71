"""How far training is, how long it still takes, and when it stops because nothing becomes better."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from torchcaps.training import bars, callbacks, fit, runs, stopping, trainers
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipe import RecipeError, TrainingOptions
from torchcaps.training.runs import read_run_recipe

STEADY = ("--optimizer.schedule", "constant")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.01, "1 s"), (3.4, "3 s"), (9.4, "9 s"), (12, "10 s"), (43, "45 s"), (57, "55 s"), (58, "1 min"),
        (100, "2 min"), (3560, "59 min"), (3590, "1 h"), (7500, "2 h 5 min"), (90_000, "1 day 1 h"),
        (3 * 86_400 + 4 * 3600, "3 days 4 h"),
    ],
)  # fmt: skip
def test_durations_are_said_as_one_says_them(seconds, said):
    assert bars.describe_duration(seconds) == said


def test_the_time_left_is_that_of_the_whole_training_and_of_this_session(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(bars.time, "perf_counter", lambda: now[0])
    trainer = SimpleNamespace(global_step=50, max_epochs=10, num_training_batches=20)
    left, most = bars.TimeLeft(), bars.TimeLeft(may_stop=True)
    for each in (left, most):
        each.on_train_start(trainer, None)
        assert each.measure(trainer) == math.inf
        assert each.describe(trainer) == ""
    now[0], trainer.global_step = 106.0, 80  # thirty steps in six seconds, and 120 are left
    assert left.measure(trainer) == pytest.approx(24)
    assert left.describe(trainer) == "about 25 s left"
    assert most.describe(trainer) == "at most 25 s left"
    trainer.global_step = 200
    assert left.describe(trainer) == ""


def test_long_epochs_tell_how_far_they_are_and_short_ones_do_not(tiny_recipe, tmp_path, monkeypatch):
    lines = []
    (tmp_path / "short").mkdir()
    fit.train(tiny_recipe("--epochs", "2"), tmp_path / "short", say=lines.append)
    epochs = [line for line in lines if line.startswith("epoch")]
    assert len(epochs) == 2
    assert epochs[0].endswith("left")
    assert epochs[1].endswith(" s"), "nothing is left"
    monkeypatch.setattr(bars, "EVERY", 0.0)
    lines.clear()
    (tmp_path / "long").mkdir()
    fit.train(tiny_recipe("--epochs", "1"), tmp_path / "long", say=lines.append)
    within = [line for line in lines if "%:" in line]
    assert len(within) == 8, "nine steps, the last of which is told by the line of the epoch"
    assert within[0].startswith("epoch 1/1, 11 %: loss 0.")
    assert within[0].endswith("left")


def test_the_bar_shows_epoch_steps_loss_accuracy_and_the_time_left(tiny_recipe, tmp_path, capsys):
    fit.train(tiny_recipe("--epochs", "2"), tmp_path, say=lambda _: None, bar=True)
    shown = capsys.readouterr().err
    assert "epoch 1/2" in shown
    assert "5/9" in shown
    assert "loss=0." in shown
    assert "accuracy=" in shown
    assert "left=" in shown


ACCURACIES = [0.5, 0.6, 0.6, 0.55, 0.6, 0.9, 0.9, 0.9]


@pytest.fixture
def made_up(monkeypatch):
    """Validation accuracies are made up, one for each epoch."""
    original = CapsuleModule.epoch_means

    def means(module, part):
        found = original(module, part)
        return found | {"val_accuracy": ACCURACIES[module.trainer.current_epoch]} if part == "val" else found

    monkeypatch.setattr(CapsuleModule, "epoch_means", means)


@pytest.mark.parametrize(
    ("patience", "min_delta", "epochs"), [(1, 0, 3), (3, 0, 5), (4, 0, 8), (2, 0.2, 3), (6, 0.45, 7), (7, 0.45, 8)]
)
def test_training_stops_when_nothing_becomes_better(tiny_recipe, tmp_path, made_up, patience, min_delta, epochs):
    options = ("--epochs", "8", "--training.patience", str(patience), "--training.min_delta", str(min_delta))
    said = []
    summary = fit.train(tiny_recipe(*STEADY, *options, "--training.batch_size", "54"), tmp_path, say=said.append)
    assert summary["epochs"] == epochs
    assert summary["stopped_early"] is (epochs < 8)
    assert json.loads((tmp_path / "summary.json").read_text())["stopped_early"] is (epochs < 8)
    told = [line for line in said if "Stopped early" in line]
    assert len(told) == (epochs < 8)
    if (patience, epochs) == (3, 5):
        assert told == ["Stopped early, after epoch 5 of 8: validation has not become better since epoch 2."]


def test_a_run_that_stops_early_is_the_same_when_it_was_broken_off(tiny_recipe, tmp_path, made_up, monkeypatch):
    """Broken off twice between the row of an epoch and its checkpoint, and resumed when it is over."""
    recipe = tiny_recipe(*STEADY, "--epochs", "8", "--training.patience", "3", "--training.checkpoint_every", "1")
    (tmp_path / "whole").mkdir()
    assert fit.train(recipe, tmp_path / "whole")["epochs"] == 5
    (tmp_path / "broken").mkdir()
    original = callbacks.EpochLog.on_train_epoch_end
    crashes = [2, 4]  # after these epochs; the second is the one that ends it

    def crash(self, trainer, module):
        original(self, trainer, module)
        if trainer.current_epoch in crashes:
            crashes.remove(trainer.current_epoch)
            raise RuntimeError("crash")

    monkeypatch.setattr(callbacks.EpochLog, "on_train_epoch_end", crash)
    for resume in (False, True):
        with pytest.raises(RuntimeError, match="crash"):
            fit.train(recipe, tmp_path / "broken", resume=resume)
    assert fit.train(recipe, tmp_path / "broken", resume=True)["epochs"] == 5
    weights = (tmp_path / "whole" / runs.WEIGHTS).read_bytes()
    assert (tmp_path / "broken" / runs.WEIGHTS).read_bytes() == weights
    said = []
    summary = fit.train(recipe, tmp_path / "whole", resume=True, say=said.append)
    assert (summary["epochs"], summary["stopped_early"]) == (5, True)
    assert "stopped early, after 5 epochs" in said[0]
    assert (tmp_path / "whole" / runs.WEIGHTS).read_bytes() == weights
    patient = tiny_recipe(*STEADY, "--epochs", "8", "--training.patience", "4")
    assert fit.train(patient, tmp_path / "whole", resume=True)["epochs"] == 8
    assert read_run_recipe(tmp_path / "whole").training.patience == 4


def test_patience_needs_something_to_watch(tiny_recipe):
    with pytest.raises(RecipeError, match=r"training.patience needs validation") as caught:
        tiny_recipe("--training.patience", "3", "--data.validation", "0")
    assert caught.value.option == "training.patience"
    for wrong in ({"patience": 0}, {"min_delta": -1}, {"min_delta": math.nan}):
        with pytest.raises(RecipeError):
            TrainingOptions(**wrong)


def test_equal_values_are_no_improvement():
    log = callbacks.EpochLog(None, None)
    assert stopping.count_since_best(log) == 0
    log.rows = [{"val_accuracy": value} for value in (0.2, 0.2, 0.2)]
    assert stopping.count_since_best(log) == 2
    assert stopping.is_out_of_patience(log, TrainingOptions(patience=2))
    assert not stopping.is_out_of_patience(log, TrainingOptions(patience=3))
    assert not stopping.is_out_of_patience(log, TrainingOptions())


@pytest.mark.parametrize(
    ("asked", "gpu", "bf16", "found"),
    [
        ("auto", False, False, "32-true"), ("auto", True, True, "bf16-mixed"), ("auto", True, False, "32-true"),
        (32, True, True, "32-true"), ("32", False, False, "32-true"), ("bf16", False, False, "bf16-mixed"),
        (16, True, True, "16-mixed"), ("fp16", True, False, "16-mixed"), ("16-mixed", False, False, "bf16-mixed"),
        ("bf16-mixed", True, True, "bf16-mixed"),
    ],
)  # fmt: skip
def test_precision_by_name(monkeypatch, asked, gpu, bf16, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
    said = []
    assert trainers.choose_precision(TrainingOptions(precision=asked), said.append) == found
    assert bool(said) == (str(asked) in ("16", "fp16", "16-mixed") and not gpu)


def test_mixed_precision_trains_and_resumes(tiny_recipe, tmp_path):
    recipe = tiny_recipe("--epochs", "1", "--precision", "bf16")
    assert math.isfinite(fit.train(recipe, tmp_path)["train_loss"])
    assert read_run_recipe(tmp_path).training.precision == "bf16", "as it was asked for"
    (tmp_path / "auto").mkdir()
    (tmp_path / "plain").mkdir()
    fit.train(tiny_recipe("--epochs", "1", "--precision", "auto", "--training.accelerator", "cpu"), tmp_path / "auto")
    fit.train(tiny_recipe("--epochs", "1", "--training.accelerator", "cpu"), tmp_path / "plain")
    assert (tmp_path / "auto" / runs.WEIGHTS).read_bytes() == (tmp_path / "plain" / runs.WEIGHTS).read_bytes()
    with pytest.raises(RecipeError, match="auto, 32, bf16"):
        tiny_recipe("--precision", "8")
