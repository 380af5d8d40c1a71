"""Training into a run folder: what it holds, resuming exactly, stopping in good order."""

import csv
import errno
import json
import math
import os
import pickle
import re
import signal
import stat

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from torchcaps import create_model
from torchcaps.data.images import Batch
from torchcaps.errors import DataError
from torchcaps.losses import spread_margin_by_epoch
from torchcaps.models import ModelOutput
from torchcaps.run import load
from torchcaps.training import callbacks, checkpoints, fit, runs
from torchcaps.training.errors import RunError
from torchcaps.training.module import CapsuleModule, learning_rate_factor
from torchcaps.training.recipe import OptimizerOptions, RecipeError
from torchcaps.training.runs import load_model, load_weights, new_run_folder, read_run_recipe, save_weights
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import ImageTask
from torchcaps.training.tasks.metrics import grade


def weights(folder):
    return (folder / runs.WEIGHTS).read_bytes()


def rows(folder):
    with (folder / runs.METRICS).open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture
def stop_after(monkeypatch):
    """stop_after(n) makes training break off, as a crash would, after step n."""
    original = checkpoints.Checkpoints.on_train_batch_end

    def arm(step):
        def hook(self, trainer, module, *rest):
            original(self, trainer, module, *rest)
            if trainer.global_step == step:
                raise RuntimeError("crash")

        monkeypatch.setattr(checkpoints.Checkpoints, "on_train_batch_end", hook)

    return arm


def test_a_run_folder_tells_all(tiny_recipe, tmp_path):
    recipe = tiny_recipe("--epochs", "8", "--optimizer.lr", "0.01")
    lines = []
    summary = fit.train(recipe, tmp_path, say=lines.append)
    assert read_run_recipe(tmp_path) == recipe
    assert {"torch", "torchcaps", "pytorch-lightning", "routing"} <= set(
        json.loads((tmp_path / "versions.json").read_text())
    )
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert [int(row["epoch"]) for row in rows(tmp_path)] == list(range(8))
    assert any((tmp_path / "tensorboard").iterdir())
    assert not list(tmp_path.glob(".*"))  # no temporary files
    assert summary["val_accuracy"] > 0.9
    assert len(lines) == 9
    result = load(tmp_path).evaluate()
    assert result["accuracy"] > 0.9
    assert json.loads((tmp_path / "evaluation.json").read_text()) == result
    model, spec = load_model(tmp_path)
    assert spec.name == "capsnet-small"
    assert spec.task.class_names == ("0", "1", "2")
    assert not model.training


MEAN = ("--optimizer.ema", "0.9", "--optimizer.schedule", "decay")
CNN = ("--model.name", "cnn-small", "--loss.kind", "cross-entropy")  # which has dropout
EM = ("--model.options.routing", "em", "--training.inverse_temperature", "[0.01, 0.05, 0.02]")
SPREAD = ("--loss.kind", "spread", "--loss.margin_schedule")
BY_EPOCH, BY_STEP = (*SPREAD, "by-epoch"), (*SPREAD, "by-step")
PATCHES = ("--data.standardize", "true", "--data.crop", "9", "--data.shift", "0", "--data.brightness", "0.2")
ONE_BATCH = ("--training.batch_size", "54")  # an epoch is one batch: 3 steps


UNBROKEN = {}


@pytest.fixture
def unbroken(tiny_recipe, tmp_path_factory):
    """unbroken(options): the folder of a run that nothing disturbed, one for each set of options."""

    def make(options=()):
        if options not in UNBROKEN:
            UNBROKEN[options] = tmp_path_factory.mktemp("unbroken")
            fit.train(tiny_recipe("--training.checkpoint_every", "1", *options), UNBROKEN[options])
        return UNBROKEN[options]

    return make


