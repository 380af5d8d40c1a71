"""Which words decide: nothing is lost on the way from a class to its words, and the word that decides is found."""

import re

import pytest
import torch

from torchcaps import create_model
from torchcaps.analysis.answers import TextAnswers
from torchcaps.analysis.relevance import (
    DecidingWords,
    NGrams,
    find_deciding_words,
    ngram_relevance,
    top_ngrams,
    word_relevance,
)
from torchcaps.commands.keys import read_keys
from torchcaps.report.colouring import colour_terminal, render_words, scale_relevance
from torchcaps.report.facts import Facts
from torchcaps.report.given import GivenTexts
from torchcaps.report.rendering import render_section
from torchcaps.report.texts import show_words
from torchcaps.run import load
from torchcaps.training.fit import train
from torchcaps.training.recipes import recipe_from_file

SMALL = {"filters": 6, "types": 3, "pose": 4}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ngrams": [2, 4], "stride": 2},
        {"leaky": False, "amend": False, "noise_class": False},
        {"length": 15},
        {"routing": "optimized", "leaky": False, "amend": False},
        {"routing": "kmeans", "leaky": False, "amend": False},
    ],
)
def test_the_parts_sum_to_the_score(options):
    torch.manual_seed(0)
    model = create_model("text-capsnet-b", (40, 5), 3, **{**SMALL, "ngrams": [2, 3], **options}).double().eval()
    for length in (1, 4, 12):
        token_ids = torch.randint(1, 40, (1, length))
        scores = model(token_ids).scores[0]
        for chosen in range(3):
            found = ngram_relevance(model, token_ids, chosen)
            assert len(found) == len(model.branches)
            torch.testing.assert_close(sum(part.by_word.sum() for part in found), scores[chosen].detach())


def test_a_capsule_without_competition_shares_its_length_by_projection():
    """One type, one window, one branch: by hand, the share of an n-gram is c⟨û, v⟩ over the sum of them."""
    torch.manual_seed(0)
    model = create_model("text-capsnet-a", (40, 5), 2, filters=6, types=1, pose=4, window=2).double().eval()
    token_ids, branch = torch.tensor([[5, 9, 2, 2]]), model.branches[0]
    ngrams = branch.primary_capsules(*model.embed(token_ids))
    routed = branch.windows.route(ngrams)
    given = (branch.windows.votes(ngrams)[0, 0, :, 0, 0] @ routed.pose[0, 0, 0]) * routed.coupling[0, 0, :, 0, 0]
    expected = given / given.sum() * model(token_ids).scores[0, 1]
    torch.testing.assert_close(ngram_relevance(model, token_ids, 1)[0].relevance, expected.detach())


