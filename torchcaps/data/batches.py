"""Batches of a source, epoch by epoch: shuffled, shared out over processes, and resumable in the middle."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from torchcaps.data.images import Batch, Source
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.sampling import draw_balanced, find_strata, read_labels
from torchcaps.errors import DataError


class TrainingBatches:
    """Shuffled batches. Everything follows from seed, epoch and position, so an epoch can be taken up anywhere.

    Items that would not fill the last batch are left out; which ones, changes from epoch to epoch. With several
    processes, each gets its part of the same global batches.

    Args:
        source: where batches come from.
        batch_size: of all processes together.
        seed: of order and augmentation.
        rank: number of this process.
        world: how many processes.
        sampling: "shuffled" has every item once in an epoch; "balanced" as many of each class, so that an epoch has as
            many items as before, those of rare classes several times and not all of frequent ones. Of items with
            several labels the rarest counts.
    """

    def __init__(
        self, source: Source, batch_size: int, seed: int, rank: int = 0, world: int = 1, sampling: str = "shuffled"
    ) -> None:
        if batch_size < 1 or batch_size % world:
            raise DataError(f"the batch size must be a positive multiple of the {world} processes, got {batch_size}.")
        if batch_size > len(source):
            raise DataError(
                f"a batch of {batch_size} is larger than the {len(source)} training {source.kind}: choose a smaller "
                "batch size.",
                option="training.batch_size",
            )
        self.source, self.batch_size, self.seed, self.rank, self.world = source, batch_size, seed, rank, world
        self.strata = find_strata(read_labels(source)) if sampling == "balanced" else None
        self.epoch = self.position = 0

    def __len__(self) -> int:
        return len(self.source) // self.batch_size

    def indices(self, epoch: int) -> torch.Tensor:
        """The indices of every batch of an epoch, for all processes: ``[batches, batch_size]``."""
        generator = torch.Generator().manual_seed(sub_seed(self.seed, Stream.ORDER, epoch))
        if self.strata is not None:
            return draw_balanced(self.strata, len(self) * self.batch_size, generator).view(len(self), self.batch_size)
        order = torch.randperm(len(self.source), generator=generator)
        return order[: len(self) * self.batch_size].view(len(self), self.batch_size)

    def augmentation_seed(self) -> int:
        """Of the batch at the current position. Where items come again in an epoch, they are changed anew."""
        step = () if self.strata is None else (self.position,)
        return sub_seed(self.seed, Stream.AUGMENTATION, self.epoch, *step)

    def __iter__(self) -> Iterator[Batch]:
        """The rest of the current epoch, or the next one if that is done."""
        if self.position >= len(self):
            self.epoch, self.position = self.epoch + 1, 0
        order = self.indices(self.epoch)
        while self.position < len(self):
            mine, seed = order[self.position, self.rank :: self.world], self.augmentation_seed()
            self.position += 1  # before the batch is used: a checkpoint after its step points at the next
            yield self.source.batch(mine, seed)

    def start(self, epoch: int) -> None:
        """Be in this epoch: at its beginning, or where in it a loaded state says."""
        if self.epoch != epoch or self.position >= len(self):
            self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Where it is."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go there."""
        self.epoch, self.position = state["epoch"], state["position"]


MOST_NUMBERS = 500 * 3 * 64 * 64
"""Of the images of one batch that nothing is learned from; their activations take far more memory."""


class EvaluationBatches:
    """Everything once, as it is, in the batches that the source likes. Processes get every world-th image or text.

    Args:
        source: where batches come from.
        batch_size: the most items; of images above 64×64 fewer, as many as have so many pixels.
        seed: of what is random.
        rank: number of this process.
        world: how many processes.
    """

    def __init__(self, source: Source, batch_size: int = 500, seed: int = 0, rank: int = 0, world: int = 1) -> None:
        batch_size = max(1, min(batch_size, MOST_NUMBERS // math.prod(getattr(source, "input_shape", (1,)))))
        self.source, self.seed = source, seed
        mine = torch.arange(rank, len(source), world)
        self.parts = source.evaluation_parts(mine, batch_size) if len(mine) else ()

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[Batch]:
        """One pass."""
        for part in self.parts:
            yield self.source.batch(part, self.seed)
