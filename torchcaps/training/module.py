"""One Lightning module for all models and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data.batches import EvaluationBatches, TrainingBatches
from torchcaps.data.images import Batch, Source
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.extras import comes_with_an_extra
from torchcaps.losses import CapsuleLoss
from torchcaps.training.balance import weigh_classes
from torchcaps.training.recipe import OptimizerOptions, Recipe
from torchcaps.training.tasks.metrics import grade, measure_answers, probabilities

with comes_with_an_extra():
    import pytorch_lightning as pl
    from torchmetrics import MeanMetric, Metric
    from torchmetrics.utilities import dim_zero_cat


def learning_rate_factor(options: OptimizerOptions) -> Callable[[int], float]:
    """Decay as in the paper: 0.96 per 2,000 steps, continuously, never below the floor."""

    def factor(step: int) -> float:
        if options.schedule == "constant":
            return 1.0
        return float(max(options.floor / options.lr, options.decay ** (step / options.decay_steps)))

    return factor


class AnswersSoFar(Metric):
    """Scores ``[N, K]`` of a model and labels of the same items, of all processes together; no part of a checkpoint."""

    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__(sync_on_compute=True)
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Some more."""
        self.scores.append(scores.detach().float())
        self.labels.append(labels)

    def compute(self) -> tuple[Tensor, Tensor]:
        """All."""
        return dim_zero_cat(self.scores).cpu(), dim_zero_cat(self.labels).cpu()


class CapsuleModule(pl.LightningModule):
    """Trains a model on a source by a recipe.

    Args:
        model: of this library.
        recipe: loss, optimizer, batch size and seed are read from it.
        train: what to train on.
        validation: what to watch, or None.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, train: Source, validation: Source | None) -> None:
        super().__init__()
        self.model, self.recipe, self.train_source, self.validation_source = model, recipe, train, validation
        self.loss = CapsuleLoss(
            recipe.loss.kind,
            reconstruction_scale=recipe.loss.reconstruction_scale,
            class_weights=weigh_classes(recipe.loss.class_weights, train),
        )
        self.counted: dict[str, Tensor] = {}
        self.means = nn.ModuleDict(
            {f"{part}_{name}": MeanMetric() for part in ("train", "val") for name in ("loss", "accuracy")}
        )
        self.validation_answers = AnswersSoFar()

    def mean(self, part: str, name: str) -> MeanMetric:
        """The running mean of a number."""
        metric = self.means[f"{part}_{name}"]
        assert isinstance(metric, MeanMetric)
        return metric

    def train_dataloader(self) -> TrainingBatches:
        """Batches of this process."""
        training = self.recipe.training
        self.batches = TrainingBatches(
            self.train_source, training.batch_size, training.seed, self.trainer.global_rank, self.trainer.world_size,
            self.recipe.data.sampling,
        )  # fmt: skip
        return self.batches

    def on_train_epoch_start(self) -> None:
        """A checkpoint from the end of an epoch is taken up with the next; Lightning does not tell the loader."""
        self.batches.start(self.recipe.training.first_epoch + self.trainer.current_epoch)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Dropout and the like follow from seed and step, so that a resumed run draws the same."""
        torch.manual_seed(
            sub_seed(self.recipe.training.seed, Stream.DROPOUT, self.trainer.global_step, self.trainer.global_rank)
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """What the epoch has counted so far, over all processes: a resumed epoch reports all of itself."""
        counted = {}
        for name in ("loss", "accuracy"):
            metric = self.mean("train", name)
            pair = torch.stack([metric.mean_value, metric.weight]).detach()
            everyone = self.all_gather(pair)
            assert isinstance(everyone, Tensor)
            counted[name] = everyone.reshape(-1, 2).sum(dim=0).cpu()
        checkpoint["counted"] = counted

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it up; one process for all."""
        self.counted = checkpoint["counted"]

    def on_train_start(self) -> None:
        """See above; by now it is known which process this is."""
        for name, (value, weight) in self.counted.items():
            if self.trainer.global_rank == 0:
                metric = self.mean("train", name)
                metric.mean_value, metric.weight = value.to(self.device), weight.to(self.device)
        self.counted = {}

    def val_dataloader(self) -> EvaluationBatches | list[Any]:
        """Validation batches of this process."""
        if self.validation_source is None:
            return []
        seed = self.recipe.training.seed
        return EvaluationBatches(self.validation_source, 500, seed, self.trainer.global_rank, self.trainer.world_size)

    def _step(self, batch: Batch, part: str) -> Tensor:
        output = self.model(batch.inputs, batch.labels)
        parts = self.loss(output, batch.labels, batch.targets)
        with torch.no_grad():
            right = grade(output, batch.labels)
            self.mean(part, "loss").update(parts.total.detach(), len(right))
            self.mean(part, "accuracy").update(right)
            if part == "train":
                bar = {"loss": parts.total.detach(), "accuracy": right.mean()}
                self.log_dict(bar, prog_bar=True, logger=False)
                steps = {
                    "step/loss": parts.classification.detach(),
                    "step/reconstruction": parts.reconstruction.detach(),
                }
                self.log_dict(steps)
            else:
                scores = probabilities(output, batch.labels.dtype == torch.bool)
                self.validation_answers.update(scores, batch.labels)
        total: Tensor = parts.total
        return total

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Loss of one batch."""
        return self._step(batch, "train")

    def validation_step(self, batch: Batch, _: int) -> None:
        """Count."""
        self._step(batch, "val")

    def epoch_means(self, part: str) -> dict[str, float]:
        """Loss and accuracy since the last call, over all processes."""
        means = {}
        for name in ("loss", "accuracy"):
            metric = self.mean(part, name)
            means[f"{part}_{name}"] = float(metric.compute())
            metric.reset()
        return means

    def measure_validation(self) -> dict[str, Any]:
        """What :func:`~.tasks.metrics.measure_answers` says of the validation since the last call, of all processes."""
        scores, labels = self.validation_answers.compute()
        self.validation_answers.reset()
        return measure_answers(scores, labels, tuple(self.train_source.class_names))

    def configure_optimizers(self) -> Any:
        """Adam and its schedule, stepped once per batch."""
        options = self.recipe.optimizer
        learned = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        # In one pass over memory: a table of word vectors is most of a text model, and most of it rests in every step.
        mixed = self.trainer.precision != "32-true"  # Lightning cannot clip gradients with both
        fused = not mixed and all(parameter.device.type == "cpu" for parameter in learned)
        optimizer = torch.optim.Adam(learned, options.lr, weight_decay=options.weight_decay, fused=fused or None)
        schedule: torch.optim.lr_scheduler.LRScheduler
        if options.schedule == "one-cycle":
            steps = len(self.train_source) // self.recipe.training.batch_size * self.recipe.training.epochs
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps + 1)
        else:
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate_factor(options))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
