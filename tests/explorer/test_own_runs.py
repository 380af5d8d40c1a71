"""The explorer with models of one's own, and inside another app."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from asking import ask, info, noise, packed, refusal, unpacked, untrained_run
from fastapi import FastAPI
from fastapi.testclient import TestClient

from torchcaps.data.dataset import Files
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import Preparation
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.explorer import create_app
from torchcaps.training.errors import RunError
from torchcaps.training.runs import load_model, save_weights
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import TextTask


def exploring(*runs, **options):
    return TestClient(create_app(runs, pretrained=False, **options), raise_server_exceptions=False)


def own_data(folder, channels=1, classes=3, side=12):
    """An .npz with the classes "0", "1", …, whose test images are known."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (10 * classes, side, side, channels), dtype=np.uint8)
    np.savez(folder / "own.npz", x=images, y=np.arange(10 * classes) % classes)
    return folder / "own.npz"


def test_runs_come_before_the_shipped_models(tmp_path):
    first, second = untrained_run(tmp_path / "first"), untrained_run(tmp_path / "second")
    client = TestClient(create_app([first, str(second)]))
    models = client.get("/api/models").json()["models"]
    assert [model["id"] for model in models] == ["run-first", "run-second", "mnist", "fashion-mnist", "multi-mnist"]
    assert models[0]["title"].startswith("first")
    assert models[1]["title"].startswith("second")
    assert models[0]["card"] is None


def test_runs_of_one_name_have_addresses_of_their_own(tmp_path):
    same = [untrained_run(tmp_path / parent / "Mein Lauf!") for parent in ("a", "b")]
    client = TestClient(create_app(same, pretrained=False))
    assert [model["id"] for model in client.get("/api/models").json()["models"]] == ["run-mein-lauf", "run-mein-lauf-2"]


def test_a_run_has_its_own_classes_shape_and_answers(tmp_path):
    run = untrained_run(tmp_path / "run")
    client = exploring(run)
    about = info(client, "run-run")
    assert about["classes"] == ["ant", "bee", "cow"]
    assert about["picture"] == {"channels": 1, "height": 12, "width": 12}
    look = ask(client, "run-run", "look", pixels=noise(client, "run-run"))
    assert len(look["lengths"]) == len(look["poses"]) == 3
    assert len(ask(client, "run-run", "routing", pixels=noise(client, "run-run"))["steps"]) == about["iterations"]


def test_a_run_on_digits_offers_test_digits(tmp_path):
    names = tuple(map(str, range(10)))
    client = exploring(untrained_run(tmp_path / "run", shape=(1, 28, 28), classes=names))
    about, samples = info(client, "run-run"), client.get("/api/models/run-run/samples").json()["samples"]
    assert about["title"] == "run (mnist-mini)"
    assert about["digits"]
    assert about["samples"] == len(samples) == 60
    data = make_image_dataset(DataOptions(name="mnist-mini")).load("test")
    known = {image.numpy().tobytes(): int(label) for image, label in zip(data.images, data.labels, strict=True)}
    for sample in samples:
        levels = unpacked(sample["pixels"], about["picture"]).astype(np.uint8)
        assert sample["labels"] == [known[levels.tobytes()]]
    again = exploring(tmp_path / "run").get("/api/models/run-run/samples").json()["samples"]
    assert again == samples, "the same ones at every start"


def test_a_run_on_two_digits_offers_their_parts(tmp_path):
    names, options = tuple(map(str, range(10))), {"objects": 2}
    run = untrained_run(tmp_path / "run", shape=(1, 36, 36), classes=names, options=options, data="multi-mnist")
    client = exploring(run)
    assert info(client, "run-run")["objects"] == 2
    sample = client.get("/api/models/run-run/samples").json()["samples"][0]
    assert (len(sample["labels"]), len(sample["parts"])) == (2, 2)
    assert len(ask(client, "run-run", "look", pixels=sample["pixels"])["drawings"]) == 2


def test_colours_arrive_as_they_were_sent(tmp_path):
    data = own_data(tmp_path, channels=3)
    run = untrained_run(tmp_path / "run", shape=(3, 12, 12), classes=("0", "1", "2"), data=data)
    client = exploring(run)
    about, sample = info(client, "run-run"), client.get("/api/models/run-run/samples").json()["samples"][0]
    assert about["picture"]["channels"] == 3
    images = make_image_dataset(DataOptions(name=str(data))).load("test", Files(counted=True)).images
    picture = unpacked(sample["pixels"], about["picture"])
    assert any((picture == image.numpy()).all() for image in images)
    model, _ = load_model(run)
    with torch.inference_mode():
        output = model(torch.from_numpy(picture)[None].float() / 255)
    look = ask(client, "run-run", "look", pixels=sample["pixels"])
    assert look["lengths"] == pytest.approx(output.scores[0].tolist(), abs=1e-4)
    drawn = unpacked(look["drawings"][0]["pixels"], about["drawing"])
    assert np.abs(drawn - 255 * output.reconstruction[0].numpy()).max() <= 1


