"""A trained network as one thing: load, predict, evaluate, train on, save; and training in one call."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps
from torchcaps.data.datasets.mnist import MNISTMini
from torchcaps.errors import TorchcapsError
from torchcaps.training.errors import RunError

CLASSES = ("left", "middle", "right")
QUICK = {"training.batch_size": 6, "data.validation": 0.25, "data.shift": 0, "model.options.decoder": False}


def make_images(count=90, seed=0):
    """Images in three classes that a blind man could tell apart."""
    labels = np.arange(count) % 3
    images = np.random.default_rng(seed).integers(0, 60, (count, 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, 4 * label : 4 * label + 4] += 150
    return images, labels


class Pairs(torch.utils.data.Dataset):
    """As torchvision's: PIL images, numbers, and the names of the classes."""

    classes = CLASSES

    def __init__(self, count=90):
        self.images, self.labels = make_images(count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return Image.fromarray(self.images[index]), int(self.labels[index])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return torchcaps.fit(Pairs(), epochs=3, overrides=QUICK, folder=tmp_path_factory.mktemp("fit") / "run")


def test_three_lines_from_a_shipped_model_to_answers():
    run = torchcaps.load("mnist")
    digits = MNISTMini().load("test")
    answers = run.predict(digits.images[:20, 0].numpy())
    assert [answer.label for answer in answers] == [str(int(label)) for label in digits.labels[:20]]
    assert all(0.5 < answer.score <= 1 for answer in answers)
    assert run.classes == tuple("0123456789")
    assert run.recipe is None
    assert "capsnet-deep" in repr(run)


def test_a_dataset_of_torch_is_trained_on(run):
    assert run.classes == CLASSES
    assert run.task.image_shape == (1, 12, 12)
    assert run.recipe.training.epochs == 3
    result = run.evaluate()
    assert result["images"] == 13
    assert result["accuracy"] == 1
    assert result["trained_on"] == 0
    assert result["per_class"]["left"] == {"precision": 1, "recall": 1, "f1": 1, "count": 4, "answered": 4}
    assert result["confusion_matrix"] == [[4, 0, 0], [0, 5, 0], [0, 0, 4]]
    assert json.loads((run.folder / "evaluation.json").read_text()) == result


def test_everything_that_is_an_image_is_answered_alike(run, tmp_path):
    images, labels = make_images(6, seed=1)
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    files = [tmp_path / f"{number}.png" for number in range(6)]
    asked = {
        "array": images,
        "array with channels": images[..., None],
        "float array": images / 255,
        "tensor": torch.from_numpy(images)[:, None],
        "float tensor": torch.from_numpy(images)[:, None].float() / 255,
        "list of arrays": list(images),
        "pillow": [Image.open(file) for file in files],
        "paths": files,
        "names": [str(file) for file in files],
        "some of each": [images[0], files[1], Image.open(files[2]), *images[3:]],
    }
    expected = [CLASSES[label] for label in labels]
    scores = [answer.scores for answer in run.predict(images)]
    for name, inputs in asked.items():
        answers = run.predict(inputs)
        assert [answer.label for answer in answers] == expected, name
        assert [answer.scores for answer in answers] == [pytest.approx(row, abs=1e-5) for row in scores], name
    assert run.predict(images[0])[0].item == "image 1"
    assert run.predict(str(files[0]))[0].item == str(files[0])
    assert run.predict([]) == []


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (np.zeros((2, 9, 9), np.uint8), "trained for images of"),
        (np.zeros((2, 12, 12)) - 1, "0 … 1"),
        (np.zeros((2, 12, 12), np.int64), "uint8"),
        (np.zeros(3), "shape"),
        (3, "array"),
        ("nowhere.png", "cannot be read"),
        ([None], "array"),
    ],
)
def test_what_is_no_image_is_refused_with_a_sentence(run, inputs, words):
    with pytest.raises(TorchcapsError, match=words):
        run.predict(inputs)


def test_other_data_is_measured_as_a_whole(run):
    images, labels = make_images(30, seed=2)
    assert run.evaluate((images, labels))["images"] == 30
    assert run.evaluate((images, [CLASSES[label] for label in labels]))["accuracy"] == 1
    with pytest.raises(TorchcapsError, match="no class"):
        run.evaluate((images, ["up"] * 30))
    with pytest.raises(TorchcapsError, match="trained for"):
        run.evaluate("mnist-mini")
    with pytest.raises(TorchcapsError, match="texts"):
        run.evaluate("mr-mini")


def test_a_run_is_opened_again(run):
    again = torchcaps.load(run.folder)
    images, _ = make_images(6)
    assert again.predict(images) == run.predict(images)
    assert again.recipe == run.recipe
    with pytest.raises(TorchcapsError, match="in memory, which is not kept"):
        again.evaluate()
    alone = torchcaps.load(run.folder / "weights.safetensors")
    assert alone.predict(images) == run.predict(images)
    with pytest.raises(RunError, match="does not say"):
        alone.evaluate()
    with pytest.raises(RunError, match="does not say"):
        alone.train_more(1)