@pytest.mark.parametrize(
    ("stops", "options"),
    [([stop], ()) for stop in (1, 3, 8, 9, 10, 18)]  # an epoch has nine steps
    + [([4, 11, 16], ()), ([7], MEAN), ([9], MEAN), ([4, 18], MEAN), ([2], ONE_BATCH), ([4, 10], CNN), ([4, 9], EM)]
    + [([4, 9], BY_EPOCH), ([4, 9], BY_STEP), ([4, 10], PATCHES)],
)
def test_resuming_is_exact(tiny_recipe, tmp_path, unbroken, stop_after, stops, options):
    recipe = tiny_recipe("--training.checkpoint_every", "1", *options)
    whole = unbroken(options)
    (tmp_path / "broken").mkdir()
    for number, stop in enumerate(stops):
        stop_after(stop)
        with pytest.raises(RuntimeError, match="crash"):
            fit.train(recipe, tmp_path / "broken", resume=number > 0)
    stop_after(None)
    fit.train(recipe, tmp_path / "broken", resume=True)
    assert weights(tmp_path / "broken") == weights(whole)
    assert rows(tmp_path / "broken") == rows(whole)


@pytest.mark.parametrize("stop", [5, 9, 10, 18, 27])  # an epoch has nine steps
def test_resuming_after_an_interruption_is_exact(tiny_recipe, tmp_path, unbroken, monkeypatch, stop):
    original = checkpoints.Checkpoints.on_train_batch_end

    def interrupted(self, trainer, module, *rest):
        if trainer.global_step == stop:
            self.signal = 2
        original(self, trainer, module, *rest)

    whole = unbroken()  # how often a checkpoint is written changes nothing
    (tmp_path / "broken").mkdir()
    monkeypatch.setattr(checkpoints.Checkpoints, "on_train_batch_end", interrupted)
    with pytest.raises(checkpoints.Interrupted, match="can be resumed"):
        fit.train(tiny_recipe(), tmp_path / "broken")
    monkeypatch.undo()
    fit.train(tiny_recipe(), tmp_path / "broken", resume=True)
    assert weights(tmp_path / "broken") == weights(whole)
    assert rows(tmp_path / "broken") == rows(whole)


def test_resuming_a_finished_run_changes_nothing(tiny_recipe, tmp_path):
    fit.train(tiny_recipe(), tmp_path)
    before, table = weights(tmp_path), rows(tmp_path)
    fit.train(tiny_recipe(), tmp_path, resume=True)
    assert weights(tmp_path) == before
    assert rows(tmp_path) == table


def test_the_seed_decides(tiny_recipe, tmp_path):
    found = []
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        (tmp_path / name).mkdir()
        fit.train(tiny_recipe("--epochs", "1", "--seed", seed), tmp_path / name)
        found.append(weights(tmp_path / name))
    assert found[0] == found[1] != found[2]


def test_a_checkpoint_holds_no_code(tiny_recipe, tmp_path):
    fit.train(tiny_recipe("--epochs", "1", "--optimizer.ema", "0.9"), tmp_path)
    assert torch.load(tmp_path / runs.CHECKPOINT, weights_only=True)["global_step"] == 9


