"""Training on text: the run folder, its words, judging, asking, resuming, several labels, and what is refused."""

import json

import pytest
import torch

from torchcaps.capsules import Capsules
from torchcaps.commands.keys import read_keys
from torchcaps.data.text.vocabulary import Vocabulary
from torchcaps.errors import DataError
from torchcaps.models import ModelOutput
from torchcaps.run import load
from torchcaps.training import checkpoints, fit, runs
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import RecipeError
from torchcaps.training.recipes import recipe_from_file
from torchcaps.training.runs import load_model
from torchcaps.training.tasks.metrics import grade, measure_answers, probabilities
from torchcaps.training.tasks.text import VOCABULARY

SMALL = [f"--model.options.{name}={n}" for name, n in {"filters": 8, "types": 4, "pose": 6, "dropout": 0}.items()]


def lines(count, seed, more=""):
    """Texts whose class is said by one word, good or bad."""
    generator = torch.Generator().manual_seed(seed)
    filler = ["the", "of", "film", "with", "plot", "and", "it", "was"]
    for n in range(count):
        words = [filler[i] for i in torch.randint(0, 8, (3 + n % 6,), generator=generator)]
        words[int(torch.randint(0, len(words), (1,), generator=generator))] = ("bad", "good")[n % 2]
        yield f"{' '.join(words)}{more},{('no', 'yes')[n % 2]}"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with train.csv and test.csv; the test has a word that training never had."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "train.csv").write_text("\n".join(["text,label", *lines(120, 0)]))
    (folder / "test.csv").write_text("\n".join(["text,label", *lines(40, 1, " xylophone")]))
    return folder


def recipe(own, *overrides, model=True):
    words = [f"--data.name={own}", "--data.validation=0.2", "--epochs=3", "--training.batch_size=8"]
    words += ["--text.vector_size=10", "--optimizer.lr=0.01", "--training.checkpoint_every=3"]
    return recipe_from_file("text", read_keys([*words, *(SMALL if model else []), *overrides]))


def trained(own, folder, *overrides, **options):
    folder.mkdir()
    return fit.train(recipe(own, *overrides, **options), folder)


