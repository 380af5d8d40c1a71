"""Reports of text models: which words decide, in texts that are answered rightly and in others."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis import pages
from torchcaps.analysis.coloured import article, key
from torchcaps.analysis.pages import Section, text
from torchcaps.analysis.words import DecidingWords, deciding_words, top_ngrams
from torchcaps.data.options import DataOptions
from torchcaps.data.randomness import sub_seed
from torchcaps.data.text.sources import Texts
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
    generator = torch.Generator().manual_seed(sub_seed(seed, 11))
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


def section_of_words(run: str | os.PathLike[str], model: nn.Module, answers: TextAnswers) -> Section:
    """Right and wrong texts; of text capsules with the words that decide."""
    traced = isinstance(model, TextCapsNet)
    body = (
        key()
        if traced
        else pages.paragraph(
            "This model has no capsules, so there are no couplings along which words could be traced: only its answers "
            "are shown."
        )
    )
    numbers: dict[str, Any] = {}
    for kind, mask in (("right", answers.right), ("wrong", ~answers.right)):
        cases = mask.nonzero()[:SHOWN, 0].tolist()
        body += f"<h3>{kind.capitalize()} <small>{len(cases)} of {int(mask.sum()):,}</small></h3>"
        if not cases:
            body += pages.paragraph(f"There is no {kind} case among the {len(mask):,} texts.")
        found = deciding_words(run, [answers.words(at) for at in cases]) if traced and cases else []
        for at, words in zip(cases, found, strict=False):
            label = f" · label {text(pages.enumeration(answers.labels(at)))}" if answers.labels(at) else " · no label"
            body += article(words, label, level=4)
        if not traced:
            body += "".join(_plain(answers, at) for at in cases)
        numbers[kind] = [_numbers(answers, at, found[n] if traced else None) for n, at in enumerate(cases)]
    title = "Which words decide" if traced else "Predictions"
    return Section("words" if traced else "predictions", title, body, (), numbers)


def _plain(answers: TextAnswers, at: int) -> str:
    names = text(pages.enumeration(answers.found(at) or ["none"]))
    label = text(pages.enumeration(answers.labels(at) or ["none"]))
    score = float(answers.scores[at].max())
    heading = f"{names} <small>{score:.3f} · label {label}</small>"
    return f"<article><h4>{heading}</h4><p>{text(answers.words(at)) or '<i>(no word)</i>'}</p></article>"


def _numbers(answers: TextAnswers, at: int, words: DecidingWords | None) -> dict[str, Any]:
    known: dict[str, Any] = {
        "text": int(answers.indices[at]),
        "labels": answers.labels(at),
        "predictions": answers.found(at),
        "scores": {name: float(s) for name, s in zip(answers.source.class_names, answers.scores[at], strict=True)},
    }
    if words is not None:
        known |= {
            "class": words.label,
            "score": words.score,
            "words": list(words.tokens),
            "relevance": words.relevance.tolist(),
            "ngrams": [[ngram, value] for ngram, value in top_ngrams(words)],
        }
    return known