def test_a_malicious_checkpoint_is_not_run(tiny_recipe, tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    fit.train(tiny_recipe("--epochs", "1"), tmp_path)
    torch.save({"state_dict": {}, "x": Evil()}, tmp_path / runs.CHECKPOINT)
    with pytest.raises(RunError, match="checkpoint"):
        fit.train(tiny_recipe("--epochs", "1"), tmp_path, resume=True)
    assert not (tmp_path / "harm").exists()


def test_a_checkpoint_of_another_model_is_refused(tiny_recipe, tmp_path):
    fit.train(tiny_recipe("--epochs", "1"), tmp_path)
    other = tiny_recipe("--epochs", "1", "--model.options.decoder", "false")
    with pytest.raises(RunError, match="another model"):
        fit.train(other, tmp_path, resume=True)


def test_nan_stops_and_names_step_and_layer(tiny_recipe, tmp_path):
    with pytest.raises(callbacks.TrainingStopped) as caught:
        fit.train(tiny_recipe("--optimizer.lr", "1e30", "--optimizer.schedule", "constant"), tmp_path)
    words = str(caught.value)
    assert re.search(r"at step [12]:", words)
    assert "learning rate" in words
    assert "checkpoint" not in words  # there is none yet
    assert any(layer in words for layer in ("'stem", "'primary", "'class_capsules", "'decoder"))


def test_the_first_layer_that_fails_is_named(tiny_recipe, tmp_path, monkeypatch):
    original = CapsuleModule.training_step

    def poisoned(self, batch, index):
        if self.trainer.global_step == 4:
            with torch.no_grad():
                self.model.primary.conv.weight.fill_(float("inf"))
        return original(self, batch, index)

    monkeypatch.setattr(CapsuleModule, "training_step", poisoned)
    with pytest.raises(callbacks.TrainingStopped, match=r"at step 4: the loss is nan.*'primary"):
        fit.train(tiny_recipe(), tmp_path)


def test_an_infinite_loss_stops_too(tiny_recipe, tmp_path, monkeypatch):
    original = CapsuleModule.training_step
    monkeypatch.setattr(CapsuleModule, "training_step", lambda self, b, i: original(self, b, i) + float("inf"))
    with pytest.raises(callbacks.TrainingStopped, match="the loss is inf"):
        fit.train(tiny_recipe(), tmp_path)


def test_nan_keeps_the_last_good_checkpoint(tiny_recipe, tmp_path, monkeypatch):
    original = CapsuleModule.training_step

    def poisoned(self, batch, index):
        if self.trainer.global_step == 7:
            batch = Batch(batch.inputs * float("nan"), batch.labels, batch.targets)
        return original(self, batch, index)

    monkeypatch.setattr(CapsuleModule, "training_step", poisoned)
    with pytest.raises(callbacks.TrainingStopped, match="at step 7"):
        fit.train(tiny_recipe(), tmp_path)
    state = torch.load(tmp_path / runs.CHECKPOINT, weights_only=True)
    assert state["global_step"] == 6
    assert all(bool(value.isfinite().all()) for value in state["state_dict"].values())
    monkeypatch.undo()
    fit.train(tiny_recipe(), tmp_path, resume=True)


def test_a_full_disk_is_reported_and_the_last_checkpoint_kept(tiny_recipe, tmp_path, monkeypatch):
    original = runs.os.fsync
    calls = []

    def full(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode):  # a file; its folder is synced too
            calls.append(handle)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(handle)

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        fit.train(tiny_recipe("--training.checkpoint_every", "1"), tmp_path)
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*"))
    fit.train(tiny_recipe("--training.checkpoint_every", "1"), tmp_path, resume=True)


def test_run_folders_are_numbered_and_never_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(new_run_folder("x")) == "runs/x-1"
    assert str(new_run_folder("x")) == "runs/x-2"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear to me")
    with pytest.raises(RunError, match="not empty"):
        new_run_folder("x", str(tmp_path / "mine"))
    with pytest.raises(RunError, match="cannot be made"):
        new_run_folder("x", str(tmp_path / "mine" / "thesis.txt" / "below"))


def test_multi_digit_training_counts_both(tmp_path, tiny_recipe):
    recipe = tiny_recipe("--epochs", "1", "--data.name", "multi-mnist", "--training.batch_size", "500")
    fit.train(recipe, tmp_path)
    model, spec = load_model(tmp_path)
    assert spec.options["objects"] == 2
    assert model(torch.rand(2, 1, 36, 36)).reconstruction.shape == (2, 2, 1, 36, 36)
    result = load(tmp_path).evaluate()
    assert result["share_of_objects_found"] > result["accuracy"]


@pytest.mark.parametrize("name", ["cnn-small"])
def test_cnns_train_by_the_same_recipe(tiny_recipe, tmp_path, name):
    recipe = tiny_recipe("--model.name", name, "--loss.kind", "cross-entropy", "--epochs", "20")
    assert fit.train(recipe, tmp_path)["train_accuracy"] > 0.9


def test_matrix_capsules_learn_with_em_routing_and_spread_loss(tiny_recipe, tmp_path):
    spread = ["--loss.kind", "spread", "--loss.margin_schedule", "by-epoch", "--optimizer.clip", "0.2"]
    small = ["--model.name", "matrix-capsnet", "--model.options.channels", "16", "--model.options.types", "[8, 8, 8]"]
    data = ["--data.standardize", "true", "--data.shift", "0"]
    recipe = tiny_recipe(*spread, *small, *data, "--model.options.iterations", "2", "--epochs", "12")
    assert fit.train(recipe, tmp_path)["train_accuracy"] > 0.9
    model, _ = load_model(tmp_path)
    assert model.conv_capsules[0].routing.beta_a.abs().max() > 0  # the costs are learned too


def test_the_gradient_is_clipped(tiny_recipe, tmp_path, monkeypatch):
    lengths = []
    original = CapsuleModule.optimizer_step

    def watch(self, *given, **options):
        original(self, *given, **options)
        lengths.append(float(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in self.model.parameters()]))))

    monkeypatch.setattr(CapsuleModule, "optimizer_step", watch)
    fit.train(tiny_recipe("--optimizer.clip", "0.001", "--epochs", "1"), tmp_path)
    assert max(lengths) <= 0.001 * (1 + 1e-4)


