"""Reports of text models: which words decide, in texts that are answered rightly and in others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchcaps.analysis.answers import TextAnswers
from torchcaps.analysis.relevance import DecidingWords, find_deciding_words, top_ngrams
from torchcaps.models.base import TextCapsuleModel
from torchcaps.report.colouring import show_text
from torchcaps.report.formats import count_nouns, join_names
from torchcaps.report.given import GivenTexts
from torchcaps.report.rendering import Section

SHOWN = 6
"""So many right cases, and so many wrong ones."""


def show_words(given: GivenTexts) -> Section:
    """Right and wrong texts; of text capsules with the words that decide."""
    answers = given.answers
    traced = isinstance(given.model, TextCapsuleModel)
    numbers: dict[str, Any] = {}
    groups = []
    for kind, mask in (("right", answers.right), ("wrong", ~answers.right)):
        positions = mask.nonzero()[:SHOWN, 0].tolist()
        decided = [_decide(given, at) if traced else None for at in positions]
        cases = [_show_case(answers, at, words) for at, words in zip(positions, decided, strict=True)]
        of_all = count_nouns(len(mask), "text")
        groups.append({"kind": kind, "cases": cases, "count": int(mask.sum()), "of_all": of_all})
        numbers[kind] = [_list_case(answers, at, words) for at, words in zip(positions, decided, strict=True)]
    title = "Which words decide" if traced else "Predictions"
    content = {"traced": traced, "groups": groups}
    return Section("words" if traced else "predictions", title, "texts.html", content, (), numbers)


def _decide(given: GivenTexts, at: int) -> list[DecidingWords]:
    """The words behind each class that is found, and of several labels also behind those that are missed."""
    classes = given.answers.predicted_names(at)
    if given.answers.multi_label:
        classes += [name for name in given.answers.label_names(at) if name not in classes]
    texts = [given.answers.texts[at]]
    return [find_deciding_words(given.model, given.task, texts, name)[0] for name in classes]


def _show_case(answers: TextAnswers, at: int, decided: Sequence[DecidingWords] | None) -> dict[str, Any]:
    """A text with its words in colour: once, or with any number of labels under the answer once for each class."""
    label = join_names(answers.label_names(at) or ["none"])
    if not decided:  # not traced, or no label is there and none is found
        return _show_plainly(answers, at, label)
    if not answers.multi_label:
        return {"articles": [show_text(decided[0], f" · label {label}")], "level": 4}
    predicted = answers.predicted_names(at)
    articles = [show_text(words, "" if words.label in predicted else " · missed") for words in decided]
    return {"heading": _describe_answer(answers, at), "note": f"label {label}", "articles": articles, "level": 5}


def _show_plainly(answers: TextAnswers, at: int, label: str) -> dict[str, Any]:
    indices = [answers.class_names.index(name) for name in answers.predicted_names(at)]
    scores = ", ".join(f"{float(answers.scores[at, k]):.3f}" for k in indices)
    note = f"{scores}{' · ' if scores else ''}label {label}"
    return {"plain": " ".join(answers.texts[at]), "heading": _describe_answer(answers, at), "note": note}


def _describe_answer(answers: TextAnswers, at: int) -> str:
    names = join_names(answers.predicted_names(at) or ["none"])
    return f"found: {names}" if answers.multi_label else names


def _list_case(answers: TextAnswers, at: int, decided: Sequence[DecidingWords] | None) -> dict[str, Any]:
    """A case for ``numbers.json``; with any number of labels the words are in a list, an entry for each class."""
    known: dict[str, Any] = {
        "text": int(answers.indices[at]),
        "labels": answers.label_names(at),
        "predictions": answers.predicted_names(at),
        "scores": {name: float(s) for name, s in zip(answers.class_names, answers.scores[at], strict=True)},
    }
    if decided is None:
        return known
    by_class = [_list_words(words) for words in decided]
    return known | ({"by_class": by_class} if answers.multi_label else by_class[0])


def _list_words(words: DecidingWords) -> dict[str, Any]:
    return {
        "class": words.label,
        "score": words.score,
        "words": list(words.tokens),
        "relevance": words.relevance.tolist(),
        "ngrams": [[ngram, value] for ngram, value in top_ngrams(words)],
    }