@pytest.fixture(scope="module")
def run(own, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text") / "run"
    trained(own, folder, "--epochs=8")
    return folder


def test_a_run_learns_and_is_judged(own, run):
    result = load(run).evaluate()
    assert result["texts"] == 40
    assert result["accuracy"] > 0.9
    assert json.loads((run / "evaluation.json").read_text()) == result
    assert "texts_per_second" in json.loads((run / "summary.json").read_text())
    assert load(run).evaluate(str(own), "train")["texts"] == 120


def test_the_words_are_those_of_the_texts_trained_on(own, run):
    words = Vocabulary.load(run / VOCABULARY)
    assert set(words.words) == {"the", "of", "film", "with", "plot", "and", "it", "was", "good", "bad"}
    model, spec = load_model(run)
    assert spec.task.kind == "texts"
    assert spec.task.vocabulary == words
    assert model.words.table.num_embeddings == len(words) == spec.task.words


def test_texts_are_asked_in_their_order_whatever_their_length(run):
    texts = ["good", "", "it was bad", "zzz qqq", "the " * 3000 + "good", "a good film of the plot and it was it"]
    found = load(run).predict(texts)
    assert [prediction.item for prediction in found] == texts
    assert found[0].labels[0] == found[5].labels[0] == "yes"
    assert found[2].labels[0] == "no"
    assert load(run / runs.WEIGHTS).predict([texts[3]])[0].scores == pytest.approx(found[3].scores, abs=1e-6)
    cut = load(run).predict(["the " * 400 + "bad bad bad bad"])[0]
    assert cut.scores == pytest.approx(load(run).predict(["the " * 400])[0].scores, abs=1e-6), "cut after 400 words"
    assert load(run).predict([]) == []


def test_a_run_resumes_exactly(own, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    trained(own, whole)
    original = checkpoints.Checkpoints.on_train_batch_end

    def stop(self, trainer, *arguments):
        original(self, trainer, *arguments)
        if trainer.global_step == 17:
            raise RuntimeError("the plug is pulled")

    monkeypatch.setattr(checkpoints.Checkpoints, "on_train_batch_end", stop)
    with pytest.raises(RuntimeError, match="plug"):
        trained(own, tmp_path / "broken")
    monkeypatch.undo()
    fit.train(recipe(own), tmp_path / "broken", resume=True)
    assert (whole / runs.WEIGHTS).read_bytes() == (tmp_path / "broken" / runs.WEIGHTS).read_bytes()
    (tmp_path / "broken" / VOCABULARY).write_text("torchcaps vocabulary, words: 1\nother\n")
    with pytest.raises(RunError, match="another model"):
        fit.train(recipe(own), tmp_path / "broken", resume=True)


def test_vectors_from_a_file_are_where_training_begins(own, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("good 1 2 3\nbad -1 -2 -3\nunused 0 0 0\n")
    said = []
    (tmp_path / "run").mkdir()
    chosen = recipe(own, f"--text.vectors={vectors}", "--model.options.static=true", "--epochs=1")
    fit.train(chosen, tmp_path / "run", say=said.append)
    assert any("has 2 of the 10 words" in line for line in said)
    model, spec = load_model(tmp_path / "run")
    assert spec.task.vector_size == 3
    table = model.words.table.weight
    assert table[spec.task.vocabulary.token_ids["good"]].tolist() == [1, 2, 3], "static"
    assert not table[0].any()


@pytest.mark.parametrize("name", ["text-cnn", "text-lstm", "text-bilstm", "text-capsnet-b"])
def test_the_other_models_train_by_the_same_recipe(own, tmp_path, name):
    loss = ["--loss.kind=cross-entropy"] if "capsnet" not in name else SMALL
    trained(own, tmp_path / "run", f"--model.name={name}", "--epochs=2", *loss, model=False)
    assert 0 <= load(tmp_path / "run").evaluate()["accuracy"] <= 1
    scores = load(tmp_path / "run").predict(["a good film"])[0].scores
    assert "capsnet" in name or sum(scores) == pytest.approx(1)


def reuters_files(folder):
    """Documents with one label to train on, and with two to test on, in the layout of the real files."""
    place = folder / "text" / "reuters"
    place.mkdir(parents=True)
    words = {"grain": "wheat harvest", "ship": "harbour vessel", "earn": "profit quarter"}

    def document(*labels):
        return json.dumps(
            {"id": "1", "labels": list(labels), "title": "news", "body": " of ".join(words[n] for n in labels)}
        )

    train = [document(label) for label in words for _ in range(20)] + [document("earn", "ship")]
    (place / "modapte90_train.jsonl").write_text("\n".join(train))
    (place / "modapte90_test.jsonl").write_text("\n".join([document("grain", "ship")] * 3 + [document("earn")]))
    return folder


@pytest.mark.parametrize(("name", "tests"), [("reuters8", 4), ("reuters", 3)])
@pytest.mark.parametrize("model", ["text-capsnet-a", "text-cnn"])
def test_several_labels(tmp_path, name, tests, model):
    data = reuters_files(tmp_path / "data")
    loss = ["--loss.kind=cross-entropy"] if model == "text-cnn" else SMALL
    trained(name, tmp_path / "run", f"--data.dir={data}", f"--model.name={model}", *loss, model=False)
    result = load(tmp_path / "run").evaluate()
    assert result["texts"] == tests
    assert result["accuracy"] == result["exact_match"]
    assert {"precision", "recall", "f1", "f1_of_samples"} < set(result)
    assert load_model(tmp_path / "run")[1].task.multi_label


def test_measures_of_several_labels_by_hand():
    labels = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]]).bool()
    found = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]]).bool()
    measures = measure_answers(found.float(), labels, ("a", "b", "c"))
    assert measures["exact_match"] == pytest.approx(1 / 4)
    assert measures["precision"] == pytest.approx(3 / 4)
    assert measures["recall"] == pytest.approx(3 / 6)
    assert measures["f1"] == pytest.approx(2 * 3 / (4 + 6))
    assert measures["precision_of_samples"] == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert measures["recall_of_samples"] == pytest.approx((1 + 1 / 2 + 0 + 0) / 4)
    assert measures["f1_of_samples"] == pytest.approx((1 + 2 / 3 + 0 + 0) / 4)


def test_nothing_said_where_nothing_is_there_is_right():
    labels = torch.tensor([[1, 0], [0, 0], [0, 0]]).bool()
    measures = measure_answers(torch.tensor([[0.9, 0.1], [0.2, 0.1], [0.9, 0.1]]), labels, ("a", "b"))
    assert measures["exact_match"] == pytest.approx(2 / 3)
    assert measures["f1_of_samples"] == pytest.approx((1 + 1 + 0) / 3)
    assert measures["f1"] == pytest.approx(2 / 3)


def test_a_class_is_present_above_one_half():
    labels = torch.tensor([[True, False], [True, True]])
    lengths = torch.tensor([[0.6, 0.4], [0.6, 0.4]])
    capsules = ModelOutput(lengths, Capsules(lengths[..., None], lengths))
    assert grade(capsules, labels).tolist() == [1, 0]
    logits = ModelOutput(torch.tensor([[0.1, -0.1], [0.1, 0.1]]))
    assert grade(logits, labels).tolist() == [1, 1]
    assert probabilities(logits).sum(dim=1).tolist() == pytest.approx([1, 1])


