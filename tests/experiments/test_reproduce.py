"""Experiments: what is run, what is kept, and what the tables say."""

import json
import shlex
from functools import partial

import pytest
import torch
from PIL import Image

from torchcaps.cli import _run, run_guarded
from torchcaps.commands.keys import read_keys
from torchcaps.commands.reproduce import spell_setting
from torchcaps.experiments import get_experiment, list_experiments, register_experiment, registry
from torchcaps.experiments.base import Budget, Column, Experiment, Setting, Trial
from torchcaps.experiments.catalogue import clustering
from torchcaps.experiments.catalogue.routing_vs_backprop import ClassPoses, measure_majority, measure_probe
from torchcaps.experiments.catalogue.routings import frozen_batches
from torchcaps.experiments.memory import can_measure
from torchcaps.experiments.plots import plot, read_published
from torchcaps.experiments.run import format_csv, make_setting, reproduce
from torchcaps.experiments.step_cost import TrainingStep, measure_steps
from torchcaps.experiments.tables import list_headings, list_lines, markdown, measure_cell
from torchcaps.experiments.trained import make_recipe, run_folder, train_once
from torchcaps.run import load
from torchcaps.training.recipes import recipe_from_file

SMALL = {"training.batch_size": 64, "data.validation": 0.9}


def experiment_of(trials, **options):
    columns = (Column("error", "error, %", published={"a": "1.5 ± 0.2"}), Column("time", "ms", digits=1, once=True))
    values = {"name": "squashes", "summary": "S", "title": "T", "question": "Q.", "credit": "C.", "columns": columns}
    return Experiment(**{**values, "budgets": {"quick": Budget(SMALL)}, "trials": trials, **options})


@pytest.mark.parametrize("name", list_experiments())
@pytest.mark.parametrize("budget", ["quick", "full"])
def test_every_training_of_every_experiment_is_a_recipe_that_can_be(name, budget):
    experiment = get_experiment(name)
    assert experiment.name == name
    trials = experiment.trials(make_setting(experiment, budget, data="mnist-mini"))
    seeds = {trial.seed for trial in trials}
    assert {0, 1, 2} <= seeds
    per_seed = [[trial.variant for trial in trials if trial.seed == seed] for seed in sorted(seeds)]
    assert all(names == per_seed[0] for names in per_seed), "every seed has every variant"
    assert len(set(per_seed[0])) == len(per_seed[0])
    for trial in trials[: len(per_seed[0])]:
        for training in trial.trainings.values():
            recipe = make_recipe(training)
            assert recipe.training.seed == trial.seed
            assert recipe.data.validation == 0, "nothing is chosen, so nothing is kept aside"
            assert "mnist-mini" in (recipe.data.name, recipe.data.options.get("base"))
    assert all(set(column.published) <= set(per_seed[0]) for column in experiment.columns)


def test_variants_differ_in_what_they_say():
    for name, key, values in (
        ("squashes", lambda r: r.model.options.get("squash"), {None, "exponential", "half", "unit", "none"}),
        ("routings", lambda r: r.model.options.get("routing", {}).get("name"), {"dynamic", "em", None, "frozen",
         "kmeans", "optimized", "random", "uniform"}),
    ):  # fmt: skip
        experiment = get_experiment(name)
        trials = experiment.trials(make_setting(experiment, seeds=(0,)))
        assert {key(make_recipe(t)) for one in trials for t in one.trainings.values()} == values


def test_what_is_typed_for_a_training_gives_its_recipe():
    for name in ("components", "routings"):
        experiment = get_experiment(name)
        setting = make_setting(experiment, seeds=(3,), data="fashion-mnist", epochs=2)
        for trial in experiment.trials(setting):
            noted = spell_setting(experiment, setting, trial)
            ending = "--budget quick --seeds 3 --data fashion-mnist --epochs 2"
            assert noted["command"] == f"torchcaps reproduce {name} {ending}"
            for typed, training in zip(noted["trained_by"].split("; "), trial.trainings.values(), strict=True):
                assert typed.startswith("torchcaps train ")
                recipe, *overrides = shlex.split(typed)[2:]
                assert recipe_from_file(recipe, read_keys(overrides)) == make_recipe(training)


