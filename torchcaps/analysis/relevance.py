"""Which words decide: a class capsule's length, traced back along the couplings to n-grams and words.

The couplings say who takes part in a class. A word that changes which parents its neighbours agree on decides through
them, and gets little itself: leaving words out, one by one, says what would be different without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.data.options import Units
from torchcaps.data.text.sets import Tokens
from torchcaps.data.text.texts import MOST_TOKENS
from torchcaps.data.text.tokens import tokenize
from torchcaps.data.text.vocabulary import UNKNOWN, Vocabulary
from torchcaps.errors import InputError
from torchcaps.models.base import TextBranch, TextCapsuleModel
from torchcaps.progress import Progress, silent

By = Literal["couplings", "leaving-out"]


class TextReading(Protocol):
    """How a model reads texts: what is asked of its task here.

    Attributes:
        class_names: what its classes are called.
        vocabulary: the words that it knows.
        max_length: texts are cut after so many words.
        lower: texts are made lower case.
        units: what texts are split into.
    """

    @property
    def class_names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def vocabulary(self) -> Vocabulary | None: ...  # noqa: D102
    @property
    def max_length(self) -> int: ...  # noqa: D102
    @property
    def lower(self) -> bool: ...  # noqa: D102
    @property
    def units(self) -> Units: ...  # noqa: D102


class NGrams(NamedTuple):
    """What the n-grams of a branch give to a class.

    Attributes:
        stride: the n-gram q begins with the word ``q · stride``.
        by_word: the part of each of its words ``[Q, n]``.
    """

    stride: int
    by_word: Tensor

    @property
    def relevance(self) -> Tensor:
        """Of whole n-grams ``[Q]``."""
        return self.by_word.sum(dim=1)


class DecidingWords(NamedTuple):
    """What speaks for and against a class in a text.

    Attributes:
        text: as it was given.
        tokens: the words that the model saw.
        known: which of them are in its vocabulary.
        label: the class.
        score: the length of its capsule.
        relevance: of each word ``[L]``. By couplings the sum is the score, less what a text shorter than the windows
            gives to the positions after its end; by leaving out it is what the score would lose.
        ngrams: the same by n-grams, a branch each.
    """

    text: str
    tokens: tuple[str, ...]
    known: tuple[bool, ...]
    label: str
    score: float
    relevance: Tensor
    ngrams: tuple[NGrams, ...]


def require_text_capsules(model: nn.Module) -> TextCapsuleModel:
    """Raise unless the answers of this model can be traced back to words; return it."""
    if isinstance(model, TextCapsuleModel):
        return model
    raise InputError(
        f"the words that decide can be traced in text capsules only; a {type(model).__name__} has none, see "
        "torchcaps.models.base.TextCapsuleModel."
    )


def ngram_relevance(model: nn.Module, token_ids: Tensor, chosen: int) -> tuple[NGrams, ...]:
    r"""The parts of a class capsule's length that come from each n-gram of a text.

    With couplings c_ij and votes û_ij, a parent's sum s_j = Σ_i c_ij û_ij has the direction of its pose v_j, so that
    the child i gives it the share ::

        f_ij = c_ij ⟨û_ij, v_j⟩ / Σ_i c_ij ⟨û_ij, v_j⟩

    of its length; a share can be negative. A class's length is shared out among the convolutional capsules of all
    branches, what each of these has got among its n-grams: nothing is lost on the way. A mean of branches shares out
    the length of the mean pose by the projections of the branches' poses on it. An n-gram's part is shared out among
    its words by how much each of them moves the n-gram's capsules along their poses, either way.

    Args:
        model: a :class:`~torchcaps.models.base.TextCapsuleModel` in evaluation mode.
        token_ids: of one text ``[1, L]``, without padding.
        chosen: the class.

    Returns:
        For every branch the relevances; all of them together sum to the class's score.
    """
    text_model = require_text_capsules(model)
    branches: list[TextBranch] = list(text_model.branches)
    with torch.inference_mode():
        towards = model(token_ids).capsules.pose[0, chosen]
        towards = towards / towards.norm().clamp_min(torch.finfo(towards.dtype).tiny)
        vectors, mask = text_model.embed(token_ids)
        relevances = []
        for branch in branches:
            ngrams = branch.primary_capsules(vectors, mask)
            given = _share_out_branch(branch, ngrams, chosen, towards) / len(branches)  # [Q, T]
            by_word = (given[:, None] * _share_among_words(branch, vectors[0], ngrams.pose[0])).sum(dim=2)
            relevances.append(NGrams(branch.stride, by_word))
    return tuple(relevances)


def _share_out_branch(branch: TextBranch, ngrams: Capsules, chosen: int, towards: Tensor) -> Tensor:
    """What each capsule of the n-grams gives to the projection of the branch's class pose ``[Q, T]``."""
    parents: Capsules = branch.windows(ngrams)
    routed = branch.class_capsules.route(parents)
    positions, types = parents.activation.shape[1:]
    votes = branch.class_capsules.votes(parents).reshape(positions, types, -1, towards.shape[0])[:, :, chosen]
    assert routed.coupling is not None  # which is what was asked for
    coupling = routed.coupling.reshape(positions, types, -1)[:, :, chosen]
    pose = routed.pose.reshape(-1, towards.shape[0])[chosen]
    got = _normalise(coupling * (votes @ towards), (0, 1)) * (pose @ towards)  # [P, J]

    votes = branch.windows.votes(ngrams)[0]  # [P, W, T, J, D]
    windows = branch.windows.route(ngrams).coupling
    assert windows is not None
    below = windows[0] * torch.einsum("pwtjd,pjd->pwtj", votes, parents.pose[0])
    passed = (_normalise(below, (1, 2)) * got[:, None, None]).sum(dim=3)  # [P, W, T]
    places = torch.arange(len(passed))[:, None] + torch.arange(passed.shape[1])
    return passed.new_zeros(ngrams.activation.shape[1:]).index_add(0, places.flatten(), passed.flatten(0, 1))


