"""What the explorer's server answers about the shipped models."""

import math

import numpy as np
import pytest
import torch
from asking import ask, info, packed, refusal, unpacked

from torchcaps.analysis.couplings import routing_flow
from torchcaps.explorer.schemas import Look, Models, RoutedPicture, Samples
from torchcaps.pretrained import list_pretrained, pretrained_card, pretrained_samples
from torchcaps.run import load

NAMES = list_pretrained()
EVERY = pytest.mark.parametrize("name", NAMES)


def samples(client, name):
    return client.get(f"/api/models/{name}/samples").json()["samples"]


def as_seen(name, at):
    """A sample as its model is fed it, from the package's files and not through the server."""
    return torch.from_numpy(pretrained_samples(name)["images"][at]).float() / 255


def test_the_list_of_models_is_typed_and_complete(client):
    answer = client.get("/api/models")
    models = Models.model_validate(answer.json(), strict=True).models
    assert [model.id for model in models] == NAMES
    assert len({model.title for model in models}) == len(models)
    for model in models:
        run = load(model.id)
        network, task = run.model, run.task
        assert (model.picture.channels, model.picture.height, model.picture.width) == task.image_shape
        assert model.drawing == model.picture
        assert model.classes == list(task.class_names)
        assert model.parameters == sum(weights.numel() for weights in network.parameters())
        assert model.architecture == run.spec.name
        assert (model.routing, model.iterations) == ("dynamic", network.class_capsules.routing.iterations)
        assert (model.decodes, model.pose_size) == (True, 16)
        assert model.card is not None


def test_two_digits_are_two_objects(client):
    assert [info(client, name)["objects"] for name in NAMES] == [1, 1, 2]
    assert [info(client, name)["digits"] for name in NAMES] == [True, False, True]


@EVERY
def test_a_card_is_the_one_in_the_package(client, name):
    card, whole = info(client, name)["card"], pretrained_card(name)
    assert card == {key: whole[key] for key in card}


@EVERY
def test_samples_have_the_right_sizes_and_labels(client, name):
    about, stored = info(client, name), pretrained_samples(name)
    found = Samples.model_validate(client.get(f"/api/models/{name}/samples").json(), strict=True).samples
    assert len(found) == about["samples"] == len(stored["images"])
    for at, sample in enumerate(found):
        assert (unpacked(sample.pixels, about["picture"]) == stored["images"][at]).all()
        assert sample.labels == stored["labels"][at].tolist()
        assert len(set(sample.labels)) == about["objects"]
        assert all(0 <= label < len(about["classes"]) for label in sample.labels)
        assert len(sample.parts) == (about["objects"] if about["objects"] > 1 else 0)
    assert {sample.labels[0] for sample in found} == set(range(len(about["classes"]))), "every class is shown"


def test_the_parts_of_a_sample_make_the_whole(client):
    shape = info(client, "multi-mnist")["picture"]
    for sample in samples(client, "multi-mnist")[:10]:
        first, second = (unpacked(part, shape) for part in sample["parts"])
        assert (np.minimum(first + second, 255) == unpacked(sample["pixels"], shape)).all()


def test_nearly_all_digits_are_found(client):
    found = [ask(client, "mnist", "look", pixels=one["pixels"])["found"] for one in samples(client, "mnist")]
    right = sum(one == sample["labels"] for one, sample in zip(found, samples(client, "mnist"), strict=True))
    assert len(found) == 60
    assert right >= 58


@EVERY
@pytest.mark.parametrize("at", [0, 17])
def test_a_look_is_what_the_model_says(client, name, at):
    model = load(name).model
    about, sample = info(client, name), samples(client, name)[at]
    look = Look.model_validate(ask(client, name, "look", pixels=sample["pixels"]), strict=True)
    with torch.inference_mode():
        output = model(as_seen(name, at)[None])
    assert np.abs(np.subtract(look.lengths, output.scores[0].numpy())).max() < 1e-4
    assert np.abs(np.subtract(look.poses, output.capsules.pose[0].numpy())).max() < 1e-4
    assert look.found == output.scores[0].topk(about["objects"]).indices.tolist()
    assert [drawing.label for drawing in look.drawings] == look.found
    expected = output.reconstruction[0] if about["objects"] > 1 else output.reconstruction
    for drawing, levels in zip(look.drawings, 255 * expected, strict=True):
        assert np.abs(unpacked(drawing.pixels, about["drawing"]) - levels.numpy()).max() <= 1
    assert not look.blank


