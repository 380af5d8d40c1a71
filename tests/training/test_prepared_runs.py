"""The preparation belongs to the trained model: training, evaluation and prediction see an image alike."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps import create_model
from torchcaps.cli import main
from torchcaps.data.images import ImageSet
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import Preparation
from torchcaps.data.registry import dataset_class, make_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.errors import DataError
from torchcaps.losses import spread_margin_by_epoch, spread_margin_by_step
from torchcaps.run import load
from torchcaps.training import callbacks, fit, runs
from torchcaps.training.errors import RunError
from torchcaps.training.module import CapsuleModule
from torchcaps.training.recipes import recipe_from_file
from torchcaps.training.runs import load_model, save_weights
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import ImageTask

PATCHES = ("--data.standardize", "true", "--data.crop", "9", "--data.shift", "0", "--data.contrast", "0.2")
CNN = ("--model.name", "cnn-small", "--loss.kind", "cross-entropy")


@pytest.fixture
def pictures(tiny_data, tmp_path):
    """The test images of the tiny data as PNG files, in order."""
    data = make_dataset(DataOptions(name=str(tiny_data))).load("test")
    files = [tmp_path / f"{number}.png" for number in range(len(data))]
    for file, image in zip(files, data.images, strict=True):
        Image.fromarray(image[0].numpy()).save(file)
    return files


@pytest.mark.parametrize(
    ("options", "preparation"),
    [
        (PATCHES, Preparation(None, True, 9)),
        ((*PATCHES, "--data.crops", "13", "--data.brightness", "0.1"), Preparation(None, True, 9, 13)),
        ((*PATCHES, "--data.crops", "13", *CNN), Preparation(None, True, 9, 13)),
        (("--data.resize", "10"), Preparation(10)),
    ],
)
def test_predict_sees_a_file_as_evaluate_does(tiny_recipe, tmp_path, pictures, options, preparation):
    recipe = tiny_recipe("--epochs", "1", "--training.batch_size", "27", *options)
    folder = tmp_path / "run"
    folder.mkdir()
    fit.train(recipe, folder)
    model, spec = load_model(folder)
    side = preparation.crop or preparation.resize
    task = spec.task
    assert (task.preparation, task.image_shape, task.input_shape) == (preparation, (1, 12, 12), (1, side, side))
    found = load(folder).predict(pictures)
    source = evaluation_source(make_dataset(recipe.data), preparation)
    batch = source.batch(torch.arange(len(source)), 0)
    expected = task.score(model, batch.inputs)
    for row, prediction in zip(expected, found, strict=True):
        scores = dict(zip(prediction.labels, prediction.scores, strict=True))
        assert torch.allclose(torch.tensor([scores[name] for name in task.class_names]), row, atol=1e-6)
    right = np.mean([int(p.labels[0]) == int(label) for p, label in zip(found, batch.labels, strict=True)])
    assert load(folder).evaluate()["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("name", ["capsnet-small", "cnn-small"])
def test_scores_of_patches_are_averaged(name):
    model = create_model(name, (1, 12, 12), 3).eval()
    patches = torch.rand(4, 13, 1, 12, 12)
    task = ImageTask(("a", "b", "c"), (1, 12, 12))
    each = torch.stack([task.score(model, patches[:, number]) for number in range(13)])
    assert torch.allclose(task.score(model, patches), each.mean(dim=0), atol=1e-6)
    if name == "cnn-small":  # probabilities, not logits
        assert torch.allclose(task.score(model, patches).sum(dim=1), torch.ones(4))


def test_other_data_is_prepared_by_the_model(tiny_recipe, tiny_data, tmp_path):
    fit.train(tiny_recipe("--epochs", "1", *PATCHES), tmp_path)
    other = DataOptions(name=str(tiny_data), resize=5)  # not what the model was trained with
    assert load(tmp_path).evaluate(other)["accuracy"] == load(tmp_path).evaluate()["accuracy"]
    np.savez(tmp_path / "large.npz", x=np.zeros((30, 20, 20), np.uint8), y=np.arange(30) % 3)
    with pytest.raises(RunError, match=r"images of \(1, 20, 20\).*trained for \(1, 12, 12\)"):
        load(tmp_path).evaluate(str(tmp_path / "large.npz"))
    with pytest.raises(DataError, match="own canvas"):
        load(tmp_path).evaluate("multi-mnist")


def test_a_spec_survives_and_an_old_one_has_no_preparation():
    task = ImageTask(("a", "b"), (2, 96, 96), Preparation(48, True, 32, 13))
    spec = ModelSpec("x", task, {"k": 1})
    assert task.input_shape == (2, 32, 32)
    assert ModelSpec.from_json(spec.to_json()) == spec
    old = {"name": "x", "image_shape": [1, 28, 28], "class_names": ["a"], "options": {}}
    read = ModelSpec.from_json(json.dumps(old)).task
    assert read.preparation == Preparation()
    assert read.image_shape == read.input_shape == (1, 28, 28)


def test_an_old_run_folder_still_works(tiny_recipe, tmp_path, pictures, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    fit.train(tiny_recipe("--epochs", "1"), folder)
    before, seen = load(folder).evaluate(), load(folder).predict(pictures[:2])
    model, spec = load_model(folder)
    old = {key: value for key, value in json.loads(spec.to_json()).items() if "p" not in key[:1]}
    assert set(old) == {"name", "image_shape", "class_names", "options"}
    monkeypatch.setattr(ModelSpec, "to_json", lambda self: json.dumps(old))
    save_weights(folder / runs.WEIGHTS, model, spec)
    new = ("resize", "standardize", "crop:", "crops", "brightness", "contrast")
    lines = (folder / runs.RECIPE).read_text().splitlines(keepends=True)
    (folder / runs.RECIPE).write_text("".join(line for line in lines if not line.strip().startswith(new)))
    assert load(folder).evaluate() == before
    assert load(folder).predict(pictures[:2]) == seen


def test_a_damaged_preparation_is_refused(tmp_path, monkeypatch):
    spec = ModelSpec("capsnet-small", ImageTask(("a", "b", "c"), (1, 12, 12)))
    values = json.loads(spec.to_json())
    for wrong in ({"crops": 7}, {"blur": 3}):
        monkeypatch.setattr(ModelSpec, "to_json", lambda self, wrong=wrong: json.dumps(values | {"preparation": wrong}))
        save_weights(tmp_path / runs.WEIGHTS, create_model("capsnet-small", (1, 12, 12), 3), spec)
        with pytest.raises(RunError, match="not of a torchcaps model"):
            load_model(tmp_path)


@pytest.mark.parametrize("name", ["small-norb", "viewpoints"])
def test_evaluating_familiar_viewpoints(tiny_recipe, tmp_path, monkeypatch, capsys, name):
    asked = []

    def read(self, split, files=None, class_names=None):
        asked.append((split, self.protocol))
        images = torch.randint(0, 256, (30, 2, 12, 12), dtype=torch.uint8)
        return ImageSet(images, torch.arange(30) % 5, tuple("abcde"))

    monkeypatch.setattr(dataset_class(name), "load", read)
    options = ("--epochs", "1", "--data.name", name, "--data.options.protocol", "azimuth", "--data.crop", "9")
    fit.train(tiny_recipe(*options, "--data.shift", "0"), tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(tmp_path), "--split", "familiar"])
    assert end.value.code == 0
    assert "30 familiar images" in capsys.readouterr().out
    assert asked == [("train", "azimuth"), ("familiar", "azimuth")]


def test_the_recipe_for_small_norb_follows_the_paper():
    recipe = recipe_from_file("small-norb")
    data = recipe.data
    assert (data.resize, data.standardize, data.crop, data.crops, data.shift) == (48, True, 32, 1, 0)
    assert data.brightness > 0 < data.contrast
    assert (recipe.loss.kind, recipe.loss.margin_schedule) == ("spread", "by-step")
    assert (recipe.model.name, recipe.optimizer.weight_decay) == ("matrix-capsnet", 2e-7)


def test_margins_have_the_values_of_the_papers():
    margins = [spread_margin_by_epoch(epoch) for epoch in range(10)]
    assert margins == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9])
    assert spread_margin_by_step(0) == pytest.approx(0.2 + 0.79 * 0.01798620996)
    assert spread_margin_by_step(200_000) == pytest.approx(0.2 + 0.79 * 0.5)
    assert spread_margin_by_step(700_000) == spread_margin_by_step(10**7) == pytest.approx(0.2 + 0.79 * 0.9999546)


@pytest.mark.parametrize("kind", ["by-epoch", "by-step"])
def test_the_margin_in_training_also_after_a_resume(tiny_recipe, tmp_path, monkeypatch, kind):
    # An epoch has one step, and a step counts for 50,000, to see all of both schedules.
    monkeypatch.setattr(callbacks, "spread_margin_by_step", lambda step: spread_margin_by_step(50_000 * step))
    seen, judged, stop = [], [], [None]
    original = CapsuleModule._step

    def watch(self, batch, part):
        (seen if part == "train" else judged).append(self.loss.margin)
        if part == "train" and self.trainer.global_step == stop[0]:
            raise RuntimeError("crash")
        return original(self, batch, part)

    monkeypatch.setattr(CapsuleModule, "_step", watch)
    options = ("--loss.kind", "spread", "--loss.margin_schedule", kind, "--training.batch_size", "54")
    recipe = tiny_recipe("--epochs", "16", *options)
    stop[0] = 5
    with pytest.raises(RuntimeError, match="crash"):
        fit.train(recipe, tmp_path)
    assert len(seen) == 6
    stop[0] = None
    fit.train(recipe, tmp_path, resume=True)
    del seen[5]  # the step that crashed, which was done again
    rule = spread_margin_by_epoch if kind == "by-epoch" else lambda step: spread_margin_by_step(50_000 * step)
    assert seen == judged == [rule(number) for number in range(16)]
    assert seen[-1] == pytest.approx(0.9 if kind == "by-epoch" else 0.99, abs=1e-4)
