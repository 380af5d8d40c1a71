"""Training that begins with the weights of another model: other classes, other words, other sizes."""

import json

import numpy as np
import pytest
import torch

import torchcaps
from torchcaps import list_models
from torchcaps.cli import main
from torchcaps.data.record import read_record
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import TorchcapsError
from torchcaps.models.registry import input_kind
from torchcaps.training.errors import RunError
from torchcaps.training.runs import read_run_recipe
from torchcaps.training.specs import ModelSpec
from torchcaps.training.starting import Start, name_folder, recipe_from_start
from torchcaps.training.tasks import ImageTask, TextTask

QUICK = {
    "training.batch_size": 6, "data.shift": 0, "training.threads": 1, "optimizer.schedule": "constant",
    "optimizer.lr": 1e-12,
}  # fmt: skip
TEXTS = {
    "training.batch_size": 8, "text.vector_size": 4, "optimizer.lr": 1e-12,
    "model.options": {"filters": 4, "types": 2, "pose": 2, "dropout": 0.0}, "training.keep": "last",
}  # fmt: skip
"""With so small a learning rate the weights stay where they began, as far as a test can see."""


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def make_images(names, count=20, side=12, seed=0, channels=None):
    generator = np.random.default_rng(seed)
    shape = (len(names) * count, side, side) + (() if channels is None else (channels,))
    return generator.integers(0, 255, shape, dtype=np.uint8), np.array(names * count)


def make_spec(name, classes, words=(), **options):
    if input_kind(name) == "words":
        vocabulary = Vocabulary(tuple(words))
        return ModelSpec(name, TextTask(classes, len(vocabulary), 6, 50, vocabulary=vocabulary), options)
    return ModelSpec(name, ImageTask(classes, (1, 28, 28)), options)


