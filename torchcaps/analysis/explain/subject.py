"""What is explained: a trained model of images, some test images, and what it says about them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.data.images import Batch, ImageSource
from torchcaps.data.options import DataOptions
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.layers import ReconstructionDecoder
from torchcaps.models.output import ModelOutput
from torchcaps.training.evaluation import evaluation_images
from torchcaps.training.metrics import correct, probabilities
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import ModelSpec, RunError

AT_A_TIME = 100


@dataclass(frozen=True)
class Subject:
    """A model, test images, and its answers.

    Args:
        folder: of the run.
        recipe: of the run.
        spec: of the model.
        model: in evaluation mode.
        data: name of the data.
        source: all test images.
        seed: of the choice among them, and of all else that is random.
        indices: of the chosen ones.
        batch: the chosen ones.
        scores: activations of the class capsules, or probabilities ``[N, K]``.
        right: which answers are right, bool ``[N]``.
        capsules: the class capsules, None for a model without.
    """

    folder: Path
    recipe: Recipe
    spec: ModelSpec
    model: nn.Module
    data: str
    source: ImageSource
    seed: int
    indices: Tensor
    batch: Batch
    scores: Tensor
    right: Tensor
    capsules: Capsules | None

    @property
    def objects(self) -> int:
        """How many objects an image shows."""
        return self.source.objects

    @property
    def patches(self) -> int:
        """Of each image, whose scores ``torchcaps evaluate`` averages. Here only the central one is looked at."""
        return self.spec.preparation.crops

    @property
    def decoder(self) -> ReconstructionDecoder | None:
        """What draws images from class capsules, if the model has it."""
        found = getattr(self.model, "decoder", None)
        return found if isinstance(found, ReconstructionDecoder) else None

    @property
    def labels(self) -> Tensor:
        """``[N, M]``, also for one object."""
        return self.batch.labels.view(len(self.indices), -1)

    @property
    def predictions(self) -> Tensor:
        """The classes of the highest scores, ``[N, M]``."""
        return self.scores.topk(self.objects, dim=1).indices

    @property
    def pictures(self) -> Tensor:
        """The images as a person sees them, in 0 … 1 ``[N, C, H, W]``; the model may see them standardised."""
        if self.objects == 1:
            return self.batch.targets
        return self.batch.inputs

    def drawn(self, chosen: Tensor, classes: Tensor) -> Tensor:
        """Images decoded from one class capsule each: indices and classes ``[n]`` → ``[n, C, H, W]``."""
        assert self.decoder is not None
        assert self.capsules is not None
        capsules = Capsules(self.capsules.pose[chosen], self.capsules.activation[chosen])
        with torch.no_grad():
            return self.decoder(capsules, classes)

    def spread_over_classes(self, most: int, among: Tensor | None = None) -> Tensor:
        """Indices of up to so many images, the classes taking turns, so that each has its share."""
        allowed = torch.ones(len(self.indices), dtype=torch.bool) if among is None else among
        label = self.labels[:, 0]
        turn = torch.zeros_like(label)
        for name in range(len(self.spec.class_names)):
            of_class = (label == name) & allowed
            turn[of_class] = torch.arange(int(of_class.sum()))
        places = allowed.nonzero()[:, 0]
        order = (turn * len(self.spec.class_names) + label)[places].argsort(stable=True)
        return places[order][:most]


def load_subject(
    run: str | os.PathLike[str],
    recipe: Recipe,
    model: nn.Module,
    spec: ModelSpec,
    overrides: DataOptions | None = None,
    images: int = 500,
    seed: int = 0,
) -> Subject:
    """Choose test images and ask the model about them.

    Args:
        run: a run folder.
        recipe: of the run.
        model: of the run, in evaluation mode.
        spec: of the model.
        overrides: other data than the run's own.
        images: how many; all if there are no more.
        seed: decides which.
    """
    options = overrides or recipe.data
    source = evaluation_images(options, "test", 1, spec, overrides is not None)
    if not len(source):
        raise RunError("there are no test images.")
    indices = torch.arange(len(source))
    if images < len(source):
        generator = torch.Generator().manual_seed(sub_seed(seed, Stream.EXPLAINED))
        indices = torch.randperm(len(source), generator=generator)[:images].sort().values
    batch = source.batch(indices, 0)  # made-up images are those of `torchcaps evaluate`, whatever the seed
    output = answers(model, batch.inputs)
    right = correct(output, batch.labels) > 0
    return Subject(
        Path(run), recipe, spec, model, options.name, source, seed, indices, batch, probabilities(output), right,
        output.capsules,
    )  # fmt: skip


def answers(model: nn.Module, inputs: Tensor) -> ModelOutput:
    """Scores and class capsules of many images; nothing is reconstructed yet."""
    scores, poses, activations = [], [], []
    with torch.no_grad():  # not inference_mode: what is measured later may ask for gradients
        for some in torch.split(inputs, AT_A_TIME):
            output = model(some)
            scores.append(output.scores)
            if output.capsules is not None:
                poses.append(output.capsules.pose)
                activations.append(output.capsules.activation)
    capsules = Capsules(torch.cat(poses), torch.cat(activations)) if poses else None
    return ModelOutput(torch.cat(scores), capsules)