def test_matrix_capsules_route_but_do_not_draw(tmp_path):
    client = exploring(untrained_run(tmp_path / "run", name="matrix-capsnet-small"))
    about, pixels = info(client, "run-run"), noise(client, "run-run")
    assert (about["decodes"], about["pose_size"], about["routing"]) == (False, 16, "em")
    look = ask(client, "run-run", "look", pixels=pixels)
    assert look["drawings"] == []
    assert [len(pose) for pose in look["poses"]] == [16, 16, 16]
    assert len(look["found"]) == 1
    decode = client.post("/api/models/run-run/decode", json={"label": 0, "pose": [0] * 16})
    assert "has no decoder" in refusal(decode, 422)
    routing = ask(client, "run-run", "routing", pixels=pixels)
    assert len(routing["steps"]) == about["iterations"]
    assert routing["steps"][0]["entropy"] == pytest.approx(math.log(3), abs=1e-5)
    assert routing["steps"][-1]["lengths"] == pytest.approx(look["lengths"], abs=2e-4)
    for step in routing["steps"]:
        assert np.array(step["coupling"]).sum(axis=1) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("preparation", "side"),
    [
        (Preparation(resize=14), 14),
        (Preparation(standardize=True), 20),
        (Preparation(crop=12), 12),
        (Preparation(resize=16, standardize=True, crop=12, crops=13), 12),
    ],
)
def test_a_model_sees_a_picture_prepared_as_in_training(tmp_path, preparation, side):
    data = own_data(tmp_path, side=20)
    classes = ("0", "1", "2")
    run = untrained_run(tmp_path / "run", shape=(1, 20, 20), classes=classes, data=data, preparation=preparation)
    client = exploring(run)
    about, sample = info(client, "run-run"), client.get("/api/models/run-run/samples").json()["samples"][0]
    assert (about["picture"]["width"], about["drawing"]["width"]) == (20, side)
    picture = torch.from_numpy(unpacked(sample["pixels"], about["picture"])).to(torch.uint8)
    central = replace(preparation, crops=1)
    model, _ = load_model(run)
    with torch.inference_mode():
        output = model(central.cut_patches(central.resize_images(picture[None]))[:, 0])
    look = ask(client, "run-run", "look", pixels=sample["pixels"])
    assert look["lengths"] == pytest.approx(output.scores[0].tolist(), abs=1e-4)
    assert unpacked(look["drawings"][0]["pixels"], about["drawing"]).shape == (1, side, side)
    assert ask(client, "run-run", "routing", pixels=sample["pixels"])["parts"]
    black = packed(np.zeros((20, 20)))
    assert ask(client, "run-run", "look", pixels=black)["blank"]


def test_a_weights_file_alone_is_explored_without_samples(tmp_path):
    run = untrained_run(tmp_path / "run")
    (run / "recipe.yaml").unlink()
    (run / "weights.safetensors").rename(tmp_path / "mine.safetensors")
    client = exploring(tmp_path / "mine.safetensors")
    about = info(client, "run-mine")
    assert (about["title"], about["samples"]) == ("mine", 0)
    assert client.get("/api/models/run-mine/samples").json() == {"samples": []}
    assert ask(client, "run-mine", "look", pixels=noise(client, "run-mine"))["found"]


def test_weights_inside_a_run_are_called_as_the_run(tmp_path):
    client = exploring(untrained_run(tmp_path / "mine") / "weights.safetensors")
    assert info(client, "run-mine")["title"] == "mine"


@pytest.mark.parametrize("change", ["gone", "of another size", "of other classes", "no file of arrays"])
def test_without_its_data_a_run_has_no_samples_but_works(tmp_path, change):
    data = own_data(tmp_path)
    run = untrained_run(tmp_path / "run", classes=("0", "1", "2"), data=data)
    assert info(exploring(run), "run-run")["samples"] == 6
    if change == "gone":
        data.unlink()
    elif change == "of another size":
        own_data(tmp_path, side=13)
    elif change == "of other classes":
        own_data(tmp_path, classes=4)
    else:
        data.write_bytes(b"PK nothing")
    client = exploring(run)
    assert info(client, "run-run")["samples"] == 0
    assert ask(client, "run-run", "look", pixels=noise(client, "run-run"))["found"]