def weights_of(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A run on images of three classes."""
    folder = tmp_path_factory.mktemp("parent") / "run"
    return torchcaps.fit(make_images(["a", "b", "c"]), epochs=1, overrides=QUICK, folder=folder)


@pytest.fixture(scope="module")
def text_parent(tmp_path_factory):
    """A run on texts of two classes."""
    texts = [f"a {word} film number{n % 3}" for n in range(12) for word in ("good", "bad")]
    labels = ["yes" if "good" in text else "no" for text in texts]
    folder = tmp_path_factory.mktemp("texts") / "run"
    return torchcaps.fit((texts, labels), epochs=1, overrides=TEXTS, folder=folder)


@pytest.mark.parametrize("name", list_models())
def test_of_every_model_the_classes_and_words_that_both_know_keep_theirs(name):
    """What a class scores does not depend on its place, where all of its weights were taken."""
    old, new = make_spec(name, ("a", "b", "c"), ("x", "y")), make_spec(name, ("c", "d", "a", "e"), ("z", "y"))
    torch.manual_seed(0)
    trained, model = old.build(), new.build()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    said = Start("it", old, trained.state_dict()).give(model, new)
    after, given = model.state_dict(), trained.state_dict()
    assert set(after) == set(before)
    for key, tensor in after.items():
        if key.endswith("class_capsules.weight"):
            dim = tensor.dim() - 3  # the last are the sizes of the poses
            for place, other in ((0, 2), (2, 0)):
                assert torch.equal(tensor.select(dim, place), given[key].select(dim, other)), key
            for place in (1, 3):
                assert torch.equal(tensor.select(dim, place), before[key].select(dim, place)), key
        elif key == "words.table.weight":
            assert torch.equal(tensor[[0, 1, 3]], given[key][[0, 1, 3]])
            assert torch.equal(tensor[2], before[key][2])
        elif "of the 4 classes" not in said and "begun anew" not in said:
            assert torch.equal(tensor, given[key]), key
    assert "classes keep theirs" in said or "begun anew" in said


def test_the_same_classes_in_another_order_keep_their_answers():
    old, new = make_spec("capsnet-small", ("a", "b", "c")), make_spec("capsnet-small", ("c", "a", "b"))
    trained, model = old.build().eval(), new.build().eval()
    said = Start("it", old, trained.state_dict()).give(model, new)
    assert "3 of the 3 classes keep theirs" in said
    images = torch.rand(4, 1, 28, 28)
    with torch.no_grad():
        then, now = trained(images), model(images)
    torch.testing.assert_close(now.scores, then.scores[:, [2, 0, 1]])
    torch.testing.assert_close(now.reconstruction, then.reconstruction)


def test_a_width_that_follows_the_classes_is_begun_anew():
    old, new = make_spec("cnn-matched", ("a", "b")), make_spec("cnn-matched", ("a", "b", "c", "d"))
    said = Start("it", old, old.build().state_dict()).give(new.build(), new)
    assert "begun anew: " in said
    again = make_spec("cnn-matched", ("a", "b"))
    assert "begun anew" not in Start("it", old, old.build().state_dict()).give(again.build(), again)
    other = make_spec("cnn-matched", ("c", "d"))  # as many, but others
    assert "begun anew: " in Start("it", old, old.build().state_dict()).give(other.build(), other)


def test_what_has_nothing_in_common_is_refused():
    old, new = make_spec("capsnet-small", ("a", "b")), make_spec("text-cnn", ("a", "b"), ("x",))
    with pytest.raises(RunError, match="none of the weights"):
        Start("it", make_spec("cnn-small", ("a", "b")), {}).give(old.build(), old)
    assert new.task.axes()[1].names == ("", " ", "x")


def test_training_begins_with_the_weights_of_a_run_on_other_classes(parent, tmp_path):
    said = []
    data = make_images(["b", "new", "a"], seed=1)
    seed = {"training.seed": 9}  # which draws other first weights
    run = torchcaps.fit(
        data, epochs=1, start_from=parent.folder, overrides=seed, folder=tmp_path / "run", say=said.append
    )
    assert run.recipe.model.name == "capsnet-small"
    assert run.recipe.optimizer.schedule == "constant", "by the recipe of the parent"
    assert any("Begins with the weights of" in line and "2 of the 3 classes keep theirs" in line for line in said)
    then, now = weights_of(parent), weights_of(run)
    torch.testing.assert_close(now["stem.1.weight"], then["stem.1.weight"], rtol=0, atol=1e-7)
    old, new = then["class_capsules.weight"], now["class_capsules.weight"]  # a b c; a b new
    torch.testing.assert_close(new[:, :2], old[:, :2], rtol=0, atol=1e-7)
    assert not torch.allclose(new[:, 2], old[:, 2])
    assert run.classes == ("a", "b", "new")


@pytest.mark.parametrize("source", ["run", "folder", "weights", "pretrained"])
def test_all_that_can_be_opened_can_be_begun_with(parent, tmp_path, source):
    given = {"run": parent, "folder": str(parent.folder), "weights": parent.folder / "weights.safetensors"}
    side = 28 if source == "pretrained" else 12
    data = make_images(["0", "7"], side=side)
    run = torchcaps.fit(data, epochs=1, start_from=given.get(source, "mnist"), overrides=QUICK, folder=tmp_path / "run")
    assert run.recipe.model.name == ("capsnet-deep" if source == "pretrained" else "capsnet-small")


def test_options_that_are_given_win(parent, tmp_path):
    start = parent.as_start()
    recipe = recipe_from_start(start, "quickstart", {"model.options.decoder": False, "training.epochs": 2})
    assert recipe.model.options["decoder"] is False
    assert recipe.optimizer.schedule == "one-cycle", "of the recipe that was named"
    assert recipe_from_start(start, None, {"model.name": "cnn-small"}).model.options == {}
    assert recipe_from_start(start).training.first_epoch == 0
    assert name_folder("quickstart", recipe) == "quickstart"
    assert name_folder(None, recipe_from_start(start), start) == "run-more"


@pytest.mark.parametrize(("side", "said"), [(24, "brought to 12×12"), (12, None)])
def test_images_are_brought_to_the_size_of_the_model(parent, tmp_path, side, said):
    lines = []
    data = make_images(["a", "b"], side=side)
    run = torchcaps.fit(data, epochs=1, start_from=parent, folder=tmp_path / "run", say=lines.append)
    assert run.task.input_shape == (1, 12, 12)
    assert any(said in line for line in lines) if said else not any("brought" in line for line in lines)
    assert run.evaluate()["images"] > 0
    assert read_run_recipe(run.folder).data.resize == (12 if said else None)
    assert run.predict(data[0][:1])[0].label in ("a", "b")


def test_images_that_cannot_be_brought_to_it_are_told(parent, tmp_path):
    lines = []
    data = make_images(["a", "b"], channels=3)
    run = torchcaps.fit(data, epochs=1, start_from=parent, folder=tmp_path / "run", say=lines.append)
    assert run.task.input_shape == (3, 12, 12)
    assert any("Images are 3×12×12 here" in line for line in lines)
    assert any("begun anew: stem.1.weight" in line for line in lines)
    lines.clear()
    asked = {"data.resize": 20}
    run = torchcaps.fit(data, epochs=1, start_from=parent, overrides=asked, folder=tmp_path / "asked", say=lines.append)
    assert run.task.input_shape == (3, 20, 20), "what is asked for stays"


def test_a_folder_gets_the_size_of_the_model(parent, tmp_path, monkeypatch, capsys):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    images, labels = make_images(["a", "z"], count=12, side=30)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        (tmp_path / "photos" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "photos" / label / f"{number}.png")
    assert call("train", "--from", parent.folder, "--data.name", "photos/", "--epochs", 1, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["run"] == "runs/photos-1"
    assert read_run_recipe("runs/photos-1").data.options == {"image_size": 12}
    assert call("train", "--from", parent.folder, "--data.name", "photos/", "--print-config") == 0
    assert "image_size: 12" in capsys.readouterr().out
    assert call("train", "--from", "nowhere") == 2
    assert "nowhere is not a run folder" in capsys.readouterr().err
    assert call("train", "--from", parent.folder, "--model.name", "text-cnn", "--data.name", "photos/") == 2
    assert "reads words" in capsys.readouterr().err
    assert call("train", "--from", parent.folder) == 2
    assert "in memory, which is not kept" in capsys.readouterr().err


def test_words_that_both_know_keep_their_vectors(text_parent, tmp_path):
    texts = [f"a {word} book of number{n % 3}" for n in range(12) for word in ("good", "dull")]
    labels = ["yes" if "good" in text else "so-so" for text in texts]
    said = []
    run = torchcaps.fit(
        (texts, labels), epochs=1, start_from=text_parent, overrides={"training.keep": "last"},
        folder=tmp_path / "run", say=said.append,
    )  # fmt: skip
    old, new = text_parent.task.known_words, run.task.known_words
    both = set(old.words) & set(new.words)
    assert {"a", "good"} <= both < set(new.words)
    sentence = f"1 of the 2 classes keep theirs; {len(both)} of the {len(new.words)} words keep theirs"
    assert any(sentence in line for line in said)
    then, now = (weights_of(each)["words.table.weight"] for each in (text_parent, run))
    for word in both:
        torch.testing.assert_close(now[new.token_ids[word]], then[old.token_ids[word]], rtol=0, atol=1e-7)
    assert run.task.vector_size == 4
    with pytest.raises(TorchcapsError, match="has images, but the model text-capsnet-a reads words"):
        torchcaps.fit(make_images(["a", "b"]), start_from=text_parent, folder=tmp_path / "wrong")


def test_what_the_parent_was_trained_on_counts_as_trained(tmp_path):
    images, labels = make_images(["a", "b"], count=30)
    trained = torchcaps.fit(
        (images[:40], labels[:40]), test=(images[40:], labels[40:]), epochs=1, overrides=QUICK, folder=tmp_path / "old"
    )
    said = []
    run = torchcaps.fit(
        (images[40:], labels[40:]), test=(images[30:40], labels[30:40]), epochs=1, start_from=trained,
        folder=tmp_path / "new", say=said.append,
    )  # fmt: skip
    assert any("10 of the 10 test images were trained on by the weights to begin with" in line for line in said)
    assert run.evaluate()["trained_on"] == 10
    record = read_record(run.folder)
    assert len(record.before) == 40
    assert len(record.rows) == 30
    record.write(tmp_path)
    assert read_record(tmp_path) == record
    more = run.train_more(1, tmp_path / "more")
    assert more.evaluate()["trained_on"] == 10, "from one run to the next"


def test_the_same_data_keeps_its_split(tmp_path):
    images, labels = make_images(["a", "b"])
    np.savez(tmp_path / "own.npz", x=images, y=labels)
    first = torchcaps.fit(tmp_path / "own.npz", epochs=1, overrides=QUICK, folder=tmp_path / "first")
    seed = {"training.seed": 5}
    second = torchcaps.fit(tmp_path / "own.npz", epochs=1, start_from=first, overrides=seed, folder=tmp_path / "second")
    assert read_record(second.folder).rows == read_record(first.folder).rows
    alone = torchcaps.fit(tmp_path / "own.npz", epochs=1, overrides=QUICK | seed, folder=tmp_path / "alone")
    assert read_record(alone.folder).rows != read_record(first.folder).rows


def test_a_run_that_began_with_others_weights_resumes_exactly(parent, tmp_path, monkeypatch):
    from torchcaps.training import checkpoints, fit

    images, labels = make_images(["a", "b"])
    np.savez(tmp_path / "own.npz", x=images, y=labels)
    overrides = {"optimizer.lr": 1e-3, "data.name": str(tmp_path / "own.npz"), "training.epochs": 2}
    start = parent.as_start()
    recipe = recipe_from_start(start, None, overrides)
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    fit.train(recipe, tmp_path / "whole", start=start)
    original = checkpoints.Checkpoints.on_train_epoch_end

    def crash(self, trainer, module):
        original(self, trainer, module)
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.Checkpoints, "on_train_epoch_end", crash)
        with pytest.raises(RuntimeError, match="crash"):
            fit.train(recipe, tmp_path / "broken", start=start)
    fit.train(read_run_recipe(tmp_path / "broken"), tmp_path / "broken", resume=True)
    whole, broken = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "broken"))
    assert whole == broken


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("photos/", "photos"), ("a b/c!d", "c-d"), ("reviews.csv", "reviews"), ("photos.v2", "photos.v2"),
        ("mnist-mini", "quickstart"), ("multi-mnist", "multi-mnist"), ("in-memory", "quickstart"), (".", "here"),
    ],
)  # fmt: skip
def test_runs_are_named_after_their_data(tmp_path, monkeypatch, data, name):
    here = tmp_path / "here"
    for folder in ("photos", "a b/c!d", "photos.v2"):
        (here / folder).mkdir(parents=True)
    (here / "reviews.csv").write_text("text,label\n")
    monkeypatch.chdir(here)
    from torchcaps.training.recipe import Recipe

    recipe = Recipe()
    recipe.data.name = data
    assert name_folder("quickstart", recipe) == name


def test_a_recipe_on_its_own_data_names_its_runs(tmp_path):
    from torchcaps.training.recipes import recipe_from_file

    (tmp_path / "photos").mkdir()
    (tmp_path / "mine.yaml").write_text(f"data: {{name: {tmp_path / 'photos'}}}\n")
    path = str(tmp_path / "mine.yaml")
    assert name_folder(path, recipe_from_file(path)) == "mine"
