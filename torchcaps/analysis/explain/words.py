"""Reports of text models: which words decide, in texts that are answered rightly and in others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis import pages
from torchcaps.analysis.coloured import article, key
from torchcaps.analysis.pages import Section, text
from torchcaps.analysis.words import DecidingWords, deciding_words, top_ngrams
from torchcaps.data.options import DataOptions
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.text.texts import Texts
from torchcaps.models.text import TextCapsNet
from torchcaps.training.evaluation import class_scores, evaluation_texts
from torchcaps.training.metrics import PRESENT
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import RunError, TextSpec

SHOWN = 6
"""So many right cases, and so many wrong ones."""


class TextAnswers(NamedTuple):
    """Test texts and what a model says about them.

    Attributes:
        source: all test texts.
        indices: of the chosen ones ``[N]``.
        scores: ``[N, K]``.
        right: bool ``[N]``.
    """

    source: Texts
    indices: Tensor
    scores: Tensor
    right: Tensor

    def words(self, at: int) -> str:
        """The text, as the tokens that the data has."""
        return " ".join(self.source.data.texts[int(self.indices[at])])

    def labels(self, at: int) -> list[str]:
        """The names of the right classes."""
        label = self.source.data.labels[int(self.indices[at])]
        names = self.source.class_names
        return [names[k] for k in (label.nonzero()[:, 0].tolist() if label.dim() else [int(label)])]

    def found(self, at: int) -> list[str]:
        """The names of the found classes."""
        names, scores = self.source.class_names, self.scores[at]
        if self.source.multi_label:
            return [names[k] for k in (scores > PRESENT).nonzero()[:, 0].tolist()]
        return [names[int(scores.argmax())]]


def text_answers(
    recipe: Recipe, model: nn.Module, spec: TextSpec, overrides: DataOptions | None, count: int, seed: int
) -> TextAnswers:
    """Ask a model about so many test texts, or all if there are no more."""
    source = evaluation_texts(overrides or recipe.data, recipe, "test", spec)
    if not len(source):
        raise RunError("there are no test texts.")
    generator = torch.Generator().manual_seed(sub_seed(seed, Stream.EXPLAINED))
    chosen = torch.randperm(len(source), generator=generator)[:count].sort().values
    scores = torch.empty(len(source), len(source.class_names))
    for part in source.evaluation_parts(chosen, 500):
        scores[part] = class_scores(model, source.batch(part).inputs, source.multi_label)
    scores, labels = scores[chosen], source.data.labels[chosen]
    if source.multi_label:
        right = ((scores > PRESENT) == labels).all(dim=1)
    else:
        right = scores.argmax(dim=1) == labels
    return TextAnswers(source, chosen, scores, right)


def section_of_words(run: str | os.PathLike[str], model: nn.Module, spec: TextSpec, answers: TextAnswers) -> Section:
    """Right and wrong texts; of text capsules with the words that decide."""
    traced = isinstance(model, TextCapsNet)
    why = "This model has no capsules, so there are no couplings along which words could be traced: only its answers "
    body = key() if traced else pages.paragraph(f"{why}are shown.")
    numbers: dict[str, Any] = {}
    for kind, mask in (("right", answers.right), ("wrong", ~answers.right)):
        cases = mask.nonzero()[:SHOWN, 0].tolist()
        body += f"<h3>{kind.capitalize()} <small>{len(cases)} of {int(mask.sum()):,}</small></h3>"
        if not cases:
            body += pages.paragraph(f"There is no {kind} case among {pages.counted(len(mask), 'text')}.")
        numbers[kind] = []
        for at in cases:
            found = _traced(run, model, spec, answers, at) if traced else None
            body += _plain(answers, at) if found is None else _articles(answers, at, found)
            numbers[kind].append(_numbers(answers, at, found))
    title = "Which words decide" if traced else "Predictions"
    return Section("words" if traced else "predictions", title, body, (), numbers)


def _traced(
    run: str | os.PathLike[str], model: nn.Module, spec: TextSpec, answers: TextAnswers, at: int
) -> list[DecidingWords]:
    """The words behind each class that is found, and of several labels also behind those that are missed."""
    classes = answers.found(at)
    if answers.source.multi_label:
        classes += [name for name in answers.labels(at) if name not in classes]
    words = [answers.words(at)]
    return [deciding_words(run, words, name, loaded=(model, spec))[0] for name in classes]


def _articles(answers: TextAnswers, at: int, found: Sequence[DecidingWords]) -> str:
    """A text with its words in colour: once, or with any number of labels under the answer once for each class."""
    label = text(pages.enumeration(answers.labels(at) or ["none"]))
    if not answers.source.multi_label:
        return article(found[0], f" · label {label}", level=4)
    if not found:  # no label is there and none is found
        return _plain(answers, at)
    body = f"<h4>{_answer(answers, at)} <small>label {label}</small></h4>"
    for words in found:
        body += article(words, "" if words.label in answers.found(at) else " · missed", level=5)
    return body


def _plain(answers: TextAnswers, at: int) -> str:
    label = text(pages.enumeration(answers.labels(at) or ["none"]))
    names = answers.source.class_names
    scores = ", ".join(f"{float(answers.scores[at, names.index(name)]):.3f}" for name in answers.found(at))
    heading = f"{_answer(answers, at)} <small>{scores}{' · ' if scores else ''}label {label}</small>"
    return f"<article><h4>{heading}</h4><p>{text(answers.words(at)) or '<i>(no word)</i>'}</p></article>"


def _answer(answers: TextAnswers, at: int) -> str:
    """What the model says, as HTML."""
    names = text(pages.enumeration(answers.found(at) or ["none"]))
    return f"found: {names}" if answers.source.multi_label else names


def _numbers(answers: TextAnswers, at: int, found: Sequence[DecidingWords] | None) -> dict[str, Any]:
    """A case for ``numbers.json``; with any number of labels the words are in a list, an entry for each class."""
    known: dict[str, Any] = {
        "text": int(answers.indices[at]),
        "labels": answers.labels(at),
        "predictions": answers.found(at),
        "scores": {name: float(s) for name, s in zip(answers.source.class_names, answers.scores[at], strict=True)},
    }
    if found is None:
        return known
    by_class = [_words_numbers(words) for words in found]
    return known | ({"by_class": by_class} if answers.source.multi_label else by_class[0])


def _words_numbers(words: DecidingWords) -> dict[str, Any]:
    return {
        "class": words.label,
        "score": words.score,
        "words": list(words.tokens),
        "relevance": words.relevance.tolist(),
        "ngrams": [[ngram, value] for ngram, value in top_ngrams(words)],
    }