def test_an_experiment_registers_itself_once(monkeypatch):
    assert list(list_experiments()) == sorted(list_experiments())
    monkeypatch.setattr(registry, "_experiments", dict(registry._experiments))
    own = experiment_of(lambda setting: [], name="own")
    assert register_experiment(own) is own
    assert get_experiment("own") is own
    assert list_experiments()["own"] == "S"
    for name in ("own", "routings"):
        with pytest.raises(ValueError, match=f"an experiment named '{name}' is already registered; choose another"):
            register_experiment(experiment_of(lambda setting: [], name=name))


def test_experiments_share_the_runs_that_are_the_same(tmp_path):
    def folders(name):
        experiment = get_experiment(name)
        trials = experiment.trials(make_setting(experiment, seeds=(0,)))
        return {run_folder(t, tmp_path) for trial in trials for t in trial.trainings.values()}

    assert folders("robustness") < folders("routings")
    assert folders("routings") & folders("components") & folders("squashes") & folders("routing-reconstruction")


def test_a_training_is_done_once_and_begun_again_after_a_break(tmp_path):
    setting = Setting("x", Budget(SMALL), "quick", (0,), data="mnist-mini")
    training = setting.training("mnist", 0)
    folder = train_once(training, tmp_path)
    weights = (folder / "weights.safetensors").stat().st_mtime_ns
    assert train_once(training, tmp_path) == folder
    assert (folder / "weights.safetensors").stat().st_mtime_ns == weights
    assert load(folder).spec.name == "capsnet-small"
    assert str(training).startswith("mnist model.name=capsnet-small training.batch_size=64")

    other = setting.training("mnist", 1)
    place = run_folder(other, tmp_path)
    place.mkdir()
    (place / "recipe.yaml").write_text("half a file")  # broken off before its first checkpoint
    assert (train_once(other, tmp_path) / "summary.json").is_file()
    assert place != folder


def test_numbers_are_kept_and_a_broken_run_goes_on(tmp_path):
    calls, broken = [], {"at": 2}

    def trials(setting):
        def measure_of(value):
            def measure(runs, context):
                if len(calls) == broken["at"]:
                    raise KeyboardInterrupt
                tick = context.progress("text", 2)
                tick(2)
                calls.append(value)
                return {"error": value}

            return measure

        return [Trial(v, s, {}, measure_of(10.0 * s + n)) for s in setting.seeds for n, v in enumerate("ab")]

    experiment = experiment_of(trials, together=lambda context: {"a": {"time": 3.25}})
    setting = make_setting(experiment, seeds=(0, 1))
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, setting, tmp_path)
    broken["at"] = None
    said = []
    rows = reproduce(experiment, setting, tmp_path, said.append, note=partial(spell_setting, experiment, setting))
    assert calls == [0, 1, 10, 11]
    assert [row["error"] for row in rows] == ["0.00", "1.00", "10.00", "11.00"]
    assert said[0] == "1/4 a, seed 0: error, % 0.00"
    assert rows[2]["command"] == "torchcaps reproduce squashes --budget quick --seeds 1"
    assert format_csv(rows).splitlines()[0].startswith("variant,seed,budget,epochs,data,error,time,")
    longer = make_setting(experiment, seeds=(0,), epochs=2)
    noted = partial(spell_setting, experiment, longer)
    assert reproduce(experiment, longer, tmp_path, note=noted)[0]["command"].endswith("--epochs 2")
    assert calls == [0, 1, 10, 11, 0, 1], "another budget is another experiment"

    reproduce(experiment, setting, tmp_path, again=True)
    assert calls[6:] == [0, 1, 10, 11], "or measured again"

    assert list_headings(experiment, rows) == ["", "error, %", "published", "ms"]
    other = [{**row, "data": "fashion-mnist"} for row in rows]
    assert list_headings(experiment, other) == ["", "error, %", "ms"], "published numbers are of other images"
    assert "fashion-mnist" in markdown(experiment, other)
    assert list_lines(experiment, rows) == [["a", "5.00 ± 7.07", "1.5 ± 0.2", "3.2"], ["b", "6.00 ± 7.07", "–", "–"]]
    assert measure_cell(rows, "a", experiment.columns[1]).deviation is None
    text = markdown(experiment, rows)
    assert "| a | 5.00 ± 7.07 | 1.5 ± 0.2 | 3.2 |" in text
    assert "over 2 seeds. Budget: quick, 1 epoch." in text
    assert read_published(experiment.columns[0], "a") == 1.5
    assert read_published(experiment.columns[0], "b") is None
    plot(experiment, rows, tmp_path / "plot.png")
    assert Image.open(tmp_path / "plot.png").size[0] > 500