def test_what_does_not_go_together(own, run, tmp_path):
    with pytest.raises(RunError, match="has texts, but the model capsnet-small reads images"):
        trained(own, tmp_path / "a", "--model.name=capsnet-small", model=False)
    with pytest.raises(RunError, match="has images, but the model text-capsnet-a reads words"):
        trained("mnist-mini", tmp_path / "b")
    with pytest.raises(ValueError, match="this model gives logits"):
        trained(own, tmp_path / "c", "--model.name=text-cnn", model=False)
    with pytest.raises(RunError, match="is no text"):
        load(run).evaluate("mnist-mini")
    with pytest.raises(RunError, match="was trained for no, yes"):
        load(run).evaluate("mr-mini")
    with pytest.raises(RunError, match="crops"):
        load(run).evaluate(crops=13)
    with pytest.raises(RunError, match="reads words"):
        load(run).predict(torch.zeros(1, 28, 28))
    with pytest.raises(RecipeError, match="text.max_length"):
        recipe(own, "--text.longest=0")
    with pytest.raises(RecipeError, match="text.max_words"):
        recipe(own, "--text.most_words=0")


def test_a_model_without_its_words_says_so(run, tmp_path):
    alone = tmp_path / runs.WEIGHTS
    alone.write_bytes((run / runs.WEIGHTS).read_bytes())
    with pytest.raises(RunError, match=r"vocabulary.txt beside its weights"):
        load(alone).predict(["good"])
    (tmp_path / VOCABULARY).write_text("torchcaps vocabulary, words: 1\ngood\n")
    with pytest.raises(RunError, match="is of another model"):
        load(alone).predict(["good"])


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("text,label\ngood,yes\nbad,no\n", "text,label\nfine,maybe\n", "training does not know: maybe"),
        ("text,class\ngood,yes\n", "text,label\nfine,yes\n", "no column 'label'"),
        ("text,label\ngood,yes\n", "text,label\nfine,yes\n", "one class only"),
        (b"text,label\ngo\xffod,yes\nbad,no\n", "text,label\nfine,yes\n", "not UTF-8"),
    ],
)
def test_files_that_cannot_be_trained_on(tmp_path, train, test, message):
    for name, content in (("train", train), ("test", test)):
        (tmp_path / f"{name}.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        trained(tmp_path, tmp_path / "run", "--data.validation=0", "--training.keep=last")


def test_empty_and_unknown_texts_are_trained_on_and_judged(tmp_path):
    rows = ["text,label", *lines(40, 0), '"",yes', "!!!,no"]
    (tmp_path / "train.csv").write_text("\n".join(rows))
    (tmp_path / "test.csv").write_text('text,label\n"",yes\nqqq zzz,no\n')
    trained(tmp_path, tmp_path / "run", "--epochs=1")
    assert load(tmp_path / "run").evaluate()["texts"] == 2


def test_rare_words_can_be_left_out(own, tmp_path):
    trained(own, tmp_path / "run", "--epochs=1", "--text.most_words=4")
    assert len(Vocabulary.load(tmp_path / "run" / VOCABULARY).words) == 4


def test_other_data_is_read_as_the_models_own(tmp_path):
    """Capitals matter to a model of trec, in its own texts and in others; a fold is of its own data."""
    (tmp_path / "text").mkdir()
    classes = ("description", "entity", "abbreviation", "human", "location", "number")
    for split in ("train", "test"):
        lines = [f"{n % 6} What Thing {classes[n % 6]}" for n in range(60)]
        (tmp_path / "text" / f"TREC.{split}.all").write_text("\n".join(lines))
    trained("trec", tmp_path / "run", f"--data.dir={tmp_path}", "--epochs=1")
    spec = load_model(tmp_path / "run")[1]
    assert not spec.task.lower
    assert "What" in spec.task.vocabulary.words
    own = [f"What Thing {name},{name}" for name in classes]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *own * 5]))
    texts = load(tmp_path / "run").open_data(str(tmp_path / "own.csv")).source
    assert not (texts.token_ids == 1).any(), "no word is unknown"


def test_a_model_with_own_weights_cuts_texts_to_its_length(own, tmp_path):
    trained(own, tmp_path / "run", "--model.options.length=6", "--epochs=1")
    assert load_model(tmp_path / "run")[1].task.max_length == 6
    assert load(tmp_path / "run").predict(["the " * 50])[0].labels
    assert load(tmp_path / "run").evaluate()["texts"] == 40


def test_keeping_the_best_needs_texts_kept_aside(tmp_path):
    (tmp_path / "own.csv").write_text("text,label\n" + "good,yes\nbad,no\n" * 5)
    with pytest.raises(RunError, match="none of the texts is kept aside"):
        trained(tmp_path / "own.csv", tmp_path / "run", "--data.validation=0.05", "--training.batch_size=2")
