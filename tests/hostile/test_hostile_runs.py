"""Run folders of which a file is something else, or leads elsewhere; weights whose header lies."""

import json
import math
import os
import pickle
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from watching import CANARY, assert_sentence, watched

from torchcaps.training import runs
from torchcaps.training.errors import RunError
from torchcaps.training.lock import LOCK, locked
from torchcaps.training.runs import load_model

COMMANDS = {
    "resume": ("train", "--resume"),
    "evaluate": ("evaluate",),
    "explain": ("explain",),
    "predict": ("predict",),
}
READS = {
    "resume": (runs.RECIPE, runs.CHECKPOINT),
    "evaluate": (runs.RECIPE, runs.WEIGHTS),
    "explain": (runs.RECIPE, runs.WEIGHTS),
    "predict": (runs.WEIGHTS,),
}


class Harmful:
    """Unpickling it would call."""

    def __reduce__(self):
        return eval, (f"__import__({CANARY!r}).sing()",)


def words_of(command, run):
    return (*COMMANDS[command], run, *(["nothing.png"] if command == "predict" else []))


CONTENTS = {
    "empty": b"",
    "zeros": bytes(1000),
    "text": b"hello",
    "pickle": pickle.dumps(Harmful()),
    "zip": b"PK\x03\x04 and nothing more",
    "huge header": struct.pack("<Q", 2**62) + b"{}",
    "header cut short": struct.pack("<Q", 100) + b"{",
    "deep header": struct.pack("<Q", 20_000) + b"[" * 20_000,
    "noise": os.urandom(5000),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(("command", "file"), [(command, file) for command, files in READS.items() for file in files])
def test_a_file_that_is_something_else(command, file, content, run, refused):
    (run / file).write_bytes(CONTENTS[content])
    refused(*words_of(command, run))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link elsewhere", "link to nothing", "link to itself"])
@pytest.mark.parametrize(("command", "file"), [(command, file) for command, files in READS.items() for file in files])
def test_a_file_that_is_no_file(command, file, kind, run, refused, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / file
    (run / file).rename(elsewhere)
    if kind == "pipe":
        os.mkfifo(run / file)
    elif kind == "folder":
        (run / file).mkdir()
    else:
        targets = {"device": "/dev/zero", "link to nothing": "nowhere", "link to itself": file}
        (run / file).symlink_to(targets.get(kind, elsewhere))
    refused(*words_of(command, run))


@pytest.mark.parametrize("name", ["explain", "explain/report.html", "explain/numbers.json", "explain/pictures"])
def test_nothing_is_written_through_a_link(name, run, harmless, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("precious")
    place = run / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside if name in ("explain", "explain/pictures") else outside / "file")
    assert harmless("explain", run, "--images", "3") == ""
    assert [entry.name for entry in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("name", [runs.TENSORBOARD, f"{runs.TENSORBOARD}/hparams.yaml", runs.METRICS])
def test_resuming_writes_nothing_through_a_link(name, run, refused, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    if (run / name).is_dir():
        (run / name).rename(outside / "moved")
    else:
        (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    assert "leads out of" in refused("train", "--resume", run)


LIES = '{"epochs": 1e999, "accuracy": NaN, "images": -1, "pictures": ["../../x"]}'


@pytest.mark.parametrize("name", ["summary.json", "evaluation.json", "metrics.csv", "explain/numbers.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, "5", "[]", LIES, "\0"])
def test_notes_of_a_run_are_not_believed(name, text, run, harmless, monkeypatch):
    """Explaining fails only where the report would be."""
    from torchcaps.report import facts, reports

    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text(text)
    facts.read_epochs(run)
    facts.read_evaluation(run)
    assert reports.list_pictures(run / "explain") == set()


VALUES = [None, [], {}, "x", 5, -1, 10**12, 1e300, True, ["a"], {"a": {"b": []}}, "\x1b[31m", [[[]]], "9" * 100_000]
FIELDS = ["name", "image_shape", "class_names", "options", "preparation", "picture_shape"]


def with_header(run, header):
    """The run's weights under another header."""
    with safe_open(run / runs.WEIGHTS, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, run / runs.WEIGHTS, {} if header is None else {"torchcaps": header})


def own_header(run):
    with safe_open(run / runs.WEIGHTS, framework="pt") as file:
        return json.loads(file.metadata()["torchcaps"])


def refuses_to_load(run, tmp_path, canary):
    with watched(tmp_path), pytest.raises(RunError) as caught:
        load_model(run)
    assert_sentence(str(caught.value))
    return str(caught.value)


HEADERS = [None, "", "[]", "5", "null", '"x"', "{}", "[" * 100_000, '{"reads": "words"}', "{]"]


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_are_none(header, run, tmp_path, canary):
    with_header(run, header)
    assert "header" in refuses_to_load(run, tmp_path, canary)


@pytest.mark.parametrize("value", range(len(VALUES)))
@pytest.mark.parametrize("field", FIELDS)
def test_headers_with_a_strange_value(field, value, run, tmp_path, canary):
    header = own_header(run)
    if field == "preparation" and VALUES[value] == {}:
        header["picture_shape"] = [1, 5, 5]  # which without a preparation stay as they are
    if field == "options" and VALUES[value] == {}:
        header["name"] = "capsnet"  # of which these are not the weights
    with_header(run, json.dumps(header | {field: VALUES[value]}))
    refuses_to_load(run, tmp_path, canary)


OPTIONS = {
    "class": {"routing": {"class_path": f"{CANARY}.Bird"}},
    "import": {"routing": f"{CANARY}.Bird"},
    "iterations": {"routing": {"name": "dynamic", "iterations": 10**9}},
    "more iterations": {"routing": {"name": "dynamic", "iterations": 2_000}},
    "no iterations": {"routing": {"name": "dynamic", "iterations": "many"}},
    "wide decoder": {"decoder": [10**9]},
    "negative decoder": {"decoder": [-1]},
    "deep decoder": {"decoder": [1] * 50_000},
    "nested": {"decoder": [[[[[1]]]]]},
    "unknown": {"x": 1},
    "dunder": {"__class__": 1},
    "of a parameter": {"input_shape": [1, 1, 1]},
    "classes": {"classes": 3},
    "squash": {"squash": "../../x"},
    "number of 100 digits": {"decoder": int("9" * 100)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_in_a_header(name, run, tmp_path, canary):
    with_header(run, json.dumps(own_header(run) | {"options": OPTIONS[name]}))
    refuses_to_load(run, tmp_path, canary)


SHAPES = {
    "large": {"image_shape": [1, 10_000, 10_000], "picture_shape": [1, 10_000, 10_000]},
    "resized": {"preparation": {"resize": 10**9}},
    "thin": {"preparation": {"resize": 10_000}, "picture_shape": [1, 1, 10_000]},
    "cropped": {"preparation": {"crop": 5}},
    "strange crops": {"preparation": {"crops": 7}},
    "not a preparation": {"preparation": {"class_path": f"{CANARY}.Bird"}},
    "many channels": {"image_shape": [9999, 12, 12], "picture_shape": [9999, 12, 12]},
    "many classes": {"class_names": [str(n) for n in range(50_000)]},
    "commands": {"class_names": ["\x1b]0;owned\x07", "b", "c"]},
    "lines": {"class_names": ["a\nb", "b", "c"]},
    "backwards": {"class_names": ["\u202eabc", "b", "c"]},
}


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_and_names_in_a_header(name, run, tmp_path, canary):
    with_header(run, json.dumps(own_header(run) | SHAPES[name]))
    refuses_to_load(run, tmp_path, canary)


@pytest.mark.parametrize("field", ["words", "vector_size", "longest", "lower", "multi_label", "class_names", "name"])
@pytest.mark.parametrize("value", [None, -1, 10**12, "x", [], {}])
def test_headers_of_texts(field, value, text_run, tmp_path, canary):
    with_header(text_run, json.dumps(own_header(text_run) | {field: value}))
    refuses_to_load(text_run, tmp_path, canary)


VOCABULARIES = {
    "another number": "torchcaps vocabulary, words: 3\na\nb\nc\n",
    "cut short": "torchcaps vocabulary, words: 30\na\n",
    "huge number": f"torchcaps vocabulary, words: {'9' * 4000}\na\n",
    "twice": "torchcaps vocabulary, words: 2\na\na\n",
    "no header": "a\nb\n",
    "empty": "",
    "spaces": "torchcaps vocabulary, words: 1\na b\n",
    "pickle": "\x80\x04",
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies(name, text_run, tmp_path, canary):
    (text_run / runs.VOCABULARY).write_text(VOCABULARIES[name])
    refuses_to_load(text_run, tmp_path, canary)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_vocabularies_that_are_no_file(kind, text_run, tmp_path, canary):
    place = text_run / runs.VOCABULARY
    place.unlink()
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/etc/hostname")
    refuses_to_load(text_run, tmp_path, canary)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("command", ["evaluate", "explain", "predict"])
def test_weights_that_are_no_numbers(command, value, run, refused):
    spec, tensors = runs.load_weights(run / runs.WEIGHTS)
    next(iter(tensors.values())).flatten()[0] = value
    save_file(tensors, run / runs.WEIGHTS, {"torchcaps": spec.to_json()})
    assert "diverged" in refused(*words_of(command, run))


def test_tensors_of_another_kind(run, tmp_path, canary):
    spec, tensors = runs.load_weights(run / runs.WEIGHTS)
    name = next(iter(tensors))
    for other in ({**tensors, name: tensors[name][:1]}, {**tensors, "more": torch.ones(1)}, {name: tensors[name]}, {}):
        save_file(other, run / runs.WEIGHTS, {"torchcaps": spec.to_json()})
        refuses_to_load(run, tmp_path, canary)


@pytest.mark.parametrize("words", [("train", "--resume"), ("train", "--output")])
def test_a_run_is_trained_by_one_process(words, run, refused):
    with locked(run):
        told = refused(*words, run)
    assert f"process {os.getpid()} on " in told
    assert not (run / LOCK).exists()


@pytest.mark.parametrize("content", ["", "[]", "5", "{}", '{"process": "x"}', "[" * 9999, "\x1b[31m"])
def test_a_lock_that_nobody_holds_is_taken_over(content, run):
    (run / LOCK).write_text(content)
    with locked(run):
        assert json.loads((run / LOCK).read_text())["process"] == os.getpid()
    assert not (run / LOCK).exists()


def test_a_lock_that_leads_elsewhere_is_not_followed(run, refused, tmp_path_factory):
    precious = tmp_path_factory.mktemp("outside") / "file"
    precious.write_text("precious")
    (run / LOCK).symlink_to(precious)
    refused("train", "--resume", run)
    assert precious.read_text() == "precious"


def test_a_read_only_run_is_measured(run, harmless, capsys, monkeypatch):
    """Root may write anywhere, so writing itself is made to fail."""
    import torchcaps.run

    def full(*_):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(torchcaps.run, "write_json", full)
    assert "accuracy" in harmless("evaluate", run)


def test_a_run_fetches_nothing(run, harmless, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("outside") / "data"
    recipe = (run / runs.RECIPE).read_text()
    import yaml

    values = yaml.safe_load(recipe)
    values["data"] |= {"name": "mnist", "dir": str(elsewhere), "download": True}
    (run / runs.RECIPE).write_text(yaml.safe_dump(values))
    for words in (("train", "--resume", run), ("evaluate", run), ("explain", run)):
        assert harmless(*words) == ""
    from torchcaps.explorer import create_app

    with watched(run):
        create_app([run], pretrained=False)
    assert not elsewhere.exists()