def _share_among_words(branch: TextBranch, vectors: Tensor, poses: Tensor) -> Tensor:
    """How much each word of an n-gram has to do with each of its capsules ``[Q, n, T]``, from 0 to 1.

    Before it is squashed, a pose is Σ_k M (gate ⊙ W_k x_k) and biases, with the words x_k of the n-gram and the gates
    that ReLU leaves open: a sum over the words, whose terms are projected on the pose.
    """
    windows = vectors.unfold(1, branch.ngram, branch.stride)  # [V, Q, n]
    terms = torch.einsum("fvn,vqn->qnf", branch.ngrams.weight, windows)
    gates = (branch.ngrams(vectors).T > 0).to(terms.dtype)  # [Q, F]
    matrix: Tensor = torch.unflatten(branch.primary.conv.weight[:, :, 0], 0, poses.shape[1:])  # [T, d, F]
    along = torch.einsum("qtd,tdf->qtf", poses, matrix)
    weight = torch.einsum("qnf,qf,qtf->qnt", terms, gates, along).abs()
    total = weight.sum(dim=1, keepdim=True)
    return torch.where(total > 0, weight / torch.where(total > 0, total, 1), 1 / branch.ngram)


def _normalise(given: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Divided by the sum over the children; nothing where that is nothing."""
    total = given.sum(dim=dims, keepdim=True)
    return torch.where(total.abs() > 1e-12, given / torch.where(total == 0, 1, total), 0)


def word_relevance(ngrams: Sequence[NGrams], words: int) -> Tensor:
    """What all n-grams give to each word ``[words]``; what falls behind the last word is left out."""
    relevance = torch.zeros(words)
    for stride, by_word in ngrams:
        for at, parts in enumerate(by_word.float()):
            here = relevance[at * stride : at * stride + len(parts)]
            here += parts[: len(here)]
    return relevance


def relevance_by_leaving_out(model: nn.Module, token_ids: Tensor, chosen: int) -> Tensor:
    """How much the class's score falls if a word is an unknown one, for each word of a text ``[1, L]`` → ``[L]``."""
    length = token_ids.shape[1]
    without = token_ids.expand(length, -1).masked_fill(torch.eye(length, dtype=torch.bool), UNKNOWN)
    with torch.inference_mode():
        scores = [model(part).scores[:, chosen] for part in torch.split(without, max(1, MOST_TOKENS // length))]
        whole: Tensor = model(token_ids).scores[0, chosen]
    return whole - torch.cat(scores)


def find_deciding_words(
    model: nn.Module,
    task: TextReading,
    texts: Sequence[str | Tokens],
    class_name: str | None = None,
    by: By = "couplings",
    progress: Progress = silent,
) -> list[DecidingWords]:
    """Which words decide about texts.

    Args:
        model: text capsules in evaluation mode.
        task: how the model reads texts.
        texts: one or several; those that are split already are tuples of tokens.
        class_name: for which class; not given: for each text the one that the model finds.
        by: trace the ``couplings``, or measure by ``leaving-out`` one word after the other.
        progress: shows how far it is.
    """
    require_text_capsules(model)
    if class_name is not None and class_name not in task.class_names:
        raise InputError(f"the model has no class {class_name!r}; it knows {', '.join(task.class_names)}.")
    chosen = None if class_name is None else task.class_names.index(class_name)
    decided, tick = [], progress("reading", len(texts))
    for text in texts:
        decided.append(_decide(model, task, text, chosen, by))
        tick(1)
    return decided


def _decide(model: nn.Module, task: TextReading, text: str | Tokens, chosen: int | None, by: By) -> DecidingWords:
    """One text and one class, the one that the model finds if none is chosen."""
    if task.vocabulary is None:
        raise InputError("the task has no vocabulary, so it is not known which words the model has learned.")
    tokens = tokenize(text, task.lower, task.units) if isinstance(text, str) else text
    tokens, text = tokens[: task.max_length], text if isinstance(text, str) else " ".join(text)
    token_ids = torch.tensor([task.vocabulary.encode(tokens)])
    with torch.inference_mode():
        scores = model(token_ids).scores[0]
    index = int(scores.argmax()) if chosen is None else chosen
    ngrams = ngram_relevance(model, token_ids, index)
    known = tuple(token in task.vocabulary.token_ids for token in tokens)
    if by == "couplings":
        relevance = word_relevance(ngrams, len(tokens))
    else:
        relevance = relevance_by_leaving_out(model, token_ids, index)[: len(tokens)]
    return DecidingWords(text, tokens, known, task.class_names[index], float(scores[index]), relevance, ngrams)


def top_ngrams(words: DecidingWords, most: int = 5) -> list[tuple[str, float]]:
    """The n-grams of all branches that speak most for the class or against it, by falling weight."""
    weights: dict[str, float] = {}
    for part in words.ngrams:
        for at, value in enumerate(part.relevance.tolist()):
            text = " ".join(words.tokens[at * part.stride : at * part.stride + part.by_word.shape[1]])
            if text:
                weights[text] = weights.get(text, 0.0) + value
    return sorted(weights.items(), key=lambda pair: -abs(pair[1]))[:most]
