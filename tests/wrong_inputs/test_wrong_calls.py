"""The same from Python: load, fit, create_model, and what a run is asked for. Errors are TorchcapsErrors."""

import numpy as np
import pytest
import torch
from refusals import TO_PYTHON, assert_refusal, list_files

import torchcaps
from torchcaps import TorchcapsError, create_model, fit, load

IMAGES, LABELS = np.zeros((30, 12, 12), np.uint8), np.arange(30) % 3


@pytest.fixture
def declined(tmp_path, monkeypatch):
    """declined(function, …): a sentence, no options of a command line in it, and nothing left behind."""
    monkeypatch.chdir(tmp_path)

    def call(function, *arguments, **named):
        before = list_files(tmp_path)
        with pytest.raises(TorchcapsError) as caught:
            function(*arguments, **named)
        message = str(caught.value).replace(str(tmp_path), "folder")
        assert_refusal(" ".join(message.split()), words=TO_PYTHON)
        assert " --" not in message
        assert list_files(tmp_path) == before
        return message

    return call


LOADED = ["missing", "mnst", "", " ", ".", "/dev/null", "a\nb", "x" * 300, "nul\0"]


@pytest.mark.parametrize("source", LOADED, ids=lambda name: name[:20].encode("unicode_escape").decode())
def test_load(source, declined):
    declined(load, source)


@pytest.mark.parametrize("source", [None, 5, 1.5, [], {}, b"\xff", object()], ids=lambda value: type(value).__name__)
def test_load_what_is_no_name(source, declined):
    assert "name" in declined(load, source) or isinstance(source, bytes)


