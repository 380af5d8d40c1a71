"""Models compared on one's own data: what is trained, what is kept, and what the words claim."""

import csv
import io
import json
import os
import shutil

import numpy as np
import pytest

from torchcaps.cli import _run, run_guarded
from torchcaps.errors import TorchcapsError
from torchcaps.experiments import compare_models, trained
from torchcaps.experiments.comparison import compare_models as compare
from torchcaps.experiments.contenders import plan_comparison
from torchcaps.experiments.differences import describe_difference, measure_differences
from torchcaps.models import create_model
from torchcaps.models.cnn import parameter_count
from torchcaps.run import load
from torchcaps.training.checkpoints import Interrupted
from torchcaps.training.errors import RunError
from torchcaps.training.recipes import recipe_from_file

QUICK = {"training.batch_size": 6, "data.validation": 0.2}


def call(*words):
    return run_guarded(lambda: _run([str(word) for word in words]), False)


def write_images(path, count=48):
    generator = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = generator.integers(0, 60, (count, 12, 12), dtype=np.uint8)
    images[labels == 1, 4:8] += 150
    np.savez(path, x=images, y=labels)
    return path


def write_texts(path, count=60):
    with open(path, "w", encoding="utf-8") as file:
        print("text,label", file=file)
        for number in range(count):
            print(f"this is a {('bad', 'good')[number % 2]} film number {number},{number % 2}", file=file)
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("compared") / "own.npz")


