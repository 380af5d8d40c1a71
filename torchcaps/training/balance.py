"""Classes of very different sizes: weights for the loss, and what a user is told before and after training."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchcaps.data.images import Source
from torchcaps.data.sampling import count_classes, read_labels
from torchcaps.training.recipe import Recipe, RecipeError

MOST_RATIO = 10
"""Of the sizes of two classes, before anybody is told."""
MOST_NAMED = 5
REMEDY = "loss.class_weights balanced or data.sampling balanced"


def weigh_classes(wanted: str | Mapping[str, float], source: Source) -> Tensor | None:
    """The weights of the classes in the loss; None where all are alike.

    Args:
        wanted: "none"; "balanced": w_k = n / (K n_k), where n_k of the n labels of the K classes to train on are k, so
            that all classes together weigh the same, and the mean over the labels is 1; or weights by name, 1 for a
            class that is not named. A class that does not come has weight 1, too.
        source: what is trained on, without what is kept aside.

    Shapes:
        → float32 ``[K]``.
    """
    names = source.class_names
    if isinstance(wanted, Mapping):
        return _read_given(wanted, names)
    if wanted == "none":
        return None
    counts = count_classes(read_labels(source), len(names)).double()
    there = counts > 0
    weights = counts.sum() / (there.sum() * counts.clamp_min(1))
    return torch.where(there, weights, 1.0).float()


def _read_given(wanted: Mapping[str, float], names: Sequence[str]) -> Tensor:
    strangers = [name for name in wanted if name not in names]
    if strangers:
        near = difflib.get_close_matches(strangers[0], names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RecipeError(
            f"loss.class_weights names the class {strangers[0]!r:.60}, which the data does not have.{hint} Its "
            f"classes: {_list_names(names, 12)}.",
            option="loss.class_weights",
        )
    return torch.tensor([float(wanted.get(name, 1.0)) for name in names])


def is_balanced(recipe: Recipe | None) -> bool:
    """Whether a recipe does something about classes of unequal size."""
    return recipe is not None and (recipe.loss.class_weights != "none" or recipe.data.sampling == "balanced")


def describe_balance(recipe: Recipe, train: Source, validation: Source | None) -> list[str]:
    """What a user should know of the sizes of the classes before training, a sentence each."""
    counts = count_classes(read_labels(train), len(train.class_names))
    said = []
    if not is_balanced(recipe):
        said += _describe_imbalance(counts, train)
    elif recipe.loss.class_weights == "balanced" and recipe.data.sampling == "balanced" and _is_unequal(counts):
        said.append(
            "loss.class_weights balanced and data.sampling balanced together weigh rare classes twice, so that "
            "frequent ones may never be answered: one of them is enough."
        )
    if validation is not None:
        watched = count_classes(read_labels(validation), len(train.class_names))
        pairs = zip(train.class_names, counts.tolist(), watched.tolist(), strict=True)
        missing = [name for name, trained, aside in pairs if trained and not aside]
        if missing:
            said.append(
                f"No validation {train.kind.removesuffix('s')} (of {len(validation):,}) shows {_list_names(missing)}: "
                f"how well {'it is' if len(missing) == 1 else 'they are'} learned is not watched. Raise "
                f"data.validation, or add {train.kind}."
            )
    return said


def _is_unequal(counts: Tensor) -> bool:
    there = counts[counts > 0]
    return int(there.max()) > MOST_RATIO * int(there.min())


def _describe_imbalance(counts: Tensor, source: Source) -> list[str]:
    if not _is_unequal(counts):
        return []
    least, most = int(counts.masked_fill(counts == 0, int(counts.max())).argmin()), int(counts.argmax())
    names = source.class_names
    return [
        f"The classes to train on differ much in size: {names[most]!r} has {int(counts[most]):,} {source.kind}, "
        f"{names[least]!r} {int(counts[least]):,}. If rare ones matter as much, try {REMEDY}."
    ]


def describe_unanswered(unanswered: Mapping[str, int], kind: str, recipe: Recipe | None = None) -> str | None:
    """A sentence on the classes that are there and were never answered; None if there are none.

    Args:
        unanswered: their names, and how many items have each.
        kind: what items are called.
        recipe: by which was trained, to know what may help; not given: unknown.
    """
    if not unanswered:
        return None
    counted = [
        f"{name!r} ({count:,} {kind.removesuffix('s') if count == 1 else kind})" for name, count in unanswered.items()
    ]
    shown = _list_names(counted, quoted=True)
    advice = (
        "train longer, or add to them"
        if is_balanced(recipe)
        else f"try {REMEDY} if it is rarer than others, else train longer"
    )
    classes, were = ("class", "was") if len(unanswered) == 1 else ("classes", "were")
    return f"The {classes} {shown} {were} never answered: {advice}."


def _list_names(names: Sequence[str], most: int = MOST_NAMED, quoted: bool = False) -> str:
    shown = list(names[:most]) if quoted else [f"{name!r}" for name in names[:most]]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown) + more
