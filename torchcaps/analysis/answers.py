"""What a model says about test images and texts, and which of them are worth a look."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from torchcaps.analysis.ground import Ground, find_ground
from torchcaps.capsules import Capsules
from torchcaps.data.images import Batch, ImageSource
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.text.texts import Texts
from torchcaps.errors import InputError
from torchcaps.models.output import ModelOutput
from torchcaps.training.tasks.metrics import PRESENT, choose_classes, flag_labels, grade, probabilities

AT_A_TIME = 100
TEXTS_AT_A_TIME = 500


def choose_items(total: int, wanted: int, seed: int) -> Tensor:
    """Which of so many items are looked at: all of them, or a random choice that the seed decides, in order."""
    if wanted >= total:
        return torch.arange(total)
    generator = torch.Generator().manual_seed(sub_seed(seed, Stream.EXPLAINED))
    return torch.randperm(total, generator=generator)[:wanted].sort().values


@dataclass(frozen=True)
class ImageAnswers:
    """Test images and what a model says about them.

    Args:
        class_names: what the classes are called.
        total: how many test images there are.
        indices: of the chosen ones among them.
        batch: the chosen ones.
        scores: activations of the class capsules, or probabilities ``[N, K]``.
        right: which answers are right, bool ``[N]``.
        capsules: the class capsules, None for a model without.
        objects: how many objects an image shows.
    """

    class_names: tuple[str, ...]
    total: int
    indices: Tensor
    batch: Batch
    scores: Tensor
    right: Tensor
    capsules: Capsules | None
    objects: int = 1

    @property
    def multi_label(self) -> bool:
        """Whether an image may have any number of classes."""
        return self.batch.labels.dtype == torch.bool

    @property
    def labels(self) -> Tensor:
        """``[N, M]``, also for one object; of any number of labels the first of each image ``[N, 1]``."""
        if self.multi_label:
            return self.batch.labels.int().argmax(dim=1, keepdim=True)
        return self.batch.labels.view(len(self.indices), -1)

    @property
    def label_flags(self) -> Tensor:
        """Which classes each image has, bool ``[N, K]``."""
        return flag_labels(self.batch.labels, len(self.class_names))

    @property
    def predicted_flags(self) -> Tensor:
        """Which classes the model answers, bool ``[N, K]``; of any number of labels those that are present."""
        return choose_classes(self.scores, self.batch.labels)

    @property
    def predictions(self) -> Tensor:
        """The classes of the highest scores ``[N, M]``, where they are among the labels in the labels' order."""
        return match_order(self.scores.topk(self.objects, dim=1).indices, self.labels)

    @property
    def pictures(self) -> Tensor:
        """The images as a person sees them, in 0 … 1 ``[N, C, H, W]``; the model may see them standardised."""
        return self.batch.targets if self.objects == 1 else self.batch.inputs

    @cached_property
    def ground(self) -> Ground:
        """What the images lie on, and where they have bars; of several objects what each of them lies on."""
        found = find_ground(self.batch.targets.flatten(0, -4))
        return found if self.objects == 1 else found._replace(content=None)  # composed here, so without bars

    @property
    def accuracy(self) -> float:
        """The share of images whose answer is right; of several objects all must be."""
        return float(self.right.double().mean())

    @property
    def share_of_objects(self) -> float:
        """The share of objects that are among the answers."""
        hits = (self.labels[:, :, None] == self.predictions[:, None]).any(dim=2)
        return float(hits.double().mean())


def answer_images(model: nn.Module, source: ImageSource, images: int, seed: int) -> ImageAnswers:
    """Ask a model about some of a source's images.

    Args:
        model: in evaluation mode.
        source: all test images.
        images: how many; all if there are no more.
        seed: decides which.
    """
    if not len(source):
        raise InputError("there are no test images.")
    indices = choose_items(len(source), images, seed)
    batch = source.batch(indices, 0)  # made-up images are those of an evaluation, whatever the seed
    output = answer_batch(model, batch.inputs)
    right = grade(output, batch.labels) > 0
    scores = probabilities(output, batch.labels.dtype == torch.bool)
    return ImageAnswers(
        tuple(source.class_names), len(source), indices, batch, scores, right, output.capsules, source.objects
    )