@pytest.fixture(scope="module")
def compared(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison") / "out"
    return compare_models(images, seeds=2, epochs=1, overrides=QUICK, folder=folder)


def test_both_models_are_trained_with_every_seed_on_the_same_items(compared):
    assert [(row["variant"], row["seed"]) for row in compared.rows] == [
        ("capsnet-small", "0"), ("cnn-small", "0"), ("capsnet-small", "1"), ("cnn-small", "1"),
    ]  # fmt: skip
    splits = {}
    for row in compared.rows:
        run = load(row["run"])
        assert run.spec.name == row["variant"]
        assert run.recipe.training.seed == int(row["seed"])
        splits.setdefault(row["seed"], []).append((run.folder / "split.csv").read_text(encoding="utf-8"))
        assert run.evaluate()["accuracy"] * 100 == pytest.approx(float(row["accuracy_percent"]), abs=0.01)
        assert float(row["parameters"]) == parameter_count(run.model)
    assert all(len(set(same)) == 1 for same in splits.values()), "a seed's items are those of every model"
    tests = {tuple(line for line in text.splitlines() if line.startswith("test")) for (text, _) in splits.values()}
    assert len(tests) == 1, "and all are tested on the same"


def test_capsules_and_a_network_without_have_their_losses(compared):
    losses = {row["variant"]: load(row["run"]).recipe.loss.kind for row in compared.rows}
    assert losses == {"capsnet-small": "margin", "cnn-small": "cross-entropy"}
    sizes = [one.parameters for one in compared.plan.models.values()]
    assert max(sizes) < 1.1 * min(sizes)


def test_table_csv_and_numbers_agree(compared):
    assert compared.headings == ["model", "parameters", "test accuracy, %", "balanced accuracy, %", "s/epoch"]
    assert [line[0] for line in compared.lines] == ["capsnet-small", "cnn-small"]
    kept = json.loads((compared.folder / "comparison.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(compared.to_numbers()))
    assert kept["test"] + kept["train"] + kept["validation"] == 48
    rows = list(csv.DictReader(io.StringIO((compared.folder / "comparison.csv").read_text(encoding="utf-8"))))
    assert [row["model"] for row in rows] == ["capsnet-small", "cnn-small"] * 2
    accuracies = [float(row["accuracy_percent"]) for row in rows if row["model"] == "cnn-small"]
    cell = kept["table"]["cnn-small"]["accuracy_percent"]
    assert cell["mean"] == pytest.approx(np.mean(accuracies))
    assert cell["deviation"] == pytest.approx(np.std(accuracies, ddof=1))
    text = (compared.folder / "comparison.md").read_text(encoding="utf-8")
    assert compared.conclusion in text
    assert "| cnn-small |" in text
    assert "nothing is chosen on the test images" in text


def test_what_is_there_is_not_trained_again(compared, images, monkeypatch):
    monkeypatch.setattr(trained, "train", None)
    again = compare(images, seeds=2, epochs=1, overrides=QUICK, folder=compared.folder)
    assert again.rows == compared.rows
    with pytest.raises(TypeError):  # a seed more is a training more
        compare(images, seeds=3, epochs=1, overrides=QUICK, folder=compared.folder)


def test_other_data_at_the_same_place_is_trained_anew(compared, images, tmp_path):
    grown = write_images(tmp_path / "own.npz", 50)
    plans = [plan_comparison(path, None, 1, 1, None, QUICK) for path in (images, grown)]
    assert plans[0].fingerprint != plans[1].fingerprint
    runs = [
        trained.run_folder(trained.Training("quickstart", {"data.name": "x"}, "run", plan.fingerprint), tmp_path)
        for plan in plans
    ]
    assert runs[0] != runs[1]


def test_an_interrupted_comparison_goes_on(compared, images, tmp_path, monkeypatch):
    """After the first run was finished and the second was broken off."""
    folder = tmp_path / "out"
    finished, original = [], trained.train

    def interrupt(recipe, place, **options):
        if finished:
            raise Interrupted("stopped")
        finished.append(place)
        return original(recipe, place, **options)

    monkeypatch.setattr(trained, "train", interrupt)
    with pytest.raises(Interrupted):
        compare(images, ["cnn-small"], seeds=2, epochs=1, overrides=QUICK, folder=folder)
    monkeypatch.setattr(trained, "train", original)
    written = (finished[0] / "weights.safetensors").stat().st_mtime_ns
    result = compare(images, ["cnn-small"], seeds=2, epochs=1, overrides=QUICK, folder=folder)
    assert len(result.rows) == 2
    assert (finished[0] / "weights.safetensors").stat().st_mtime_ns == written
    both = [
        [row["accuracy_percent"] for row in one.rows if row["variant"] == "cnn-small"] for one in (result, compared)
    ]
    assert both[0] == both[1], "the same recipe and seed give the same run"


def test_texts_are_compared_with_a_cnn_of_equal_size(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts("reviews.csv")
    words = ["--epochs=1", "--seeds=1", "--text.vector_size=16", "--training.batch_size=10"]
    assert call("compare-models", "--data", "reviews.csv", *words) == 0
    out = capsys.readouterr().out
    assert "text-capsnet-a" in out
    assert "text-cnn" in out
    assert "only further seeds can say" in out or "equally accurate" in out
    kept = json.loads((tmp_path / "runs/compare/reviews-1/comparison.json").read_text(encoding="utf-8"))
    sizes = [model["parameters"] for model in kept["models"].values()]
    assert max(sizes) < 1.02 * min(sizes)
    assert call("compare-models", "--data=reviews.csv", *words, "--csv") == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "runs/compare/reviews-1/comparison.csv").read_text(encoding="utf-8")
    (tmp_path / "other").mkdir()
    shutil.copy("reviews.csv", "other/reviews.csv")
    assert call("compare-models", "--data=other/reviews.csv", *words, "--models", "text-cnn", "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["run"].startswith(
        os.path.join("runs", "compare", "reviews-2")
    )
    assert call("explain", kept["runs"][0]["run"]) == 0


def test_options_go_to_the_models_that_have_them(images):
    overrides = {**QUICK, "model.options.routing": "optimized", "model.options.dropout": 0.25}
    plan = plan_comparison(images, None, 1, 1, None, overrides)
    options = {name: one.keys["model.options"] for name, one in plan.models.items()}
    assert options == {"capsnet-small": {"routing": "optimized"}, "cnn-small": {"dropout": 0.25}}
    for one in plan.models.values():
        recipe_from_file(plan.recipe, one.keys)


def test_matrix_capsules_get_the_spread_loss_and_their_own_cnn(images):
    overrides = {**QUICK, "data.validation": 0.1}
    plan = plan_comparison(images, ["matrix-capsnet-small", "cnn-matched"], 1, 1, None, overrides)
    assert [one.loss for one in plan.models.values()] == ["spread loss", "cross-entropy"]
    recipe = recipe_from_file("viewpoints", {"data.name": str(images)})
    own = plan_comparison(images, None, 1, 1, "viewpoints", {"data.crop": None, "data.shift": 0, "data.resize": None})
    assert list(own.models) == [recipe.model.name, "cnn-matched"]


def test_sizes_that_differ_are_told(images):
    plan = plan_comparison(images, ["capsnet-deep", "cnn-small"], 2, 1, None, QUICK)
    sizes = [parameter_count(create_model(name, (1, 12, 12), 2)) for name in plan.models]
    assert [one.parameters for one in plan.models.values()] == sizes
    assert "Their sizes differ" in plan.describe()


@pytest.mark.parametrize(
    ("arguments", "told", "option"),
    [
        ({"data": "no/where"}, "no such folder", "data.name"),
        ({"data": ([1], [2])}, "Save arrays as .npz", "data"),
        ({"models": []}, "a list of names", "models"),
        ({"models": "capsnet"}, "a list of names", "models"),
        ({"models": ["capsnet-smal"]}, "there is no model 'capsnet-smal'", "models"),
        ({"models": ["text-cnn"]}, "reads words: choose models among capsnet", "models"),
        ({"seeds": 0}, "1 to 1000; got 0", "seeds"),
        ({"seeds": True}, "got True", "seeds"),
        ({"epochs": 0}, "at least 1", "training.epochs"),
        ({"recipe": "nothing"}, "there is no recipe", None),
        ({"overrides": {"training.seed": 1}}, "decided by seeds", "seeds"),
        ({"overrides": {"model.name": "capsnet"}}, "decided by models", "models"),
        ({"overrides": {"model.options.nothing": 1}}, "has the option nothing", "model.options.nothing"),
        ({"overrides": {"nothing": 1}}, "no key 'nothing'", None),
        ({"folder": " "}, "is empty", "output"),
    ],
)
def test_wrong_input_is_refused_and_leaves_nothing(images, tmp_path, monkeypatch, arguments, told, option):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TorchcapsError, match=told) as caught:
        compare(**{"data": images, "overrides": QUICK, **arguments})
    assert option is None or caught.value.option in (option, option.rpartition(".")[2])
    assert not list(tmp_path.iterdir())


def test_folders_of_other_things_are_refused(compared, images, tmp_path):
    with pytest.raises(RunError, match="is the folder of a run"):
        compare(images, folder=compared.rows[0]["run"])
    with pytest.raises(RunError, match="holds a comparison on"):
        compare(write_images(tmp_path / "other.npz"), folder=compared.folder)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "which data?"),
        (("photos",), "--data photos"),
        (("--data", "mnist-mini", "--json", "--csv"), "give one of them"),
        (("--data", "mnist-mini", "--models", "nothing"), "(--models)"),
        (("--data", "nothing"), "(--data)"),
        (("--data", "mnist-mini", "--nothing"), "no option --nothing"),
    ],
)
def test_the_command_refuses_in_a_sentence(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("compare-models", *words) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


SAME = [90.0, 90.0, 90.0]


@pytest.mark.parametrize(
    ("first", "second", "items", "words"),
    [
        (SAME, SAME, 1000, "are equally accurate"),
        ([90.0, 91.0, 92.0], [89.5, 90.5, 92.5], 1000, "within the spread of the seeds (± 1.00 and ± 1.53)"),
        ([95.0, 95.1, 94.9], [80.0, 80.2, 79.8], 1000, "more than the spread of the seeds (± 0.10 and ± 0.20). With 3"),
        ([95.0, 95.1, 94.9], [80.0, 80.2, 79.8], 20, "do not rely on it"),
        ([100.0, 100.0], [98.0, 98.0], 50, "do not rely on it"),
        ([100.0], [60.0], 5000, "only further seeds can say"),
    ],
)
def test_words_claim_no_more_than_the_numbers(first, second, items, words):
    (difference,) = measure_differences({"a": first, "b": second}, items)
    said = describe_difference(difference, items, "images", len(first))
    assert words in said
    (turned,) = measure_differences({"b": second, "a": first}, items)
    assert (turned.points, turned.beyond_seeds) == (difference.points, difference.beyond_seeds)


def test_the_best_is_set_beside_all_others():
    ranked = measure_differences({"a": [50.0], "b": [70.0], "c": [60.0]}, 100)
    assert [(one.ahead, one.behind, one.points) for one in ranked] == [("b", "c", 10), ("b", "a", 20)]
    assert measure_differences({"a": [50.0]}, 100) == []