def test_capsules_named_by_their_majority():
    lengths = torch.eye(3)[[1, 1, 1, 2, 2, 0]]
    labels = torch.tensor([0, 0, 2, 1, 1, 2])
    seen = ClassPoses(torch.zeros(6, 4), lengths, labels)
    assert measure_majority(seen, seen) == pytest.approx(5 / 6)  # one of the first three is not like the others


def test_a_linear_classifier_finds_what_is_linear_and_nothing_in_noise():
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(3000, 6, generator=generator)
    labels = (poses @ torch.randn(6, 3, generator=generator)).argmax(dim=1)
    known, new = (ClassPoses(poses[part], poses[part], labels[part]) for part in (slice(2000), slice(2000, None)))
    assert measure_probe(known, new) > 0.93
    noise = replace_poses(known, generator), replace_poses(new, generator)
    majority = float((new.labels == labels.mode().values).double().mean())
    assert measure_probe(*noise) < majority + 0.05


def replace_poses(seen, generator):
    return seen._replace(poses=torch.randn(seen.poses.shape, generator=generator))


def test_costs_of_a_step():
    steps = {
        "small": TrainingStep("capsnet-small", {"decoder": False}),
        "CNN": TrainingStep("cnn-small", {}, "cross-entropy"),
    }
    ticks = []
    found = measure_steps(steps, ticks.append, rounds=1, processes=1)
    assert found["CNN"]["parameters"] == 300_941
    assert len(ticks) == (4 if can_measure() else 2)
    assert all(numbers["step_milliseconds"] > 0 for numbers in found.values())
    if can_measure():
        assert 1 < found["small"]["step_megabytes"] < 500


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(clustering, "ITERATIONS", 2)  # each is a frame to draw
    assert _run(["reproduce", "--list"]) == 0
    assert "routing-vs-backprop" in capsys.readouterr().out
    arguments = ["reproduce", "clustering", "--seeds", "0", "1", "--output", str(tmp_path)]
    assert _run([*arguments, "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["experiment"] == "clustering"
    assert len(numbers["rows"]) == 2 * len(numbers["variants"])
    assert _run(arguments) == 0
    assert "Written: " in capsys.readouterr().out
    assert {path.suffix for path in tmp_path.iterdir() if path.is_file()} == {".md", ".csv", ".png", ".gif"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which experiment?"),
        (["routngs"], "Did you mean 'routings'"),
        (["routings", "--data", "cifar10"], "--data must be one of"),
        (["routings", "--epochs", "0"], "at least 1"),
        (["routings", "--seeds", "-1"], "from 0 to"),
        (["clustering", "--seeds", "99999999999999999999"], "from 0 to"),
        (["clustering", "--epochs", "2"], "trains nothing"),
        (["routings", "--data-dir", "no/where"], "mnist"),
    ],
)
def test_wrong_input_is_told_in_a_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # digits that someone has fetched are not for this
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    output = ["--output", str(tmp_path)] if arguments else []
    assert run_guarded(lambda: _run(["reproduce", *arguments, *output]), debug=False) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("data", "epochs", "expected"), [(None, 1, 450), ("mnist-mini", 1, 38), (None, 20, 9005)])
def test_couplings_are_frozen_before_the_end(data, epochs, expected):
    setting = make_setting(get_experiment("routings"), data=data, epochs=epochs, seeds=(0,))
    assert frozen_batches(setting) == expected
    (trial,) = [trial for trial in get_experiment("routings").trials(setting) if trial.variant == "frozen"]
    assert trial.trainings["run"].keys["model.options.routing.after"] == expected