def test_the_data_folder_of_the_training_can_be_replaced(tmp_path):
    names = tuple(map(str, range(10)))
    run = untrained_run(tmp_path / "run", shape=(1, 28, 28), classes=names, data="mnist")
    assert info(exploring(run, data_dir=str(tmp_path / "empty")), "run-run")["samples"] == 0


def test_a_model_of_words_is_refused_with_another_way(tmp_path):
    (tmp_path / "words").mkdir()
    words = Vocabulary.from_texts([["good", "bad"]])
    task = TextTask(("bad", "good"), len(words), 8, 20, vocabulary=words)
    spec = ModelSpec("text-cnn", task, {"filters": 4})
    save_weights(tmp_path / "words" / "weights.safetensors", spec.build(), spec)
    task.write_files(tmp_path / "words")
    with pytest.raises(RunError, match=r"reads words; the explorer shows images\..*torchcaps predict"):
        create_app([tmp_path / "words"])


@pytest.mark.parametrize("name", ["cnn-small", "cnn-matched"])
def test_a_model_without_capsules_is_refused(tmp_path, name):
    shape = (1, 28, 28)
    with pytest.raises(RunError, match=f"cannot be explored: {name} has no capsules of images"):
        create_app([untrained_run(tmp_path / "run", name=name, shape=shape)])


@pytest.mark.parametrize("shape", [(2, 12, 12), (1, 300, 12)])
def test_a_model_of_pictures_that_no_page_shows_is_refused(tmp_path, shape):
    with pytest.raises(RunError, match="the explorer shows grey and RGB images of up to 256×256"):
        create_app([untrained_run(tmp_path / "run", shape=shape)])


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not there"):
        create_app([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="it has neither a recipe nor weights"):
        create_app([tmp_path])
    (tmp_path / "weights.safetensors").write_bytes(b"\x80\x04pickled")
    with pytest.raises(RunError, match="is not a safetensors file"):
        create_app([tmp_path])


def test_a_folder_without_a_recipe_is_explored_without_samples(tmp_path):
    """Such as `Run.save` makes of a weights file."""
    run = untrained_run(tmp_path / "run")
    (run / "recipe.yaml").unlink()
    assert info(exploring(run), "run-run")["samples"] == 0


def test_nothing_to_explore_is_refused():
    with pytest.raises(ValueError, match="there is nothing to explore: give runs"):
        create_app(pretrained=False)


def test_weights_that_have_exploded_are_refused(tmp_path):
    run = untrained_run(tmp_path / "run")
    model, spec = load_model(run)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    save_weights(run / "weights.safetensors", model, spec)
    with pytest.raises(RunError, match="not a number"):
        create_app([run])


def test_it_can_be_mounted_in_another_app(explorer):
    parent = FastAPI()
    parent.mount("/capsules", explorer)
    client = TestClient(parent)
    page = client.get("/capsules/")
    assert page.status_code == 200
    assert "<!doctype html>" in page.text
    assert "frame-ancestors" in page.headers["content-security-policy"]
    assert client.get("/capsules").url.path == "/capsules/"
    assert client.get("/capsules/main.js").headers["content-type"].startswith("text/javascript")
    sample = client.get("/capsules/api/models/mnist/samples").json()["samples"][0]
    look = client.post("/capsules/api/models/mnist/look", json={"pixels": sample["pixels"]}).json()
    assert look["found"] == sample["labels"]
    assert client.get("/capsules/nothing").status_code == 404
    assert client.get("/api/models").status_code == 404


def test_it_can_be_started_twice():
    app = create_app()
    pixels = packed(np.zeros((28, 28)))
    for _ in range(2):
        with TestClient(app) as client:
            assert client.post("/api/models/mnist/look", json={"pixels": pixels}).status_code == 200


@pytest.mark.parametrize("routing", ["uniform", {"name": "optimized", "alpha": [1.0, 0.5, 0.25]}])
def test_a_routing_that_cannot_go_on_says_so(tmp_path, routing):
    client = exploring(untrained_run(tmp_path / "run", options={"routing": routing}))
    about, pixels = info(client, "run-run"), noise(client, "run-run")
    assert about["most_iterations"] == about["iterations"]
    assert len(ask(client, "run-run", "routing", pixels=pixels)["steps"]) == about["iterations"]
    answer = client.post("/api/models/run-run/routing", json={"pixels": pixels, "iterations": 10})
    assert "only be routed as it was trained" in refusal(answer, 422)


def test_mounting_leaves_the_threads_of_torch_alone(explorer):
    app = FastAPI()
    app.mount("/capsules", explorer)
    torch.set_num_threads(2)
    client = TestClient(app)
    pixels = noise(TestClient(explorer), "mnist")
    assert client.post("/capsules/api/models/mnist/look", json={"pixels": pixels}).status_code == 200
    assert torch.get_num_threads() == 2
