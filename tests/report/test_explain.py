"""Reports of trained models: complete, closed in themselves, and with the numbers that direct calls give."""

import json
import re

import numpy as np
import pytest
import torch
from checked_html import Checked
from PIL import Image

from torchcaps.analysis.answers import answer_images
from torchcaps.analysis.class_effects import ClassEffects
from torchcaps.analysis.couplings import routing_by_layer
from torchcaps.analysis.equivariance import TRANSFORMATIONS, Movement, measure_movements
from torchcaps.analysis.perturbation import Effects, pose_effects
from torchcaps.analysis.reconstruction import mean_image_error
from torchcaps.commands.keys import read_keys
from torchcaps.data.dataset import Files
from torchcaps.data.images import place
from torchcaps.data.randomness import random_integers
from torchcaps.data.registry import make_dataset
from torchcaps.report import reports, routing
from torchcaps.report.dimensions import describe_classes, list_numbers
from torchcaps.report.flow import NEUTRAL, choose_colour, lay_out
from torchcaps.report.movements import describe_movements
from torchcaps.run import load
from torchcaps.training.errors import RunError
from torchcaps.training.fit import train
from torchcaps.training.recipes import recipe_from_file
from torchcaps.training.runs import WEIGHTS, load_model, read_run_recipe, save_weights, write_recipe
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import task_of


def explain_run(run, output=None, data=None, **options):
    return load(run).explain(output, data, **options)


def checked_report(run, output, **options):
    """Make a report and look at all that every report must have."""
    report = explain_run(run, output, **options)
    text = report.page.read_text(encoding="utf-8")
    found = Checked(text)
    assert "http://" not in text
    assert "https://" not in text
    assert "nan" not in found.said.lower()
    assert len(text) < 5e6
    assert json.loads((report.page.parent / "numbers.json").read_text(encoding="utf-8")) == report.numbers
    for file in report.page.parent.glob("pictures/*"):
        with Image.open(file) as picture:
            picture.verify()
    assert not list(report.page.parent.rglob(".*")), "no temporary file is left"
    return report, found, text


def answers_of(run, images=500):
    """The model of a run, and its answers on test images."""
    opened = load(run)
    source = opened.open_data(crops=1 if opened.task.patches > 1 else None).source
    return opened.model, answer_images(opened.model, source, images, 0)


def images_in_classes(path, count=60, shape=(12, 12), classes=3):
    """Drawings of a band on black, which says the class, as .npz."""
    generator = np.random.default_rng(0)
    labels = np.arange(count) % classes
    images = generator.integers(0, 20, (count, *shape), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4, 2:-2] += 190
    np.savez(path, x=images, y=labels)
    return str(path)


def untrained(folder, data, *overrides):
    """A run folder as training leaves it, without the training."""
    recipe = recipe_from_file("quickstart", read_keys([f"--data.name={data}", *overrides]))
    dataset = make_dataset(recipe.data)
    task = task_of(dataset).prepare(recipe, dataset, Files()).task
    spec = ModelSpec(recipe.model.name, task, task.model_options(recipe.model.name, recipe.model.options))
    folder.mkdir()
    write_recipe(folder, recipe)
    torch.manual_seed(1)
    save_weights(folder / WEIGHTS, spec.build(), spec)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return images_in_classes(tmp_path_factory.mktemp("tiny") / "tiny.npz")


@pytest.fixture(scope="module")
def trained_run(tiny, tmp_path_factory):
    """A capsule network with a decoder that has learnt a little."""
    folder = tmp_path_factory.mktemp("report") / "run"
    folder.mkdir()
    words = [f"--data.name={tiny}", "--epochs=2", "--training.batch_size=6", "--data.validation=0.2"]
    train(recipe_from_file("quickstart", read_keys(words)), folder)
    return folder


@pytest.fixture(scope="module")
def whole_report(trained_run, tmp_path_factory):
    return checked_report(trained_run, tmp_path_factory.mktemp("explained"))