DATA = {
    "nothing": None, "a number": 5, "a list": [], "a map": {}, "one array": IMAGES, "three": (IMAGES, LABELS, LABELS),
    "too few labels": (IMAGES, LABELS[:5]), "no images": (IMAGES[:0], LABELS[:0]),
    "flat images": (IMAGES[:, 0, 0], LABELS),
    "words for labels": (IMAGES, ["a", "b"]), "complex images": (IMAGES.astype(complex), LABELS),
    "NaN images": (np.full((30, 12, 12), np.nan, np.float32), LABELS), "negative labels": (IMAGES, LABELS - 5),
    "labels with fractions": (IMAGES, LABELS + 0.5), "one class": (IMAGES, LABELS * 0),
    "bright floats": (IMAGES.astype(np.float32) + 300, LABELS), "numbers as texts": ([1, 2], [0, 1]),
    "empty texts": (["", ""], [0, 1]), "a text for labels": (["good", "bad"], "up"), "no name": "",
    "a missing folder": "no/where",
    "an unknown name": "mnst", "a missing file": "no.csv", "objects": ([object()] * 4, [0, 1, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_fit_data(name, declined):
    declined(fit, DATA[name], epochs=1)


FIT = [
    {"epochs": 0}, {"epochs": -1}, {"epochs": "ten"}, {"epochs": 1.5}, {"epochs": True}, {"epochs": [1]},
    {"epochs": 10**12},
    {"epochs": float("nan")}, {"model": "capsnt"}, {"model": 5}, {"model": ""}, {"model": "text-cnn"},
    {"recipe": "quikstart"},
    {"recipe": "missing.yaml"}, {"recipe": ""}, {"recipe": "."}, {"overrides": {"optimizer.learning_rate": 1}},
    {"overrides": {"lr": 1}}, {"overrides": {"optimizer.lr": "fast"}}, {"overrides": {"optimizer.lr": -1}},
    {"overrides": {"optimizer.lr": None}}, {"overrides": {"optimizer.lr": object()}},
    {"overrides": {"loss.kind": "marign"}},
    {"overrides": {"model.options.routing": "dynmic"}},
    {"overrides": {"model.options.shared": "maybe"}}, {"overrides": {"model.options": 5}}, {"overrides": {"": 1}},
    {"overrides": {"data.crop": 40, "data.shift": 0}}, {"overrides": {5: 1}}, {"overrides": [1]}, {"overrides": "x"},
    {"folder": ""}, {"folder": "/dev/null/x"}, {"folder": "nul\0"}, {"test": 5}, {"test": (IMAGES, LABELS[:3])},
]  # fmt: skip


@pytest.mark.parametrize("named", FIT, ids=lambda named: str(named)[:50].encode("unicode_escape").decode())
def test_fit(named, declined):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (60, 12, 12), dtype=np.uint8)
    declined(fit, (images, np.arange(60) % 3), **({"epochs": 1} | named))


MODELS = [
    (("capsnt",), {}), (("",), {}), ((None,), {}), ((5,), {}), (("capsnet", 5), {}), (("capsnet", "x"), {}),
    (("capsnet", (1, 28)), {}), (("capsnet", (1, 28, -1)), {}), (("capsnet", (1, 28, 1.5)), {}),
    (("capsnet", None, 1), {}), (("capsnet", None, 0), {}), (("capsnet", None, "ten"), {}),
    (("capsnet", None, 2.5), {}),
    (("capsnet", None, True), {}), (("capsnet",), {"routng": "em"}), (("capsnet",), {"routing": "emm"}),
    (("capsnet",), {"routing": 5}), (("capsnet",), {"routing": {}}), (("capsnet",), {"routing": {"name": 5}}),
    (("capsnet",), {"routing": {"name": "dynamic", "iterations": 0}}), (("capsnet",), {"squash": "sqash"}),
    (("capsnet",), {"decoder": "yes"}), (("capsnet",), {"decoder": 5}), (("capsnet",), {"decoder": [0]}),
    (("capsnet",), {"shared": "no"}), (("capsnet",), {"shared": 1}), (("capsnet",), {"objects": 0}),
    (("capsnet",), {"objects": "two"}), (("capsnet",), {"dtype": torch.int64}), (("capsnet",), {"dtype": "float32"}),
    (("text-cnn", (1, 28, 28)), {}), (("text-capsnet-a",), {"ngram": 0}), (("text-capsnet-a",), {"ngram": "x"}),
    (("cnn-small",), {"dropout": "much"}), (("cnn-small",), {"dropout": 2.0}), (("cnn-small",), {"dropout": -1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "named"), MODELS, ids=lambda value: str(value)[:40])
def test_create_model(arguments, named, declined):
    declined(create_model, *arguments, **named)


PREDICTED = {
    "nothing": None, "a number": 5, "a missing file": "no.png", "a folder": ".", "a map": {}, "flat": np.zeros(5),
    "other sizes": np.zeros((2, 5, 5), np.uint8), "NaN": np.full((1, 12, 12), np.nan, np.float32),
    "objects": [object()],
    "bright floats": np.full((1, 12, 12), 255.0, np.float32), "numbers": [1, 2], "texts that are no files": ["a", "b"],
    "colours": np.zeros((1, 12, 12, 7), np.uint8), "five dimensions": np.zeros((1, 1, 1, 12, 12)), "bytes": b"png",
    "negative": np.full((1, 12, 12), -1.0, np.float32), "complex": np.zeros((1, 12, 12), complex),
}  # fmt: skip


@pytest.mark.parametrize("name", PREDICTED)
def test_predict(name, image_run, declined):
    declined(load(image_run).predict, PREDICTED[name])


@pytest.mark.parametrize("inputs", [None, 5, [5], [None], {}, np.zeros(3), b"good"], ids=str)
def test_predict_texts(inputs, text_run, declined):
    declined(load(text_run).predict, inputs)


EVALUATED = [
    {"data": "mnst"}, {"data": "no/where"}, {"data": ""}, {"data": 5}, {"data": {}}, {"data": (IMAGES, LABELS[:3])},
    {"data": "mr-mini"}, {"data": "mnist-mini"}, {"split": "tset"}, {"split": ""}, {"split": None}, {"split": 5},
    {"crops": 7}, {"crops": 13}, {"crops": "x"}, {"data": (IMAGES[:, :5, :5], LABELS)}, {"data": (IMAGES, LABELS + 7)},
]  # fmt: skip


@pytest.mark.parametrize("named", EVALUATED, ids=lambda named: str(named)[:40])
def test_evaluate(named, image_run, declined):
    declined(load(image_run).evaluate, **named)


@pytest.mark.parametrize("epochs", [0, -1, 1.5, "ten", None, True, [1]], ids=str)
def test_train_more(epochs, image_run, declined):
    declined(load(image_run).train_more, epochs)


def test_weights_cannot_be_trained_on_or_explained(declined):
    declined(load("mnist").train_more, 1)
    declined(load("mnist").explain)
    declined(load("mnist").evaluate)


@pytest.mark.parametrize(
    "folder", ["", "/dev/null", "/dev/null/x", "full", "nul\0", "x" * 300, None, 5], ids=lambda f: str(f)[:9]
)
def test_save(folder, declined, tmp_path, image_run):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    declined(load(image_run).save, folder)


@pytest.mark.parametrize("device", ["cuda:77", "gpu", "", 5.5], ids=str)
def test_devices(device, declined):
    declined(load, "mnist", device)


def test_all_of_these_are_of_one_kind():
    assert issubclass(torchcaps.TorchcapsError, Exception)