def answer_batch(model: nn.Module, inputs: Tensor) -> ModelOutput:
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


def match_order(predictions: Tensor, labels: Tensor) -> Tensor:
    """Two predicted classes in the order of the labels where they are among them ``[N, 2]``; others as they are."""
    if labels.shape[1] != 2:
        return predictions
    swap = (predictions[:, 0] == labels[:, 1]) | (predictions[:, 1] == labels[:, 0])
    return torch.where(swap[:, None], predictions.flip(1), predictions)


def spread_over_classes(answers: ImageAnswers, most: int, among: Tensor | None = None) -> Tensor:
    """Positions of up to so many images, the classes taking turns, so that each has its share.

    Args:
        answers: of all images.
        most: images.
        among: those that may be taken, bool ``[N]``; not given: all.
    """
    allowed = torch.ones(len(answers.indices), dtype=torch.bool) if among is None else among
    label = answers.labels[:, 0]
    turn = torch.zeros_like(label)
    for index in range(len(answers.class_names)):
        here = (label == index) & allowed
        turn[here] = torch.arange(int(here.sum()))
    places = allowed.nonzero()[:, 0]
    order = (turn * len(answers.class_names) + label)[places].argsort(stable=True)
    return places[order][:most]


def choose_cases(answers: ImageAnswers, right: int, wrong: int) -> tuple[list[int], list[int]]:
    """Right cases of different classes and the first wrong ones, as positions: nothing is picked by looks."""
    missed = (~answers.right).nonzero()[:wrong, 0].tolist()
    return spread_over_classes(answers, right, answers.right).tolist(), missed


@dataclass(frozen=True)
class TextAnswers:
    """Test texts and what a model says about them.

    Args:
        class_names: what the classes are called.
        total: how many test texts there are.
        indices: of the chosen ones ``[N]``.
        texts: the chosen ones, as the tokens that the data has.
        labels: class indices ``[N]``, or flags bool ``[N, K]``.
        scores: ``[N, K]``.
        right: bool ``[N]``.
    """

    class_names: tuple[str, ...]
    total: int
    indices: Tensor
    texts: tuple[tuple[str, ...], ...]
    labels: Tensor
    scores: Tensor
    right: Tensor

    @property
    def multi_label(self) -> bool:
        """Whether a text may have any number of classes."""
        return self.labels.dtype == torch.bool

    @property
    def accuracy(self) -> float:
        """The share of texts whose answer is right; of any number of labels exactly those."""
        return float(self.right.double().mean())

    def label_names(self, at: int) -> list[str]:
        """The names of the right classes of a text."""
        label = self.labels[at]
        return [self.class_names[k] for k in (label.nonzero()[:, 0].tolist() if self.multi_label else [int(label)])]

    def predicted_names(self, at: int) -> list[str]:
        """The names of the classes that the model finds in a text."""
        if self.multi_label:
            return [self.class_names[k] for k in (self.scores[at] > PRESENT).nonzero()[:, 0].tolist()]
        return [self.class_names[int(self.scores[at].argmax())]]


def answer_texts(model: nn.Module, source: Texts, texts: int, seed: int) -> TextAnswers:
    """Ask a model about some of a source's texts.

    Args:
        model: in evaluation mode.
        source: all test texts.
        texts: how many; all if there are no more.
        seed: decides which.
    """
    if not len(source):
        raise InputError("there are no test texts.")
    chosen = choose_items(len(source), texts, seed)
    scores = torch.empty(len(source), len(source.class_names))
    right = torch.zeros(len(source), dtype=torch.bool)
    with torch.inference_mode():
        for part in source.evaluation_parts(chosen, TEXTS_AT_A_TIME):
            batch = source.batch(part)
            output = model(batch.inputs)
            scores[part] = probabilities(output, source.multi_label)
            right[part] = grade(output, batch.labels) > 0
    tokens = tuple(source.data.texts[index] for index in chosen.tolist())
    names, labels = tuple(source.class_names), source.data.labels[chosen]
    return TextAnswers(names, len(source), chosen, tokens, labels, scores[chosen], right[chosen])
