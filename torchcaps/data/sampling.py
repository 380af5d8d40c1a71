"""How often each class comes: counts, the stratum of an item, and draws in which all classes are equally frequent."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data.images import Source

AT_A_TIME = 500


def read_labels(source: Source) -> Tensor:
    """The labels of all items: those of the source's data; of a source without, those of its batches.

    Of images with several objects, which are made on the fly, it is the first object of each.

    Shapes:
        → int64 ``[N]``, or flags bool ``[N, K]``.
    """
    labels = getattr(getattr(source, "data", None), "labels", None)
    if isinstance(labels, Tensor) and len(labels) == len(source):
        return labels
    parts = torch.split(torch.arange(len(source)), AT_A_TIME)
    read = torch.cat([source.batch(part, 0).labels for part in parts]) if len(source) else torch.zeros(0).long()
    return read[:, 0] if read.dim() == 2 and read.dtype != torch.bool else read


def count_classes(labels: Tensor, classes: int) -> Tensor:
    """How many items have each class, int64 ``[K]``; labels as :func:`read_labels` gives them."""
    return labels.sum(dim=0) if labels.dim() == 2 else labels.bincount(minlength=classes)


def find_strata(labels: Tensor) -> Tensor:
    """The class that stands for each item where as many of each are wanted: its own, of several the rarest.

    Shapes:
        labels int64 ``[N]``, or flags bool ``[N, K]``, of which items without any get K → int64 ``[N]``.
    """
    if labels.dim() == 1:
        return labels
    counts = labels.sum(dim=0)
    rarity = torch.where(labels, counts, len(labels) + 1)  # [N, K]; of equal ones argmin takes the first
    return torch.where(labels.any(dim=1), rarity.argmin(dim=1), labels.shape[1])


def draw_balanced(strata: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """So many items, as many of each stratum (one more of some, if that is not whole), in random order.

    Within a stratum every item comes once before any comes again. A large one is not seen whole.

    Args:
        strata: of each item, see :func:`find_strata`.
        count: of items to draw.
        generator: decides which, and their order.

    Shapes:
        strata int64 ``[N]`` → indices int64 ``[count]``.
    """
    groups = [(strata == stratum).nonzero()[:, 0] for stratum in sorted(set(strata.tolist()))]
    lucky = set(torch.randperm(len(groups), generator=generator)[: count % len(groups)].tolist())
    drawn = []
    for number, members in enumerate(groups):
        wanted = count // len(groups) + (number in lucky)
        rounds = [members[torch.randperm(len(members), generator=generator)] for _ in range(-(-wanted // len(members)))]
        drawn.append(torch.cat([*rounds, members[:0]])[:wanted])
    together = torch.cat(drawn)
    return together[torch.randperm(count, generator=generator)]