def test_opening_a_run_draws_no_random_numbers(run):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torchcaps.load(run.folder)
    assert torch.rand(3).equal(expected)


def test_a_run_is_saved_and_opened(run, tmp_path):
    run.save(tmp_path / "copy")
    copy = torchcaps.load(tmp_path / "copy")
    images, _ = make_images(6)
    assert copy.predict(images) == run.predict(images)
    assert copy.recipe == run.recipe
    with pytest.raises(RunError, match="not empty"):
        run.save(tmp_path / "copy")
    torchcaps.load("mnist").save(tmp_path / "digits")
    assert torchcaps.load(tmp_path / "digits").classes == tuple("0123456789")


def test_training_goes_on_from_the_weights(run, tmp_path):
    more = run.train_more(2, tmp_path / "more")
    assert more.recipe.training.epochs == 2
    assert more.recipe.training.first_epoch == 3
    assert more.evaluate()["accuracy"] == 1
    before, after = (next(each.model.parameters()) for each in (run, more))
    assert not before.equal(after)
    assert float((before - after).detach().norm() / before.detach().norm()) < 0.5
    again = run.train_more(2, tmp_path / "again")
    for first, second in zip(more.model.parameters(), again.model.parameters(), strict=True):
        assert first.equal(second)
    third = more.train_more(1, tmp_path / "third")
    assert third.recipe.training.first_epoch == 5
    with pytest.raises(TorchcapsError, match="epochs"):
        run.train_more(0, tmp_path / "none")


def test_test_data_of_ones_own_leaves_all_else_to_training(tmp_path):
    train, test = make_images(30), make_images(12, seed=3)
    run = torchcaps.fit(train, "cnn-small", 1, test=test, overrides={**QUICK_CNN}, folder=tmp_path / "run")
    assert run.evaluate()["images"] == 12
    assert run.evaluate(split="train")["images"] == 30
    assert run.spec.name == "cnn-small"


QUICK_CNN = {"training.batch_size": 6, "data.validation": 0, "data.shift": 0, "loss.kind": "cross-entropy"}


def test_texts_are_trained_on_and_asked_about(tmp_path):
    texts = [f"a {word} film number {n}" for n in range(30) for word in ("good", "bad")]
    labels = ["yes" if "good" in text else "no" for text in texts]
    overrides = {
        "model.options": {"filters": 8, "types": 4, "pose": 4, "dropout": 0.0},
        "text.vector_size": 8,
        "optimizer.lr": 0.03,
        "training.batch_size": 8,
    }
    run = torchcaps.fit((texts, labels), epochs=15, overrides=overrides, folder=tmp_path / "run")
    assert run.task.kind == "texts"
    assert run.recipe.model.name == "text-capsnet-a"
    assert run.evaluate()["accuracy"] > 0.9
    assert [answer.label for answer in run.predict(["a good film", "a bad film"])] == ["yes", "no"]
    assert run.predict("good")[0].item == "good"
    for wrong in (3, [3], np.zeros((2, 12, 12)), None):
        with pytest.raises(RunError, match="reads words"):
            run.predict(wrong)
    run.save(tmp_path / "copy")
    assert torchcaps.load(tmp_path / "copy").predict("good") == run.predict("good")
    more = torchcaps.load(run.folder)
    with pytest.raises(TorchcapsError, match="in memory"):
        more.train_more(1, tmp_path / "more")
    assert run.train_more(1, tmp_path / "more").evaluate()["texts"] == run.evaluate()["texts"] == 8


def test_a_path_is_trained_on_as_the_command_does(tmp_path):
    images, labels = make_images(30)
    np.savez(tmp_path / "own.npz", x=images, y=labels)
    run = torchcaps.fit(tmp_path / "own.npz", epochs=1, overrides=QUICK, folder=tmp_path / "run")
    assert run.recipe.data.name == str(tmp_path / "own.npz")
    assert torchcaps.load(run.folder).evaluate()["images"] == 6
    with pytest.raises(TorchcapsError, match="test"):
        torchcaps.fit(tmp_path / "own.npz", test=(images, labels))
    with pytest.raises(TorchcapsError, match="Did you mean 'mnist"):
        torchcaps.fit("mnst")
    with pytest.raises(TorchcapsError, match="Did you mean 'capsnet"):
        torchcaps.fit((images, labels), "capsnt", folder=tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("name", ["nowhere", "mnst", "runs/none-1"])
def test_what_is_not_there_cannot_be_opened(name):
    with pytest.raises(RunError, match="Shipped models: mnist"):
        torchcaps.load(name)