def test_ngrams_are_shared_out_among_their_words():
    parts = [NGrams(1, torch.tensor([[1.0, 1.0], [0.0, 4.0]])), NGrams(1, torch.tensor([[2.0, 3.0, 4.0]]))]
    assert parts[0].relevance.tolist() == [2.0, 4.0]
    assert word_relevance(parts, 3).tolist() == [3.0, 4.0, 8.0]
    assert word_relevance(parts, 2).tolist() == [3.0, 4.0], "what falls behind the end is left out"
    assert word_relevance([NGrams(2, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))], 4).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_word_without_weight_gets_nothing():
    """Filters that look at the middle word of three only: the others have no part in the n-gram."""
    torch.manual_seed(0)
    model = create_model("text-capsnet-a", (40, 5), 2, **SMALL).eval()
    with torch.no_grad():
        model.branches[0].ngrams.weight[:, :, [0, 2]] = 0
    (found,) = ngram_relevance(model, torch.randint(1, 40, (1, 7)), 0)
    assert not found.by_word[:, [0, 2]].any()
    assert found.by_word[:, 1].any()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of texts where a single word decides."""
    folder = tmp_path_factory.mktemp("words")
    generator = torch.Generator().manual_seed(0)
    filler = ["the", "of", "film", "with", "plot", "and", "it", "was"]
    lines = ["text,label"]
    for n in range(160):
        words = [filler[i] for i in torch.randint(0, 8, (7,), generator=generator)]
        words[int(torch.randint(0, 7, (1,), generator=generator))] = ("bad", "good")[n % 2]
        lines.append(f"{' '.join(words)},{('no', 'yes')[n % 2]}")
    (folder / "own.csv").write_text("\n".join(lines))
    small = {"filters": 8, "types": 4, "pose": 6, "dropout": 0}
    words = [
        f"--data.name={folder / 'own.csv'}",
        "--data.validation=0",
        "--training.keep=last",
        "--text.vector_size=12",
        "--optimizer.lr=0.01",
    ]
    words += ["--epochs=12", "--training.batch_size=10", *(f"--model.options.{key}={n}" for key, n in small.items())]
    (folder / "run").mkdir()
    train(recipe_from_file("text", read_keys(words)), folder / "run")
    run = load(folder / "run")
    return run.model, run.task


def test_the_word_that_decides_is_found(trained):
    texts = ["it was the film with the good plot", "it was the bad film with the plot"]
    found = find_deciding_words(*trained, texts, by="leaving-out")
    assert [words.label for words in found] == ["yes", "no"]
    for words, expected in zip(found, ("good", "bad"), strict=True):
        assert words.score > 0.5
        assert words.tokens[int(words.relevance.argmax())] == expected


def test_a_deciding_word_takes_part_in_its_class_more_than_in_the_other(trained):
    text = "it was the film with the good plot"
    (yes,), (no,) = (find_deciding_words(*trained, [text], class_name=label) for label in ("yes", "no"))
    at = yes.tokens.index("good")
    assert yes.relevance[at] > 3 * no.relevance[at].abs()
    assert any("good" in ngram for ngram, _ in top_ngrams(yes, 3))


def test_a_chosen_class_unknown_words_and_no_words(trained):
    (words,) = find_deciding_words(*trained, ["a good xylophone"], class_name="no")
    assert words.label == "no"
    assert words.known == (False, True, False)
    (empty,) = find_deciding_words(*trained, [""])
    assert empty.tokens == ()
    assert len(empty.relevance) == 0
    assert "(no word)" in colour_terminal(empty).plain
    assert "(no word)" in render_words([empty], "t")
    with pytest.raises(ValueError, match="no class 'maybe'"):
        find_deciding_words(*trained, ["a"], class_name="maybe")


def test_a_model_without_text_capsules_is_refused(trained):
    with pytest.raises(ValueError, match="in text capsules only; a TextCNN has none"):
        find_deciding_words(create_model("text-cnn", (40, 5), 2), trained[1], ["a"])


def test_with_any_number_of_labels_each_found_and_each_missed_class_is_explained(trained):
    """Both are found; one is missed; nothing is there and nothing found; one is found that is not there."""
    model, task = trained
    texts = (("good", "bad"), ("bad", "film"), ("the", "film"), ("it", "was"))
    flags = torch.tensor([[True, True], [True, False], [False, False], [False, False]])
    scores = torch.tensor([[0.6, 0.9], [0.3, 0.2], [0.3, 0.2], [0.1, 0.8]])
    right = torch.tensor([True, False, True, False])
    answers = TextAnswers(task.class_names, 4, torch.arange(4), texts, flags, scores, right)
    section = show_words(GivenTexts(model, task, answers, Facts("model", "data"), 0))
    first, second = task.class_names
    headings = [re.sub("<.*?>", "", found) for found in re.findall("<h[45]>(.*?)</h[45]>", render_section(section))]
    expected = [
        f"found: {first} and {second} label {first} and {second}", f"{first} .*", f"{second} .*",
        "found: none label none",
        f"found: none label {first}", f"{first} .* · missed",
        f"found: {second} label none", f"{second} .*",
    ]  # fmt: skip
    assert len(headings) == len(expected)
    for heading, pattern in zip(headings, expected, strict=True):
        assert re.fullmatch(pattern, heading)
        assert ("missed" in heading) == ("missed" in pattern)
    cases = section.numbers["right"] + section.numbers["wrong"]
    assert [case["predictions"] for case in cases] == [[first, second], [], [], [second]]
    assert [[part["class"] for part in case["by_class"]] for case in cases] == [[first, second], [], [first], [second]]
    for case in cases:
        assert all(len(part["words"]) == len(part["relevance"]) == 2 for part in case["by_class"])


def some_words(*tokens, relevance):
    given = torch.tensor(relevance)
    return DecidingWords(
        " ".join(tokens), tokens, (True,) * len(tokens), "yes", 0.9, given, (NGrams(1, given[:, None]),)
    )


def test_colours_follow_the_relevance():
    words = some_words("fine", "so", "bad", relevance=[0.4, 0.0, -0.2])
    assert scale_relevance(words) == pytest.approx([1.0, 0.0, -0.5])
    line = colour_terminal(words)
    assert line.plain == "yes 0.900  fine so bad "
    shades = {
        line.plain[span.start : span.end]: span.style for span in line.spans if getattr(span.style, "bgcolor", None)
    }
    assert shades["fine"].bgcolor.triplet.green > shades["fine"].bgcolor.triplet.red
    assert shades["bad"].bgcolor.triplet.red > shades["bad"].bgcolor.triplet.green
    assert "so" not in shades


def test_the_page_is_whole_and_harmless():
    text = render_words([some_words("<script>alert(1)</script>", "&", "x", relevance=[0.1, 0.2, -0.3])], "<b>")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text, "nothing from elsewhere"
    assert 'data-side="against" style="--s:100%" title="-0.3000">x<' in text
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