def test_spread_loss_with_its_margin(tiny_recipe, tmp_path, monkeypatch):
    seen = []
    original = CapsuleModule.training_step
    monkeypatch.setattr(
        CapsuleModule, "training_step", lambda self, b, i: seen.append(self.loss.margin) or original(self, b, i)
    )
    fit.train(tiny_recipe("--loss.kind", "spread", "--loss.margin_schedule", "by-epoch"), tmp_path)
    assert seen == [spread_margin_by_epoch(epoch) for epoch in range(3) for _ in range(9)]


def test_inverse_temperature_per_epoch(tiny_recipe, tmp_path, monkeypatch):
    seen = []
    original = CapsuleModule.training_step

    def watch(self, batch, index):
        seen.append(self.model.class_capsules.routing.inverse_temperature)
        return original(self, batch, index)

    monkeypatch.setattr(CapsuleModule, "training_step", watch)
    options = ("--model.options.routing", "em", "--training.inverse_temperature", "[0.01, 0.05]")
    fit.train(tiny_recipe(*options), tmp_path)
    assert seen == [0.01] * 9 + [0.05] * 18
    model, _ = load_model(tmp_path)
    assert model.class_capsules.routing.inverse_temperature == 0.05  # a loaded model is the one that was validated
    with pytest.raises(RunError, match="EM routing"):
        fit.train(tiny_recipe("--training.inverse_temperature", "[0.1]"), tmp_path)