def test_a_capsule_network_has_every_section(whole_report):
    report, found, text = whole_report
    assert found.ids == {"reconstructions", "measures", "dimensions", "routing", "movements"}
    assert found.images > 3 * 16
    assert text.count("<details open>") == 1
    assert text.count("<summary>") == 3
    assert "capsnet-small" in text
    names = {path.name for path in report.page.parent.glob("pictures/*.png")}
    expected = {"reconstructions-right-01.png", "dimensions-0.png", "routing-flow-1.png", "routing-gradients.png"}
    assert expected | {"movements-rotate.png", "movements-rotate-images.png"} <= names


def test_the_numbers_are_those_of_direct_calls(trained_run, whole_report):
    numbers = whole_report[0].numbers
    model, subject = answers_of(trained_run)
    batch = subject.batch
    assert numbers["accuracy"] == load(trained_run).evaluate()["accuracy"]
    assert numbers["images"] == numbers["test_images"] == len(subject.indices)
    drawn = model.decoder(subject.capsules, subject.predictions[:, 0])
    error = float((drawn - batch.targets).square().mean().detach())
    assert numbers["reconstructions"]["error_per_pixel"] == pytest.approx(error, rel=1e-4)
    layer = routing_by_layer(model, batch.inputs)[-1]
    assert numbers["routing"]["layers"][-1]["entropy"] == pytest.approx(layer.entropy.tolist(), rel=1e-4)
    moved = measure_movements(model, batch.inputs, batch.labels, ["rotate"])[0]
    shown = next(kind for kind in numbers["movements"]["kinds"] if kind["kind"] == "rotate")
    assert shown["activation"] == pytest.approx(moved.activation.tolist(), rel=1e-4)
    of_class = (subject.labels[:, 0] == 0) & (subject.right if subject.right[subject.labels[:, 0] == 0].any() else True)
    effects = pose_effects(model.decoder, subject.capsules.pose[of_class], subject.labels[of_class, 0])
    change = numbers["dimensions"]["classes"]["0"]["change"]
    assert np.array(change) == pytest.approx(effects.change.numpy(), abs=1e-3)


def test_effects_are_measured_by_images_shifted_as_in_training(trained_run, whole_report):
    numbers = whole_report[0].numbers["dimensions"]["classes"]["1"]
    model, subject = answers_of(trained_run)
    recipe = read_run_recipe(trained_run)
    label, shift = subject.labels[:, 0], recipe.data.shift
    copies = subject.batch.targets[label == 1].repeat(4, 1, 1, 1)
    offsets = random_integers(0, torch.arange(len(copies)), 2, 2 * shift + 1) - shift
    shown = (label == 1) & subject.right if (subject.right & (label == 1)).any() else label == 1
    for natural, same in ((place(copies, offsets, copies.shape[-2:]), True), (copies, False)):
        effects = pose_effects(model.decoder, subject.capsules.pose[shown], label[shown], natural.mean(dim=1))
        assert (np.array(numbers["effect"]) == pytest.approx(effects.effect.numpy(), rel=1e-3, abs=1e-4)) == same
    assert shift == 2


def test_what_a_grey_decoder_draws_has_a_known_error(tiny, tmp_path):
    """Without weights in its last layer a decoder draws 0.5 everywhere."""
    run = untrained(tmp_path / "run", tiny)
    grey_decoder(run)
    report, _, text = checked_report(run, tmp_path / "out")
    images = answers_of(run)[1].batch.targets.double()
    numbers = report.numbers["reconstructions"]
    expected = float(((images - 0.5) ** 2).mean())
    assert numbers["error_per_pixel"] == pytest.approx(expected, rel=1e-5)
    others = [float(((image - (images.sum(0) - image) / 11) ** 2).mean()) for image in images]
    assert numbers["error_of_mean_image"] == pytest.approx(sum(others) / 12, rel=1e-5)
    assert set(report.numbers["dimensions"]["classes_with_a_clear_effect"]) == {0}
    assert "No pose number has a clear effect; measured: all 3 classes." in text


