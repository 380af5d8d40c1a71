"""Which words decide: a class capsule's length, traced back along the couplings to n-grams and words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.data.text.tokens import tokenize
from torchcaps.models.text import CapsuleBranch, TextCapsNet
from torchcaps.training.runs import RunError, TextSpec, load_model


class NGrams(NamedTuple):
    """What the n-grams of a branch give to a class: ``relevance[q]`` for the ``size`` words from ``q · stride`` on."""

    size: int
    stride: int
    relevance: Tensor


class DecidingWords(NamedTuple):
    """What speaks for and against a class in a text.

    Attributes:
        text: as it was given.
        tokens: the words that the model saw.
        known: which of them are in its vocabulary.
        label: the class.
        score: the length of its capsule.
        relevance: of each word ``[L]``. The sum is the score, less what a text shorter than the windows gives to the
            positions after its end.
        ngrams: the same before it is shared out among words, a branch each.
    """

    text: str
    tokens: tuple[str, ...]
    known: tuple[bool, ...]
    label: str
    score: float
    relevance: Tensor
    ngrams: tuple[NGrams, ...]


def ngram_relevance(model: TextCapsNet, numbers: Tensor, chosen: int) -> tuple[NGrams, ...]:
    r"""The parts of a class capsule's length that come from each n-gram of a text.

    With couplings c_ij and votes û_ij, a parent's sum s_j = Σ_i c_ij û_ij has the direction of its pose v_j, so that
    the child i gives it the share ::

        f_ij = c_ij ⟨û_ij, v_j⟩ / Σ_i c_ij ⟨û_ij, v_j⟩

    of its length; a share can be negative. A class's length is shared out among the convolutional capsules of all
    branches, what each of these has got among its n-grams: nothing is lost on the way. A mean of branches shares out
    the length of the mean pose by the projections of the branches' poses on it.

    Args:
        model: in evaluation mode.
        numbers: of the words of one text ``[1, L]``, without padding.
        chosen: the class.

    Returns:
        For every branch the relevances; all of them together sum to the class's score.
    """
    with torch.inference_mode():
        towards = model(numbers).capsules.pose[0, chosen]
        towards = towards / towards.norm().clamp_min(torch.finfo(towards.dtype).tiny)
        vectors, mask = model.words(numbers, model.shortest)
        found = []
        for branch in model.branches:
            assert isinstance(branch, CapsuleBranch)
            relevance = _of_branch(branch, vectors, mask, chosen, towards) / len(model.branches)
            found.append(NGrams(branch.ngram, branch.stride, relevance))
    return tuple(found)


def _of_branch(branch: CapsuleBranch, vectors: Tensor, mask: Tensor, chosen: int, towards: Tensor) -> Tensor:
    """What each n-gram gives to the projection of the branch's class pose ``[L − n + 1]``."""
    ngrams = branch.primary_capsules(vectors, mask)
    parents: Capsules = branch.windows(ngrams)
    routed = branch.class_capsules.route(parents)
    positions, types = parents.activation.shape[1:]
    votes = branch.class_capsules.votes(parents).reshape(positions, types, -1, towards.shape[0])[:, :, chosen]
    coupling = routed.coupling.reshape(positions, types, -1)[:, :, chosen]
    pose = routed.pose.reshape(-1, towards.shape[0])[chosen]
    got = _shares(coupling * (votes @ towards), (0, 1)) * (pose @ towards)  # [P, J]

    votes = branch.windows.votes(ngrams)[0]  # [P, W, T, J, D]
    below = branch.windows.route(ngrams).coupling[0] * torch.einsum("pwtjd,pjd->pwtj", votes, parents.pose[0])
    passed = (_shares(below, (1, 2)) * got[:, None, None]).sum(dim=(2, 3))  # [P, W]
    relevance = passed.new_zeros(ngrams.activation.shape[1])
    places = torch.arange(len(passed))[:, None] + torch.arange(passed.shape[1])
    return relevance.index_add(0, places.flatten(), passed.flatten())


def _shares(given: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Divided by the sum over the children; nothing where that is nothing."""
    total = given.sum(dim=dims, keepdim=True)
    return torch.where(total.abs() > 1e-12, given / torch.where(total == 0, 1, total), 0)


def word_relevance(ngrams: Sequence[NGrams], words: int) -> Tensor:
    """N-grams shared out equally among their words ``[words]``; what falls behind the last word is left out."""
    relevance = torch.zeros(words)
    for size, stride, given in ngrams:
        for at, value in enumerate((given / size).tolist()):
            relevance[at * stride : at * stride + size] += value
    return relevance


def deciding_words(
    run: str | os.PathLike[str], texts: Sequence[str], of_class: str | None = None
) -> list[DecidingWords]:
    """Which words decide about texts, by a run folder or a weights file of text capsules.

    Args:
        run: the trained model.
        texts: one or several.
        of_class: a class; not given: for each text the one that is found.
    """
    model, spec = load_model(run)
    if not isinstance(spec, TextSpec) or not isinstance(model, TextCapsNet) or spec.vocabulary is None:
        raise RunError(f"the words that decide can be traced in text capsules only; {run} holds a {spec.name}.")
    if of_class is not None and of_class not in spec.class_names:
        raise RunError(f"the model has no class {of_class!r}; it knows {', '.join(spec.class_names)}.")
    found = []
    for text in texts:
        tokens = tokenize(text, spec.lower)[: spec.longest]
        numbers = torch.tensor([spec.vocabulary.encode(tokens)])
        with torch.inference_mode():
            scores = model(numbers).scores[0]
        chosen = int(scores.argmax()) if of_class is None else spec.class_names.index(of_class)
        ngrams = ngram_relevance(model, numbers, chosen)
        known = tuple(token in spec.vocabulary.numbers for token in tokens)
        label, relevance = spec.class_names[chosen], word_relevance(ngrams, len(tokens))
        found.append(DecidingWords(text, tokens, known, label, float(scores[chosen]), relevance, ngrams))
    return found


def top_ngrams(words: DecidingWords, most: int = 5) -> list[tuple[str, float]]:
    """The n-grams of all branches that speak most for the class or against it, by falling weight."""
    found: dict[str, float] = {}
    for size, stride, relevance in words.ngrams:
        for at, value in enumerate(relevance.tolist()):
            text = " ".join(words.tokens[at * stride : at * stride + size])
            if text:
                found[text] = found.get(text, 0.0) + value
    return sorted(found.items(), key=lambda pair: -abs(pair[1]))[:most]
