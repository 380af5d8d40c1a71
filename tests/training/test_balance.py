"""Unequal classes: weights, what is told, what is watched, and that all of it resumes exactly."""

import csv
import json

import numpy as np
import pytest
import torch

from torchcaps.commands.keys import read_keys
from torchcaps.data.dataset import Files
from torchcaps.data.images import Images, ImageSet
from torchcaps.data.record import read_record
from torchcaps.data.registry import make_dataset
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.run import load
from torchcaps.training import checkpoints, fit, runs
from torchcaps.training.balance import describe_balance, describe_unanswered, weigh_classes
from torchcaps.training.callbacks import EpochLog
from torchcaps.training.errors import RunError
from torchcaps.training.evaluation import measure_source
from torchcaps.training.measured import write_table
from torchcaps.training.recipe import LossOptions, Recipe, RecipeError
from torchcaps.training.recipes import recipe_from_file, recipe_from_values
from torchcaps.training.tasks import task_of

SIZES = {"a": 60, "b": 12, "c": 4}


def source(*sizes):
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    return Images(ImageSet(torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8), labels, ("a", "b", "c")))


@pytest.fixture(scope="module")
def unequal(tmp_path_factory):
    """Three classes of 60, 12 and 4 images of 12×12."""
    generator = np.random.default_rng(0)
    labels = np.concatenate([np.full(size, label) for label, size in enumerate(SIZES.values())])
    images = generator.integers(0, 60, (len(labels), 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    path = tmp_path_factory.mktemp("unequal") / "unequal.npz"
    np.savez(path, x=images, y=labels, x_test=images[::2], y_test=labels[::2])
    return path


@pytest.fixture(scope="module")
def make_recipe(unequal):
    def make(*words):
        base = f"--data.name {unequal} --data.validation 0.25 --epochs 2 --training.batch_size 8".split()
        return recipe_from_file("quickstart", read_keys([*base, "--training.checkpoint_every", "1", *words]))

    return make


@pytest.fixture(scope="module")
def trained(make_recipe, tmp_path_factory):
    """A run that is barely trained, with what was said."""
    folder, lines = tmp_path_factory.mktemp("unequal-run"), []
    fit.train(make_recipe("--training.keep", "best", "--training.watch", "balanced-accuracy"), folder, say=lines.append)
    return folder, lines


def test_balanced_weights_by_hand():
    weights = weigh_classes("balanced", source(60, 12, 4))
    assert weights.tolist() == pytest.approx([76 / (3 * 60), 76 / (3 * 12), 76 / (3 * 4)])
    counts = torch.tensor([60, 12, 4])
    assert float((weights * counts).sum() / 76) == pytest.approx(1)
    assert weigh_classes("none", source(60, 12, 4)) is None
    assert weigh_classes("balanced", source(10, 0, 10)).tolist() == [1, 1, 1]
    assert weigh_classes({"c": 5}, source(10, 0, 10)).tolist() == [1, 1, 5]


def test_balanced_weights_of_flags_by_hand():
    flags = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 0, 0]]).bool()
    texts = TextSet((("x",),) * 4, flags, ("a", "b", "c"))
    weights = weigh_classes("balanced", Texts(texts, Vocabulary.from_texts(texts.texts, 1, None), 5))
    assert weights.tolist() == pytest.approx([6 / (3 * 4), 6 / 3, 6 / 3])


def test_weights_of_classes_that_are_not_there():
    with pytest.raises(RecipeError, match="names the class 'cc', which the data does not have. Did you mean 'c'") as e:
        weigh_classes({"cc": 5}, source(1, 1, 1))
    assert e.value.option == "loss.class_weights"


@pytest.mark.parametrize("weights", ["fair", {}, {"a": 0}, {"a": -1.0}, {"a": float("nan")}, {"a": "b"}, 3, None])
def test_weights_that_are_none(weights):
    with pytest.raises(RecipeError, match="loss.class_weights"):
        LossOptions(class_weights=weights)


def test_weights_in_a_recipe():
    for given, read in (("balanced", "balanced"), ({"a": 2}, {"a": 2.0}), ({3: 2}, {"3": 2.0})):
        recipe = recipe_from_values({"loss": {"class_weights": given}})
        assert recipe.loss.class_weights == read
        assert recipe_from_values(json.loads(json.dumps(recipe.as_dict()))) == recipe
    with pytest.raises(RecipeError, match="must be none, balanced, or a positive number for some classes by name"):
        recipe_from_file("quickstart", read_keys(["--loss.class_weights", "{cat:3}"]))
    words = ["--loss.class_weights", "{cat: 3}", "--data.sampling", "balanced", "--training.watch=loss"]
    assert read_keys(words)["loss.class_weights"] == {"cat": 3}
    for hostile in ({"class_path": "os.system", "init_args": {"command": "ls"}}, ["a"], {"a": {"b": 1}}, "fair"):
        with pytest.raises(RecipeError):
            recipe_from_values({"loss": {"class_weights": hostile}})


def test_unequal_classes_are_told_unless_something_is_done():
    recipe = Recipe()
    (said,) = describe_balance(recipe, source(60, 12, 4), None)
    assert "'a' has 60 images, 'c' 4" in said
    assert "loss.class_weights balanced or data.sampling balanced" in said
    assert describe_balance(recipe, source(40, 12, 4), None) == []  # 10:1 and not more
    assert describe_balance(recipe, source(40, 12, 0), None) == []
    recipe.loss.class_weights = "balanced"
    assert describe_balance(recipe, source(60, 12, 4), None) == []
    both = Recipe()
    both.loss.class_weights = both.data.sampling = "balanced"
    assert "weigh rare classes twice" in describe_balance(both, source(60, 12, 4), None)[0]
    assert describe_balance(both, source(6, 12, 4), None) == []
    (said,) = describe_balance(recipe, source(60, 12, 4), source(6, 0, 0))
    assert "No validation image (of 6) shows 'b', 'c': how well they are learned is not watched" in said


