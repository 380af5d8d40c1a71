"""What a training step needs of memory: looked at before it begins, and told together with what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.images import Batch, Source
from torchcaps.losses import CapsuleLoss
from torchcaps.machine import WeightLimit, free_memory
from torchcaps.models.cnn import parameter_count
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.specs import ModelSpec

PER_WEIGHT = 16
"""Bytes: itself, its gradient and the two means of Adam."""
SIDES = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16)
"""Of images, that are tried to find one that fits."""
CERTAIN = 0.8
"""Refused is only what is too large even if it needs no more than this part of what is reckoned."""
ADVISED = 0.6
"""Part of the free memory that advice may be reckoned to need: a step really takes 1.2 to 1.7 times as much."""


class Need(NamedTuple):
    """What a model's training needs.

    Attributes:
        weights: how many numbers are learned.
        per_item: bytes that are kept of each item of a batch for the gradients.
        fixed: bytes that are kept whatever the batch.
    """

    weights: int
    per_item: float
    fixed: float


def measure_need(model: nn.Module, loss: nn.Module, batch: Batch) -> Need:
    """Count what a step keeps for its gradients, of a batch and of twice as many; nothing random is drawn or changed.

    It is less than a step really needs, which also has gradients of what is between, and what kernels take for a while.
    """
    twice = Batch(*(torch.cat([part, part]) for part in batch))
    training = model.training
    model.eval()  # no running mean is moved
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            small, large = (_count_kept(model, loss, some) for some in (batch, twice))
    finally:
        model.train(training)
    per_item = max(0, large - small) / len(batch.labels)
    return Need(parameter_count(model), per_item, max(0.0, small - per_item * len(batch.labels)))


def _count_kept(model: nn.Module, loss: nn.Module, batch: Batch) -> int:
    """Bytes of all tensors that autograd keeps, without weights and what they are made from."""
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def look(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(look, lambda tensor: tensor):
        total = loss(model(batch.inputs, batch.labels), batch.labels, batch.targets).total
    count = sum(size for storage, size in kept.items() if storage not in own)
    del total  # until here: what is kept must not be freed and its place counted for another tensor
    return count


class StepBudget:
    """What a recipe would need, and how much there is: by this it is refused, or told what fits.

    Args:
        spec: the model.
        recipe: batch size, devices and the kind of numbers are read from it.
        source: what it is trained on.
    """

    def __init__(self, spec: ModelSpec, recipe: Recipe, source: Source) -> None:
        self.spec, self.recipe = spec, recipe
        self.batch = source.batch(torch.arange(min(2, len(source))), 0)
        self.free = measure_free(recipe)  # before the model is made
        self.need: Need | None = None

    def count_bytes(self, need: Need, batch_size: int) -> float:
        """What a step needs, of all processes that share the memory."""
        training, on_gpu = self.recipe.training, uses_gpu(self.recipe)
        sharing = 1 if on_gpu else training.devices
        items = batch_size / (training.nodes * (training.devices if on_gpu else 1))
        half = 1.0 if str(training.precision) == "32" else 0.5
        weight = PER_WEIGHT + (4 if self.recipe.optimizer.ema else 0)
        return sharing * (weight * need.weights + half * need.fixed) + half * need.per_item * items

    def check(self, model: nn.Module, loss: nn.Module, tell: Callable[[str], None] | None) -> None:
        """Refuse a training step that cannot fit, and tell of one that may not."""
        self.need = measure_need(model, loss, self.batch)
        needed = self.count_bytes(self.need, self.recipe.training.batch_size)
        if self.free is None or needed <= self.free:
            return
        if CERTAIN * needed > self.free:
            raise RunError(self.describe(), option="training.batch_size")
        if tell:
            tell(f"This may be too much for this machine: {self.describe()}")

    def describe(self) -> str:
        """What is needed, what there is, and what would fit."""
        need = self.need or measure_without_memory(self.spec, self.recipe, self.batch)
        if need is None:
            return "choose a smaller batch (training.batch_size), smaller images (data.resize) or another model."
        size = self.recipe.training.batch_size
        needed, weights = self.count_bytes(need, size), self.count_bytes(need, 0)
        free = "" if self.free is None else f", and {_spell_bytes(self.free)} are free"
        advice = [*self._find_batch_size(need), *self._find_side()]
        return (
            f"a training step needs at least {_spell_bytes(needed)} of memory, {_spell_bytes(weights)} of them for "
            f"{need.weights:,} weights and {_spell_bytes(needed - weights)} for a batch of {size}{free}. "
            + (f"What would fit: {', or '.join(advice)}." if advice else "Choose a smaller model (model.name).")
        )

    def _fits(self, need: Need, batch_size: int) -> bool:
        return self.free is None or self.count_bytes(need, batch_size) <= ADVISED * self.free

    def _find_batch_size(self, need: Need) -> list[str]:
        """The largest power of two that fits and is less than what was asked for."""
        training = self.recipe.training
        size = 1 << max(0, (training.batch_size - 1).bit_length() - 1)
        while size and not (self._fits(need, size) and size % (training.devices * training.nodes) == 0):
            size //= 2
        return [f"a batch of {size} (training.batch_size)"] if 1 <= size < training.batch_size else []

    def _find_side(self) -> list[str]:
        """The largest images that fit, tried without any memory."""
        now = self.spec.task.input_shape
        for side in SIDES:
            smaller = self.spec.task.resize_to(side)
            if smaller is None or side >= min(now[1:]):
                continue
            need = measure_without_memory(replace(self.spec, task=smaller), self.recipe, self.batch)
            if need is not None and self._fits(need, self.recipe.training.batch_size):
                _, height, width = smaller.input_shape
                return [f"images of {height}×{width} with {need.weights:,} weights (data.{smaller.size_option} {side})"]
        return []


def measure_without_memory(spec: ModelSpec, recipe: Recipe, batch: Batch) -> Need | None:
    """What a model would need, made on torch's meta device; None for one that cannot be made there.

    Args:
        spec: the model, for images of any size.
        recipe: its loss is read.
        batch: labels and targets like these.
    """
    inputs, targets = (part.to("meta") for part in (batch.inputs, batch.targets))
    if inputs.dim() == 4:
        size = spec.task.input_shape[-2:]
        inputs, targets = (part.new_empty(*part.shape[:-2], *size) for part in (inputs, targets))
    try:
        with torch.device("meta"):
            model = spec.build()
        loss = CapsuleLoss(recipe.loss.kind, reconstruction_scale=recipe.loss.reconstruction_scale)
        return measure_need(model, loss, Batch(inputs, batch.labels.to("meta"), targets))
    except Exception:  # a user's own model may need real numbers, or another size
        return None


def uses_gpu(recipe: Recipe) -> bool:
    """Whether a recipe is trained on a graphics card of this machine."""
    wanted = recipe.training.accelerator
    return wanted == "gpu" or (wanted == "auto" and torch.cuda.is_available())


def measure_free(recipe: Recipe) -> int | None:
    """Bytes that can be had where a recipe is trained."""
    if uses_gpu(recipe) and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    return free_memory()


def limit_weights(budget: StepBudget) -> WeightLimit:
    """Refuses a model whose weights alone are too many to be trained here, before any of them is made."""
    most = (budget.free or 2**62) // PER_WEIGHT

    def refuse(needed: int) -> RunError:
        budget.need = measure_without_memory(budget.spec, budget.recipe, budget.batch)
        if budget.need is not None:
            return RunError(budget.describe(), option="data.resize")
        return RunError(
            f"the model would have {needed:,} weights or more, which need {_spell_bytes(needed * PER_WEIGHT)} to be "
            f"trained; {_spell_bytes(most * PER_WEIGHT)} are free. Choose smaller images (data.resize, "
            "data.options.image_size) or smaller options of the model."
        )

    return WeightLimit(most, refuse)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, in Python's words or in torch's."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in str(error) or "not enough memory" in str(error)
    )


@contextmanager
def answer_out_of_memory(budget: StepBudget) -> Iterator[None]:
    """Turn memory that runs out into a :class:`RunError` that says what would fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"the memory ran out: {budget.describe()}") from error


def _spell_bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
