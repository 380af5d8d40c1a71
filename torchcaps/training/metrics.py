"""When is an answer right? For one class, for several objects, and for any number of labels."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from torchcaps.models.output import ModelOutput

PRESENT = 0.5
"""A class is said to be present if its capsule is longer, or its probability larger, than this."""


def probabilities(output: ModelOutput, multi_label: bool = False) -> Tensor:
    """Lengths of the class capsules, or a model's logits as probabilities: ``[B, K]``."""
    if output.capsules is not None:
        return output.scores
    return output.scores.sigmoid() if multi_label else output.scores.softmax(dim=1)


def correct(output: ModelOutput, labels: Tensor) -> Tensor:
    """Which answers are right, float ``[B]``.

    Labels ``[B]``: the largest score is the label's. ``[B, M]``: the M largest are those of the M labels. Flags bool
    ``[B, K]``: exactly the classes with a flag are present (exact match).
    """
    if labels.dtype == torch.bool:
        return ((probabilities(output, True) > PRESENT) == labels).all(dim=1).float()
    if labels.dim() == 1:
        return (output.scores.argmax(dim=1) == labels).float()
    found = output.scores.topk(labels.shape[1], dim=1).indices.sort(dim=1).values
    return (found == labels.sort(dim=1).values).all(dim=1).float()


def multi_label_measures(found: Tensor, labels: Tensor) -> dict[str, float]:
    """Exact match, and precision, recall and F1 both over all decisions (micro) and as means over the items (samples).

    An item for which nothing is found has precision 0.

    Shapes:
        found and labels bool ``[N, K]``.
    """
    both = (found & labels).sum(dim=1).double()
    said, there = found.sum(dim=1).double(), labels.sum(dim=1).double()

    def ratio(part: Tensor, whole: Tensor) -> Tensor:
        return part / whole.clamp_min(1)

    measures = {"exact_match": float((found == labels).all(dim=1).double().mean())}
    micro = [float(ratio(part.sum(), whole.sum())) for part, whole in ((both, said), (both, there))]
    samples = [ratio(both, said), ratio(both, there), ratio(2 * both, said + there)]
    names = ("precision", "recall", "f1")
    measures |= dict(zip(names, [*micro, float(ratio(2 * both.sum(), (said + there).sum()))], strict=True))
    return measures | {f"{name}_of_samples": float(v.mean()) for name, v in zip(names, samples, strict=True)}


def stacked(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pairs of tensors, batch by batch, as two whole ones."""
    found, labels = zip(*parts, strict=True)
    return torch.cat(found), torch.cat(labels)