@EVERY
def test_a_blank_picture_is_said_to_be_blank(client, name):
    shape = info(client, name)["picture"]
    black = packed(np.zeros((shape["height"], shape["width"])))
    look = ask(client, name, "look", pixels=black)
    assert look["blank"]
    assert np.isfinite([*look["lengths"], *np.ravel(look["poses"])]).all()
    routing = ask(client, name, "routing", pixels=black)
    assert all(np.isfinite([*step["lengths"], step["entropy"], step["agreement"]]).all() for step in routing["steps"])


@EVERY
def test_decoding_the_pose_that_was_seen_gives_the_drawing_that_was_seen(client, name):
    about = info(client, name)
    look = ask(client, name, "look", pixels=samples(client, name)[3]["pixels"])
    for drawing in look["drawings"]:
        again = ask(client, name, "decode", label=drawing["label"], pose=look["poses"][drawing["label"]])
        assert again["label"] == drawing["label"]
        seen, decoded = (unpacked(one["pixels"], about["drawing"]) for one in (drawing, again))
        assert np.abs(seen - decoded).max() <= 1, "poses are sent with four decimals"


def test_a_drawing_moves_when_a_number_of_the_pose_moves(client):
    shape = info(client, "mnist")["drawing"]
    look = ask(client, "mnist", "look", pixels=samples(client, "mnist")[3]["pixels"])
    label = look["found"][0]
    before = unpacked(ask(client, "mnist", "decode", label=label, pose=look["poses"][label])["pixels"], shape)
    for number in range(16):
        pose = list(look["poses"][label])
        pose[number] += 0.25
        after = unpacked(ask(client, "mnist", "decode", label=label, pose=pose)["pixels"], shape)
        assert np.abs(before - after).max() > 10, number


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"label": 10, "pose": [0] * 16}, "classes 0 to 9; got 10"),
        ({"label": 0, "pose": [0] * 15}, "16 numbers; got 15"),
        ({"label": -1, "pose": [0] * 16}, "body.label"),
        ({"label": 0, "pose": [11] + [0] * 15}, "body.pose.0"),
        ({"label": 0, "pose": [0] * 16, "posture": 1}, "body.posture"),
        ({"label": 0}, "body.pose"),
    ],
)
def test_what_decode_refuses(client, request_, said):
    assert said in refusal(client.post("/api/models/mnist/decode", json=request_), 422)


@pytest.mark.parametrize("what", ["look", "routing"])
@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        (packed(np.zeros(783)), "28×28 pixels with 1 byte(s) each, 784 in all; got 783"),
        (packed(np.zeros(785)), "got 785"),
        ("", "got 0"),
        ("AAA", "base64"),
        ("AAAA====", "body.pixels"),
        ("AA AA", "body.pixels"),
        ("AA-_", "body.pixels"),
        ("é", "body.pixels"),
    ],
)
def test_what_is_no_picture_is_refused(client, what, pixels, said):
    assert said in refusal(client.post(f"/api/models/mnist/{what}", json={"pixels": pixels}), 422)


@EVERY
def test_routing_shares_out_every_part_at_every_step(client, name):
    about, sample = info(client, name), samples(client, name)[5]
    routing = RoutedPicture.model_validate(ask(client, name, "routing", pixels=sample["pixels"]))
    assert len(routing.steps) == about["iterations"]
    for step in routing.steps:
        coupling = np.array(step.coupling)
        assert coupling.shape == (len(routing.parts), len(about["classes"]))
        assert np.abs(coupling.sum(axis=1) - 1).max() < 1e-3
        assert coupling.min() >= 0
    assert routing.uniform_entropy == pytest.approx(math.log(len(about["classes"])))
    assert routing.steps[0].entropy == pytest.approx(routing.uniform_entropy, abs=1e-5)
    for part in routing.parts:
        assert 0 <= part.row <= about["picture"]["height"] - 1
        assert 0 <= part.column <= about["picture"]["width"] - 1
        assert 0 <= part.type < routing.types


def test_routing_makes_up_its_mind(client):
    steps = ask(client, "mnist", "routing", pixels=samples(client, "mnist")[5]["pixels"])["steps"]
    assert [step["entropy"] for step in steps] == sorted((step["entropy"] for step in steps), reverse=True)
    assert steps[-1]["entropy"] < steps[0]["entropy"] - 0.01
    assert steps[-1]["agreement"] > steps[0]["agreement"]