def grey_decoder(run):
    model, spec = load_model(run)
    last = [module for module in model.decoder.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.zero_()
    save_weights(run / WEIGHTS, model, spec)


@pytest.mark.parametrize("count", [2, 5])
def test_the_mean_of_the_others_is_without_the_image_itself(count):
    images = torch.rand(count, 1, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = [(image - torch.cat([images[:n], images[n + 1 :]]).mean(dim=0)).square().mean()
              for n, image in enumerate(images)]  # fmt: skip
    assert mean_image_error(images) == pytest.approx(float(sum(errors)) / count)
    assert mean_image_error(images[:1]) is None


def test_clear_effects_are_counted_over_classes():
    """Two pose numbers, two properties: the first number is clear in both classes, but for one property in one only."""

    def of_class(name, effect, agreement):
        given = dict.fromkeys(Effects._fields, torch.zeros(2))
        given |= {"names": ("thickness", "slant"), "change": torch.zeros(2, 2), "spread": torch.zeros(2, 2)}
        effects = Effects(**given | {"effect": torch.tensor(effect), "agreement": torch.tensor(agreement)})
        return ClassEffects(0, name, 0, effects, 4)

    first = of_class("a", [[0.6, 2.0], [0.4, 0.0]], [[1.0, 0.9], [1.0, 0.0]])
    second = of_class("b", [[-0.8, 1.0], [3.0, 0.0]], [[0.75, 0.5], [0.7, 0.0]])
    numbers = list_numbers([first, second])
    assert numbers["classes_with_a_clear_effect"] == [2, 0]
    assert np.array(numbers["mean_effect"]) == pytest.approx(np.array([[0.7, 1.5], [1.7, 0.0]]))


def test_the_random_numbers_of_the_caller_are_left_alone(trained_run, tmp_path):
    before = torch.get_rng_state()
    explain_run(trained_run, tmp_path, images=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_again_is_the_same_and_other_files_are_left_alone(trained_run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    first = explain_run(trained_run, tmp_path, images=5, seed=3)
    content = first.page.read_bytes()
    assert explain_run(trained_run, tmp_path, images=5, seed=3).page.read_bytes() == content
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert first.numbers["images"] == 5


def test_pictures_of_an_earlier_report_are_taken_away(trained_run, tmp_path):
    folder = tmp_path / "pictures"
    explain_run(trained_run, tmp_path)
    (folder / "mine.png").write_text("mine")
    (tmp_path / "outside.png").write_text("mine")
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    written = set(numbers["pictures"])
    assert {path.name for path in folder.iterdir()} == written | {"mine.png"}
    numbers["pictures"] += ["../outside.png", "stale.png", 3]
    (folder / "stale.png").write_text("from before")
    (tmp_path / "numbers.json").write_text(json.dumps(numbers))
    fewer = set(explain_run(trained_run, tmp_path, images=2).numbers["pictures"])
    assert fewer < written
    assert {path.name for path in folder.iterdir()} == fewer | {"mine.png"}
    assert (tmp_path / "outside.png").exists()


def test_a_file_in_place_of_the_folder_is_refused_before_anything_is_measured(trained_run, tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "answer_images", None)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="cannot be made"):
        explain_run(trained_run, tmp_path / "file")


def test_epochs_are_those_that_were_done(tiny, tmp_path):
    run = untrained(tmp_path / "run", tiny, "--model.name=cnn-small", "--loss.kind=cross-entropy")
    assert "30 epochs by the recipe" in checked_report(run, tmp_path / "out", images=3)[2]
    (run / "metrics.csv").write_text("epoch,step\n0,74\n1,148\n2,222\n")
    assert "3 of 30 epochs" in checked_report(run, tmp_path / "out", images=3)[2]
    (run / "summary.json").write_text('{"epochs": 30}')
    report, _, text = checked_report(run, tmp_path / "out", images=3)
    assert report.numbers["epochs_trained"] == 30
    assert "30 epochs, batches" in text


def test_one_patch_is_not_compared_with_thirteen(tmp_path):
    data = images_in_classes(tmp_path / "own.npz", shape=(20, 20))
    small = ["--model.name=cnn-small", "--loss.kind=cross-entropy", "--data.crop=16", "--data.shift=0"]
    for crops in (1, 13):
        run = untrained(tmp_path / f"run{crops}", data, *small, f"--data.crops={crops}")
        (run / "evaluation.json").write_text('{"accuracy": 0.875, "images": 12}')
        report, _, text = checked_report(run, tmp_path / f"out{crops}", images=5)
        assert ("one central patch per image" in text) == (crops > 1)
        assert ("accuracy_of_whole_test" in report.numbers) == (crops == 1)
        assert ("87.50" in text) == (crops == 1)


def test_two_digits_are_told_apart_by_colour(tmp_path):
    run = untrained(tmp_path / "run", "multi-mnist")
    report, found, text = checked_report(run, tmp_path / "out", images=30)
    assert found.ids == {"segmentation", "measures", "dimensions", "routing", "movements"}
    assert report.numbers["share_of_objects_found"] >= report.numbers["accuracy"]
    case = report.numbers["segmentation"]["cases"]["wrong"][0]
    assert len(case["labels"]) == len(case["predictions"]) == 2
    with Image.open(tmp_path / "out" / "pictures" / "segmentation-wrong-01.png") as picture:
        assert picture.size == (4 * 36 + 3 * 4, 36)
        pixels = np.asarray(picture.convert("RGB"), dtype=int)
    assert np.ptp(pixels[:, :36], axis=2).max() == 0, "the input is grey"
    assert np.ptp(pixels[:, -36:], axis=2).max() > 150, "the digits are coloured"
    assert "mean of all other objects" in text
    assert "the capsule of the first is watched" in text
    predicted, true = (" + ".join(case[name]) for name in ("predictions", "labels"))
    assert any(f"From left: input, {predicted}, {true}, true digits." in alt for alt in found.alts)
    _, subject = answers_of(run, images=30)
    hits = [len(set(there) & set(scores.topk(2).indices.tolist())) for there, scores in
            zip(subject.labels.tolist(), subject.scores, strict=True)]  # fmt: skip
    assert report.numbers["share_of_objects_found"] == pytest.approx(sum(hits) / 60)
    grey_decoder(run)
    grey = explain_run(run, tmp_path / "out", images=30).numbers["segmentation"]
    objects = subject.batch.targets.double().flatten(0, 1)
    expected = float(((objects - 0.5) ** 2).mean())
    assert grey["error_per_pixel_of_each_object"] == pytest.approx(expected, rel=1e-5)
    spread = float(((objects - objects.mean(dim=0)) ** 2).mean())
    assert grey["error_of_mean_image"] == pytest.approx(spread * (60 / 59) ** 2, rel=1e-5)


def test_matrix_capsules_have_routing_and_movements(tiny, tmp_path):
    words = ["--model.name=matrix-capsnet-small", "--loss.kind=spread", "--loss.reconstruction_scale=0"]
    run = untrained(tmp_path / "run", tiny, *words)
    report, found, text = checked_report(run, tmp_path / "out", images=6)
    assert found.ids == {"predictions", "measures", "routing", "movements"}
    assert "no decoder" in text
    assert [layer["name"] for layer in report.numbers["routing"]["layers"]] == ["conv_capsules.0", "class_capsules"]


def test_a_network_without_capsules_has_its_predictions(tiny, tmp_path):
    run = untrained(tmp_path / "run", tiny, "--model.name=cnn-small", "--loss.kind=cross-entropy")
    report, found, text = checked_report(run, tmp_path / "out")
    assert found.ids == {"predictions", "measures"}
    assert "need capsules" in text
    cases = report.numbers["predictions"]["cases"]
    assert cases["right"] or cases["wrong"]


@pytest.mark.parametrize(
    ("shape", "overrides"),
    [
        ((20, 24, 3), []),
        ((20, 24, 3), ["--model.options.decoder=false", "--loss.reconstruction_scale=0"]),
        ((20, 20), ["--data.standardize=true", "--data.crop=16", "--data.crops=13", "--data.shift=0"]),
        ((50, 50), []),
        ((12, 12), ["--model.options.routing={name: dynamic, iterations: 1}"]),
        ((12, 12), ["--model.options.routing=uniform"]),
    ],
)
def test_other_images_and_models(shape, overrides, tmp_path):
    """Colour, no square, no decoder, standardised patches, large images, a single iteration."""
    data = images_in_classes(tmp_path / "own.npz", shape=shape)
    report, _, text = checked_report(untrained(tmp_path / "run", data, *overrides), tmp_path / "out")
    assert report.numbers["images"] == 12
    assert ("decides without iterations" in text) == (overrides[-1:] == ["--model.options.routing=uniform"])
    assert "length of the predicted" not in text, "EM routing has activations that are no lengths"


def test_more_classes_than_are_shown(tmp_path, monkeypatch):
    layouts = []
    monkeypatch.setattr(routing, "lay_out", lambda *given: layouts.append(lay_out(*given)) or layouts[-1])
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (140, 12, 12), dtype=np.uint8)
    names = np.array([f"class number {n}" for n in range(14)])
    np.savez(tmp_path / "many.npz", x=images, y=np.arange(140) % 14, class_names=names)
    _, _, text = checked_report(untrained(tmp_path / "run", tmp_path / "many.npz"), tmp_path / "out")
    assert text.count("the first 10 of 14 classes") == 3
    assert "all classes" not in text.lower()
    panels = [panel for layout in layouts for panel in layout.panels]
    colours = {choose_colour(mark.parent) for panel in panels for mark in (*panel.dots, *panel.parents)} - {NEUTRAL}
    legend = re.search('<p class="legend">(.*?)</p>', text).group(1)
    assert set(re.findall(r"background:(#\w+)", legend)) - {NEUTRAL} == colours


def test_measured_classesdescribe_movements():
    assert describe_classes([0, 1, 2], 3) == "all 3 classes"
    assert describe_classes([0, 1], 3) == "the first 2 of 3 classes"
    assert describe_classes([0, 2], 3) == "2 of 3 classes"


def test_one_image_is_no_plural(trained_run, tmp_path):
    report, found, text = checked_report(trained_run, tmp_path, images=1)
    assert not re.search(r"\b1 (test )?images", found.said)
    assert "1 wrong cases" not in text
    assert "error_of_mean_image" not in report.numbers["reconstructions"]


def moved(*accuracies):
    """Movements of all kinds, of which only the accuracies matter."""
    return [
        Movement(kind, torch.tensor(amounts), torch.zeros(9), torch.ones(9), torch.tensor(accuracy), 0.5, 0.0)
        for (kind, amounts), accuracy in zip(TRANSFORMATIONS.items(), accuracies, strict=True)
    ]


def test_accuracy_falls_only_where_it_does():
    same = [0.9] * 9
    assert "does not fall" in describe_movements(moved(same, same, same, [0.95, *same[1:]]))
    words = describe_movements(moved(same, same, same, [0.9, 0.6, *same[2:]]))
    assert "90.0\u202f% on the images as they are, falls lowest, to 60.0\u202f%, for scale 0.775 (factor)" in words


def test_fewer_images_than_classes(tmp_path):
    """Two test images of one class out of three."""
    images = np.zeros((30, 12, 12), dtype=np.uint8)
    images[np.arange(30), np.arange(30) % 12] = 255
    labels = np.arange(30) % 3
    np.savez(tmp_path / "few.npz", x=images, y=labels, x_test=images[:2], y_test=np.array([1, 1]))
    run = untrained(tmp_path / "run", tmp_path / "few.npz")
    report, _, text = checked_report(run, tmp_path / "out")
    assert report.numbers["images"] == 2
    assert list(report.numbers["dimensions"]["classes"]) == ["1"]
    assert "There is no" in text


def test_names_with_signs_are_shown_as_they_are(tmp_path):
    generator = np.random.default_rng(0)
    names = np.array(["<b>", 'a "quoted" & long name'])
    images = generator.integers(0, 255, (40, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "odd.npz", x=images, y=np.arange(40) % 2, class_names=names)
    _, found, text = checked_report(untrained(tmp_path / "run", tmp_path / "odd.npz"), tmp_path / "out")
    assert "&lt;b&gt;" in text
    assert "&amp;lt;" not in text
    assert any("From left: input, r = <b>" in alt for alt in found.alts)
    assert any('r = a "quoted" & long name' in alt for alt in found.alts)
    assert "<b></b>" not in text


def test_what_cannot_be_explained(trained_run, tmp_path):
    with pytest.raises(RunError, match="at least 1"):
        explain_run(trained_run, tmp_path, images=0)
    with pytest.raises(RunError, match="not a run folder"):
        explain_run(tmp_path)
    with pytest.raises(RunError, match="has images of"):
        explain_run(trained_run, tmp_path, "mnist-mini")


def test_nothing_is_left_of_a_report_that_cannot_be(trained_run, tmp_path, monkeypatch):
    folder = tmp_path / "new"
    with pytest.raises(RunError, match="has images of"):
        explain_run(trained_run, folder, "mnist-mini")
    assert not folder.exists()
    monkeypatch.setattr(reports, "answer_images", None)

    def refused(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reports, "TemporaryFile", refused)
    with pytest.raises(RunError, match="cannot be made or written to: Permission denied"):
        explain_run(trained_run, folder)


def test_a_decoder_that_draws_nothing_is_told_of(tiny, trained_run, tmp_path):
    run = untrained(tmp_path / "run", tiny)
    grey_decoder(run)
    said = "Beside the mean image, what the decoder draws is worse by"
    assert said in checked_report(run, tmp_path / "out")[2]


def test_other_iterations_are_measured(whole_report):
    numbers = whole_report[0].numbers["routing"]["other_iterations"]
    assert numbers["trained"] == 3
    assert len(numbers["entropy"]) == 20
    assert numbers["entropy"][:3] == pytest.approx(
        whole_report[0].numbers["routing"]["layers"][-1]["entropy"], rel=1e-4
    )
    assert "If routing stopped earlier, or went on" in whole_report[2]


def test_a_loss_without_a_decoder_has_no_reconstruction(tiny, tmp_path):
    run = untrained(tmp_path / "run", tiny, "--model.name=matrix-capsnet-small", "--loss.kind=spread")
    assert "× reconstruction" not in checked_report(run, tmp_path / "out", images=3)[2]


def photographs(folder, size=(40, 30), count=8):
    """Smooth colours in class folders, wider than high: they get bars."""
    generator = np.random.default_rng(0)
    for label in "ab":
        (folder / label).mkdir(parents=True)
        for number in range(count):
            coarse = generator.integers(20, 255, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(folder / label / f"{number}.png")
    return folder


def test_photographs_are_not_measured_as_drawings(tmp_path):
    data = photographs(tmp_path / "photos")
    run = untrained(tmp_path / "run", data, "--data.options.image_size=20", "--training.batch_size=2")
    grey_decoder(run)
    report, found, text = checked_report(run, tmp_path / "out")
    numbers, count = report.numbers, report.numbers["images"]
    assert numbers["reconstructions"]["images_with_bars"] == count
    assert f"All {count} images have black bars" in text
    between = answers_of(run)[1].batch.targets[:, :, 2:17].double()  # 20×15 pixels on the middle of 20×20
    error = float(((between - 0.5) ** 2).mean())
    assert numbers["reconstructions"]["error_per_pixel"] == pytest.approx(error, rel=1e-4)
    other = mean_image_error(between.float())
    assert numbers["reconstructions"]["error_of_mean_image"] == pytest.approx(other, rel=1e-4)
    dimensions = numbers["dimensions"]
    assert dimensions["left_out"].startswith("Thickness, slant, width, height, x, y and ink are measures of a drawing")
    assert dimensions["left_out"] in text
    assert dimensions["mean_change"] == [0] * 16, "a grey decoder draws the same whatever the pose"
    assert "properties" not in dimensions
    assert "None of the 16 pose numbers changes the pictures" in text
    assert "no clear effect" not in found.said
    assert "is a clue to the amount by itself" in text


def test_the_end_of_the_page_names_what_is_beside_it(whole_report):
    report, _, text = whole_report
    footer = text[text.index("<footer>") :]
    for name in re.findall(r"<code>(.*?)</code>", footer):
        assert (report.page.parent / name).exists(), name
    assert "pictures" in footer
    assert "is a clue to the amount by itself" not in text, "these lie on black"