def test_signal_handlers_are_given_back(tiny_recipe, tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    fit.train(tiny_recipe("--epochs", "1"), tmp_path)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_leftovers_of_a_kill_are_removed(tiny_recipe, tmp_path):
    fit.train(tiny_recipe("--epochs", "1"), tmp_path)
    (tmp_path / ".checkpoint.ckpt.x1y2").write_bytes(b"half")
    fit.train(tiny_recipe("--epochs", "1"), tmp_path, resume=True)
    assert not list(tmp_path.glob(".*"))


def test_a_cnn_sees_two_digits_with_cross_entropy_only(tiny_recipe, tmp_path):
    two = ("--model.name", "cnn-small", "--data.name", "multi-mnist", "--data.validation", "0.98", "--epochs", "1")
    with pytest.raises(ValueError, match="this model gives logits: use loss.kind cross-entropy"):
        fit.train(tiny_recipe(*two), tmp_path)
    assert not any(tmp_path.iterdir())
    assert fit.train(tiny_recipe(*two, "--loss.kind", "cross-entropy"), tmp_path)["epochs"] == 1


def test_the_running_mean_is_what_is_saved(tiny_recipe, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    fit.train(tiny_recipe("--optimizer.ema", "0.5"), tmp_path / "a")
    fit.train(tiny_recipe(), tmp_path / "b")
    mean, last = (load_weights(tmp_path / name / runs.WEIGHTS)[1] for name in "ab")
    assert any(not torch.equal(mean[key], last[key]) for key in mean)
    state = torch.load(tmp_path / "a" / runs.CHECKPOINT, weights_only=True)
    trained = {k.removeprefix("model."): v for k, v in state["state_dict"].items() if k.startswith("model.")}
    assert all(torch.equal(trained[key], last[key]) for key in last)  # the mean does not change training itself


def test_learning_rates():
    factor = learning_rate_factor(OptimizerOptions(lr=1e-3, floor=1e-6))
    assert factor(0) == 1
    assert math.isclose(factor(2000), 0.96)
    assert math.isclose(factor(10**7), 1e-3)
    assert learning_rate_factor(OptimizerOptions(schedule="constant"))(5000) == 1


def test_correct_counts_sets_of_labels():
    scores = torch.tensor([[0.9, 0.1, 0.8], [0.9, 0.8, 0.1]])
    assert grade(ModelOutput(scores), torch.tensor([0, 1])).tolist() == [1, 0]
    assert grade(ModelOutput(scores), torch.tensor([[2, 0], [0, 2]])).tolist() == [1, 0]


def test_data_that_cannot_be_trained_on_leaves_the_folder_alone(tiny_recipe, tmp_path):
    with pytest.raises(DataError, match="larger than the images"):
        fit.train(tiny_recipe("--data.crop", "13", "--data.shift", "0"), tmp_path)
    assert not list(tmp_path.iterdir())


def spec_of(model="capsnet-small", **options):
    return ModelSpec(model, ImageTask(("a", "b", "c"), (1, 12, 12)), options)


def test_weights_files_are_checked(tmp_path):
    path = tmp_path / runs.WEIGHTS
    with pytest.raises(RunError, match="is not there"):
        load_model(tmp_path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(RunError, match="not a safetensors file"):
        load_model(tmp_path)
    save_file({"w": torch.zeros(1)}, path)
    with pytest.raises(RunError, match="lacks the model"):
        load_model(tmp_path)
    save_weights(path, create_model("cnn-small", (1, 12, 12), 3), spec_of())
    with pytest.raises(RunError, match="another model"):
        load_model(tmp_path)
    save_weights(path, create_model("capsnet-small", (1, 20, 20), 3), spec_of())
    with pytest.raises(RunError, match="do not fit"):
        load_model(tmp_path)
    save_weights(path, create_model("capsnet-small", (1, 12, 12), 3), spec_of())
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(RunError, match="not a safetensors file"):
        load_model(tmp_path)


def test_evaluate_refuses_data_of_another_shape(tiny_recipe, tmp_path):
    recipe = tiny_recipe("--epochs", "1")
    fit.train(recipe, tmp_path)
    images = np.arange(9 * 144, dtype=np.uint8).reshape(9, 12, 12)
    np.savez(tmp_path / "others.npz", x=images, y=np.array(["x", "y", "z"] * 3))
    recipe.data.name = str(tmp_path / "others.npz")
    with pytest.raises(RunError, match="of x, y, z"):
        load(tmp_path).evaluate(recipe.data)
    recipe.data.name = "mnist-mini"
    with pytest.raises(RunError, match="trained for"):
        load(tmp_path).evaluate(recipe.data)
    with pytest.raises(RunError, match="not a run folder"):
        load(tmp_path / "elsewhere")


def test_predict_names_classes_by_falling_score(tmp_path):
    from PIL import Image

    save_weights(tmp_path / runs.WEIGHTS, create_model("capsnet-small", (1, 12, 12), 3), spec_of())
    for name, size in (("a.png", (12, 12)), ("b.png", (50, 30))):
        Image.new("RGB", size, (200, 10, 10)).save(tmp_path / name)
    found = load(tmp_path).predict([tmp_path / "a.png", tmp_path / "b.png"])
    for prediction in found:
        assert set(prediction.labels) == {"a", "b", "c"}
        assert list(prediction.scores) == sorted(prediction.scores, reverse=True)
    (tmp_path / "c.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"c\.png"):
        load(tmp_path).predict([tmp_path / "c.png"])


def test_the_best_epochs_weights_can_be_kept(tiny_recipe, tmp_path, monkeypatch):
    """Validation accuracies are made up: the second epoch is the best, the third is as good, the fourth is not."""
    accuracies = iter([0.5, 0.9, 0.9, 0.2])
    original = CapsuleModule.epoch_means
    kept = []

    def made_up(self, part):
        means = original(self, part)
        return means | {"val_accuracy": next(accuracies)} if part == "val" else means

    monkeypatch.setattr(CapsuleModule, "epoch_means", made_up)
    monkeypatch.setattr(checkpoints, "save_weights", lambda *_: kept.append(len(kept)))
    summary = fit.train(tiny_recipe("--epochs", "4", "--training.keep", "best"), tmp_path)
    assert summary["kept_epoch"] == 3
    assert len(kept) == 3, "after the first, second and third epoch"
    with pytest.raises(RecipeError, match="needs validation"):
        tiny_recipe("--training.keep", "best", "--data.validation", "0")