def test_more_processes_than_validation_items(make_recipe, tmp_path):
    recipe = make_recipe("--devices", "4", "--data.validation", "0.01")
    with pytest.raises(RunError, match="4 processes cannot share 3 validation images: raise data.validation") as e:
        fit.train(recipe, tmp_path)
    assert e.value.option == "data.validation"


def test_what_is_said_of_unanswered_classes():
    assert describe_unanswered({}, "images") is None
    assert "The class 'c' (1 text) was never answered: try loss.class_weights" in describe_unanswered({"c": 1}, "texts")
    recipe = Recipe()
    recipe.data.sampling = "balanced"
    assert "never answered: train longer, or add to them." in describe_unanswered({"c": 1}, "texts", recipe)
    many = describe_unanswered({f"k{n}": 12 for n in range(8)}, "images")
    assert "'k0' (12 images), " in many
    assert "and 3 more were never answered" in many


def test_a_run_tells_what_it_never_answers(trained):
    folder, lines = trained
    assert any("'0' has 45 images, '2' 3" in line for line in lines)
    assert any(line.startswith("The class") and "never answered" in line for line in lines)
    notices = []
    result = load(folder).evaluate(notice=notices.append)
    never = [name for name, row in result["per_class"].items() if not row["answered"]]
    assert never
    assert any(f"'{never[0]}'" in notice and "never answered" in notice for notice in notices)


def test_validation_is_measured_as_an_evaluation_would(trained, make_recipe):
    folder, _ = trained
    with (folder / runs.METRICS).open() as file:
        rows = list(csv.DictReader(file))
    recipe, run = make_recipe(), load(folder)
    kept = json.loads((folder / "summary.json").read_text())["kept_epoch"] - 1
    dataset = make_dataset(recipe.data)
    prepared = task_of(dataset).prepare(recipe, dataset, Files(record=read_record(folder)))
    measures = measure_source(run.model, run.task, prepared.validation)
    assert float(rows[kept]["val_balanced_accuracy"]) == pytest.approx(measures["balanced_accuracy"])
    assert float(rows[kept]["val_accuracy"]) == pytest.approx(measures["accuracy"])


def test_tensorboard_has_curves_pictures_and_a_table(trained):
    content = b"".join(path.read_bytes() for path in (trained[0] / "tensorboard").iterdir())
    for name in ("val_balanced_accuracy", "val_macro_f1", "val_calibration_error"):
        assert f"epoch/{name}".encode() in content
    for name in ("confusion", "reliability", "classes"):
        assert f"validation/{name}".encode() in content
    assert content.count(b"\x89PNG") == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--loss.class_weights", "balanced"),
        ("--data.sampling", "balanced"),
        ("--loss.class_weights={'2': 3}", "--loss.kind=spread", "--training.keep=best", "--training.watch=loss"),
    ],
)
def test_it_resumes_exactly(make_recipe, tmp_path, monkeypatch, options):
    recipe = make_recipe(*options)
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    fit.train(recipe, tmp_path / "whole")
    original = checkpoints.Checkpoints.on_train_batch_end

    def crash(self, trainer, module, *rest):
        original(self, trainer, module, *rest)
        if trainer.global_step == 10:  # of 14, in the second epoch
            raise RuntimeError("crash")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.Checkpoints, "on_train_batch_end", crash)
        with pytest.raises(RuntimeError, match="crash"):
            fit.train(recipe, tmp_path / "broken")
    fit.train(runs.read_run_recipe(tmp_path / "broken"), tmp_path / "broken", resume=True)
    assert (tmp_path / "whole" / runs.WEIGHTS).read_bytes() == (tmp_path / "broken" / runs.WEIGHTS).read_bytes()
    read = [
        [line.rpartition(",")[0] for line in (tmp_path / name / runs.METRICS).read_text().splitlines()]
        for name in ("whole", "broken")
    ]
    assert read[0] == read[1]


@pytest.mark.parametrize(("watch", "best"), [("accuracy", 2), ("balanced-accuracy", 1), ("loss", 0)])
def test_the_best_epoch_by_what_is_watched(watch, best):
    log = EpochLog(None, None, watch)
    log.rows = [
        {"val_accuracy": 0.9, "val_balanced_accuracy": 0.5, "val_loss": 0.1},
        {"val_accuracy": 0.8, "val_balanced_accuracy": 0.7, "val_loss": 0.2},
        {"val_accuracy": 0.9, "val_balanced_accuracy": 0.6, "val_loss": 0.2},
    ]
    assert log.best_epoch() == best


def test_rows_of_an_earlier_version_have_no_balanced_accuracy():
    log = EpochLog(None, None, "balanced-accuracy")
    log.rows = [{"val_accuracy": 0.9}, {"val_accuracy": 0.8, "val_balanced_accuracy": 0.1}]
    assert log.best_epoch() == 1
    log.rows = [{"train_loss": 1.0}, {"train_loss": 2.0}]
    assert log.best_epoch() == 1


def test_names_are_no_markdown():
    row = {"precision": 0.5, "recall": 1.0, "f1": 0.7, "count": 3, "answered": 6}
    table = write_table({"per_class": {"a|b<script>": row}})
    assert "| a&#124;b&#60;script&#62; | 50.00% | 100.00% | 70.00% | 3 | 6 |" in table
