"""Answers to inputs as they come: in order, few at a time, whatever is among them."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps
from torchcaps.data.registry import dataset_class
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import TorchcapsError
from torchcaps.run import Run
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import TextTask


@pytest.fixture(scope="module")
def run():
    return torchcaps.load("mnist")


@pytest.fixture(scope="module")
def images():
    return dataset_class("mnist-mini")().load("test").images[:150]


@pytest.fixture(scope="module")
def texts():
    """A text model that was never trained."""
    words = ("good", "bad", "film", "a", "the")
    vocabulary = Vocabulary.from_texts([words])
    task = TextTask(("no", "yes"), len(vocabulary), 8, 30, vocabulary=vocabulary)
    spec = ModelSpec("text-capsnet-a", task, {"filters": 6, "types": 3, "pose": 4})
    torch.manual_seed(0)
    return Run(spec.build().eval(), spec)


def test_a_stream_says_the_same_as_a_list(run, images):
    expected = run.predict(images)
    found = list(run.predict_stream(image for image in images[:, 0].numpy()))
    assert [answer.item for answer in found] == [f"image {number}" for number in range(1, 151)]
    assert [answer.label for answer in found] == [answer.label for answer in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
    assert list(run.predict_stream(images)) == expected, "an array of all"
    assert list(run.predict_stream([images[:100], images[100:]])) == expected, "several arrays"
    assert list(run.predict_stream([])) == []


def test_an_endless_stream_is_answered_batch_by_batch(run, images):
    taken = itertools.count()
    endless = (images[next(taken) % 150, 0].numpy() for _ in itertools.count())
    answers = run.predict_stream(endless, batch_size=5)
    assert next(taken) == 0, "nothing is read before it is asked for"
    next(answers)
    assert next(taken) == 6
    list(itertools.islice(answers, 9))
    assert next(taken) == 12
    with pytest.raises(TorchcapsError, match="batch_size must be at least 1"):
        run.predict_stream([], batch_size=0)


def test_what_cannot_be_read_is_told_or_raised(run, images, tmp_path):
    good, told = tmp_path / "good.png", []
    Image.fromarray(images[0, 0].numpy()).save(good)
    inputs = [good, tmp_path / "gone.png", None, np.zeros((3, 3), np.uint8), Image.open(good), images[:2], str(good)]
    found = list(run.predict_stream(inputs, lambda name, error: told.append((name, str(error)))))
    assert [answer.item for answer in found] == [str(good), "image 5", "image 6", "image 7", str(good)]
    assert [name for name, _ in told] == ["input 3", str(tmp_path / "gone.png"), "image 4"]
    assert "No such file" in told[1][1]
    with pytest.raises(TorchcapsError, match=r"gone\.png cannot be read"):
        list(run.predict_stream(inputs[:2]))
    with pytest.raises(TorchcapsError, match=r"gone\.png cannot be read"):
        run.predict(inputs[:2])


def test_texts_are_answered_in_their_order(texts):
    lines = [" ".join(["good", "bad", "film"][n % 3 :] * (n % 5)) for n in range(1203)]
    found = list(texts.predict_stream(iter(lines)))
    assert [answer.item for answer in found] == lines, "sorted by length only inside of a batch"
    for number in (0, 7, 499, 500, 1202):
        assert found[number].scores == pytest.approx(texts.predict(lines[number])[0].scores, abs=1e-5)
    told = []
    assert len(list(texts.predict_stream(["good", 3, "bad"], lambda *error: told.append(error)))) == 2
    assert told[0][0] == "input 2"
    assert [answer.item for answer in texts.predict_stream("good")] == ["good"], "one text, not its letters"


def test_progress_is_told_of_every_answer(run, images):
    ticks = []
    run.predict(images[:70], lambda text, total: ticks.append(total) or ticks.append)
    assert ticks == [70] + [1] * 70