@EVERY
def test_routing_ends_with_the_lengths_of_the_look(client, name):
    pixels = samples(client, name)[5]["pixels"]
    last = ask(client, name, "routing", pixels=pixels)["steps"][-1]["lengths"]
    assert last == pytest.approx(ask(client, name, "look", pixels=pixels)["lengths"], abs=2e-4)


@EVERY
def test_routing_is_what_the_analysis_says(client, name):
    flow = routing_flow(load(name).model, as_seen(name, 8))
    routing = ask(client, name, "routing", pixels=samples(client, name)[8]["pixels"])
    steps = routing["steps"]
    assert np.abs(np.array([s["coupling"] for s in steps]) - flow.coupling.flatten(1, 3).numpy()).max() < 1e-4
    assert np.abs(np.array([s["lengths"] for s in steps]) - flow.parent_activation.numpy()).max() < 1e-4
    assert [s["entropy"] for s in steps] == pytest.approx(flow.entropy.tolist(), abs=1e-5)
    assert [s["agreement"] for s in steps] == pytest.approx(flow.agreement.tolist(), abs=1e-5)
    height, width, types = flow.child_activation.shape
    assert routing["types"] == types
    for at, (row, column, kind) in enumerate(np.ndindex(height, width, types)):
        part = routing["parts"][at]
        assert [part["row"], part["column"]] == flow.places[row, column].tolist()
        assert part["type"] == kind
        assert part["activation"] == pytest.approx(float(flow.child_activation[row, column, kind]), abs=1e-4)


@pytest.mark.parametrize("what", ["look", "decode", "routing", "upload"])
def test_an_unknown_model_is_told_with_the_known_ones(client, what):
    body = {"label": 0, "pose": [0]} if what == "decode" else {"pixels": ""}
    said = refusal(client.post(f"/api/models/nobody/{what}", json=body), 404)
    assert "'nobody'" in said
    assert "mnist, fashion-mnist, multi-mnist" in said


def test_the_same_picture_is_seen_alike_by_many_at_once(client):
    from concurrent.futures import ThreadPoolExecutor

    wanted = [one["pixels"] for one in samples(client, "mnist")[:6]]
    alone = [ask(client, "mnist", "look", pixels=pixels) for pixels in wanted]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda pixels: ask(client, "mnist", "look", pixels=pixels), wanted))
    assert together == alone


@EVERY
def test_routing_can_go_on(client, name):
    pixels = samples(client, name)[3]["pixels"]
    trained, longer = (
        ask(client, name, "routing", pixels=pixels, **more)["steps"] for more in ({}, {"iterations": 20})
    )
    assert (len(trained), len(longer), info(client, name)["most_iterations"]) == (3, 20, 20)
    for step, other in zip(trained, longer[:3], strict=True):
        assert step["lengths"] == pytest.approx(other["lengths"], abs=2e-4)
        assert np.array(step["coupling"]) == pytest.approx(np.array(other["coupling"]), abs=2e-4)
    assert longer[-1]["entropy"] < longer[2]["entropy"]
    assert len(ask(client, name, "routing", pixels=pixels, iterations=3)["steps"]) == 3
    assert len(ask(client, name, "routing", pixels=pixels, iterations=1)["steps"]) == 1
    for odd in (0, 21, 1.5, "many"):
        request = {"pixels": pixels, "iterations": odd}
        assert "iterations" in refusal(client.post(f"/api/models/{name}/routing", json=request), 422)


def test_agreement_of_each_class_is_that_of_its_votes(client):
    pixels = samples(client, "mnist")[7]["pixels"]
    model = load("mnist").model
    with torch.inference_mode():
        children = model.primary_capsules(as_seen("mnist", 7)[None])
        votes = model.class_capsules.votes(children)[0]
        trace = model.class_capsules.route(children, trace=True).trace
    for at, step in enumerate(ask(client, "mnist", "routing", pixels=pixels)["steps"]):
        cosines = torch.cosine_similarity(votes, trace.pose[at, 0], dim=-1)  # [I, J]
        weight = trace.coupling[at, 0] * votes.norm(dim=-1)
        expected = (weight * cosines).sum(dim=0) / weight.sum(dim=0)
        assert step["agreements"] == pytest.approx(expected.tolist(), abs=1e-3)
        assert step["agreement"] == pytest.approx(float((weight * cosines).sum() / weight.sum()), abs=1e-3)
