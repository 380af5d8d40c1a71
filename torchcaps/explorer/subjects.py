"""The models that are explored, and what is asked of them. No web here."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps.analysis.couplings import class_children, class_layer, require_capsule_model, routing_flow
from torchcaps.analysis.iterations import MOST_ITERATIONS
from torchcaps.capsules import Capsules
from torchcaps.explorer.schemas import (
    LARGEST_POSE,
    Card,
    Drawing,
    Look,
    ModelInfo,
    Part,
    PictureShape,
    RoutedPicture,
    RoutingStep,
    Sample,
)  # fmt: skip
from torchcaps.models.base import CapsuleModel, Decoder, find_decoder
from torchcaps.training.errors import RunError
from torchcaps.training.tasks import ImageTask
from torchcaps.training.tasks.metrics import PRESENT, flag_labels

MOST_SIDE = 256
"""Pixels: larger pictures would be slow to send at every stroke."""
MOST_COUPLINGS = 1_000_000
"""Of all steps together: more would take a browser seconds to read."""

_DIGITS = 4  # behind the decimal point, of all numbers that are sent


class RequestError(Exception):
    """A request that does not fit the model; the message is a sentence for whoever sent it."""


@dataclass(frozen=True)
class Subject:
    """A model that is explored.

    Args:
        id: its name in addresses.
        title: its name for people.
        model: a :class:`~torchcaps.models.base.CapsuleModel`, in evaluation mode.
        task: how it is fed.
        samples: test pictures.
        digits: its pictures are handwritten digits, as in MNIST.
        card: of a shipped model.
    """

    id: str
    title: str
    model: nn.Module
    task: ImageTask
    samples: Sequence[Sample] = ()
    digits: bool = False
    card: Card | None = None

    @property
    def capsules(self) -> CapsuleModel:
        """The model as one to look into."""
        return require_capsule_model(self.model)

    @property
    def decoder(self) -> Decoder | None:
        """What draws pictures from class capsules, if the model has it."""
        return find_decoder(self.model)

    @property
    def objects(self) -> int:
        """How many things a picture shows."""
        return int(getattr(self.model, "objects", 1))

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.task.class_names)

    @cached_property
    def info(self) -> ModelInfo:
        """All about it that the page needs to know."""
        routing, blank = class_layer(self.capsules).routing, torch.zeros(1, *self.task.input_shape)
        with torch.inference_mode():
            capsules = self.model(blank).capsules
        assert capsules is not None  # the explorer shows networks of capsules only
        iterations = int(getattr(routing, "iterations", 1))
        return ModelInfo(
            id=self.id,
            title=self.title,
            architecture=model_name(self.model),
            parameters=sum(weights.numel() for weights in self.model.parameters()),
            picture=_shape(self.task.image_shape),
            drawing=_shape(self.task.input_shape),
            classes=list(self.task.class_names),
            objects=self.objects,
            multi_label=self.task.multi_label,
            digits=self.digits,
            pose_size=math.prod(capsules.pose.shape[2:]),
            measure="length" if routing.activation_is_length else "activation",
            routing=type(routing).__name__.removesuffix("Routing").lower(),
            iterations=iterations,
            most_iterations=max(iterations, MOST_ITERATIONS) if self._goes_on(blank[0]) else iterations,
            decodes=self.decoder is not None,
            samples=len(self.samples),
            card=self.card,
        )

    def _goes_on(self, blank: Tensor) -> bool:
        """Whether its routing can be asked for more iterations than in training, and the page can show them all."""
        try:
            return routing_flow(self.model, blank, MOST_ITERATIONS).coupling.numel() <= MOST_COUPLINGS
        except ValueError:  # it has none, or a schedule that ends
            return False

    def look(self, pixels: str) -> Look:
        """What the model finds in a picture."""
        picture = self._read_picture(pixels)
        with torch.inference_mode():
            capsules = class_layer(self.capsules)(class_children(self.capsules, self._prepare(picture)[None]))
            chosen = self._find(capsules.activation[0])
            drawings = self._draw(capsules, chosen)
        return Look(
            lengths=_numbers(capsules.activation[0]),
            found=chosen.tolist(),
            poses=[_numbers(pose) for pose in capsules.pose[0].flatten(1)],
            drawings=[
                Drawing(label=label, pixels=to_base64(drawing))
                for label, drawing in zip(chosen.tolist(), drawings, strict=False)
            ],
            blank=not bool(picture.any()),
        )

    def decode(self, label: int, pose: Sequence[float]) -> Drawing:
        """What the decoder draws from one class capsule with this pose."""
        if self.decoder is None:
            raise RequestError(f"{self.title} has no decoder, so it cannot draw.")
        if label >= self.classes:
            raise RequestError(f"{self.title} has the classes 0 to {self.classes - 1}; got {label}.")
        if len(pose) != self.decoder.dim:
            raise RequestError(f"a pose of {self.title} has {self.decoder.dim} numbers; got {len(pose)}.")
        poses = torch.zeros(1, self.classes, self.decoder.dim)
        poses[0, label] = torch.tensor(pose, dtype=torch.float32)
        with torch.inference_mode():
            (drawing,) = self._draw(Capsules.from_pose(poses), torch.tensor([label]))
        return Drawing(label=label, pixels=to_base64(drawing))

    def routing(self, pixels: str, iterations: int | None = None) -> RoutedPicture:
        """How a picture's parts are routed to the classes, iteration by iteration, or for another number of them."""
        picture = self._read_picture(pixels)
        if iterations == self.info.iterations:
            iterations = None
        if iterations is not None and self.info.most_iterations == self.info.iterations:
            raise RequestError(f"{self.title} can only be routed as it was trained, in {self.info.iterations} steps.")
        flow = routing_flow(self.model, self._prepare(picture), iterations)
        activation = flow.child_activation.flatten().tolist()
        types = flow.child_activation.shape[-1]
        places = flow.places.flatten(0, 1).repeat_interleave(types, dim=0).tolist()
        return RoutedPicture(
            parts=[
                Part(row=row, column=column, type=index % types, activation=round(active, _DIGITS))
                for index, ((row, column), active) in enumerate(zip(places, activation, strict=True))
            ],
            types=types,
            patch=flow.patch,
            seen=to_base64(self._prepare(picture, standardize=False)),
            uniform_entropy=math.log(self.classes),
            steps=[
                RoutingStep(
                    lengths=_numbers(flow.parent_activation[at]),
                    entropy=float(flow.entropy[at]),
                    agreement=float(flow.agreement[at]),
                    agreements=_numbers(flow.agreements[at]),
                    coupling=[_numbers(row) for row in flow.coupling[at].flatten(0, 2)],
                )
                for at in range(len(flow.coupling))
            ],
        )

    def _read_picture(self, pixels: str) -> Tensor:
        """``[C, H, W]`` uint8 of what a request carries."""
        channels, height, width = self.task.image_shape
        try:
            content = base64.b64decode(pixels, validate=True)
        except (binascii.Error, ValueError):
            raise RequestError("pixels must be base64.") from None
        if len(content) != channels * height * width:
            raise RequestError(
                f"a picture of {self.title} has {height}×{width} pixels with {channels} byte(s) each, "
                f"{channels * height * width} in all; got {len(content)}."
            )
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(height, width, channels).movedim(2, 0)

    def _prepare(self, picture: Tensor, standardize: bool = True) -> Tensor:
        """A picture as the model sees it, or as a person would; of several patches the central one."""
        preparation = replace(self.task.preparation, crops=1)
        if not standardize:
            preparation = replace(preparation, standardize=False)
        return preparation.cut_patches(preparation.resize_images(picture[None].contiguous()))[0, 0]

    def _find(self, activation: Tensor) -> Tensor:
        """The classes that a picture shows, by falling activation: so many, or of any number those that are present."""
        if not self.task.multi_label:
            return activation.topk(self.objects).indices
        order = activation.argsort(descending=True)
        return order[activation[order] > PRESENT]

    def _draw(self, capsules: Capsules, labels: Tensor) -> list[Tensor]:
        """A picture for each of the classes ``[n]``, or one of any number together; none without a decoder."""
        if self.decoder is None or not len(labels):
            return []
        if self.task.multi_label:  # as the decoder was trained
            return list(self.decoder(capsules, flag_labels(labels[None], self.classes)))
        return list(self.decoder(capsules, labels[None])[0])


def make_subject(
    id: str,  # noqa: A002 - as in the interface
    title: str,
    model: nn.Module,
    task: ImageTask,
    samples: Sequence[Sample] = (),
    digits: bool = False,
    card: Card | None = None,
) -> Subject:
    """A subject, unless the model cannot be explored: then a RunError says why."""
    try:
        require_capsule_model(model)
    except ValueError:
        raise RunError(
            f"{title} cannot be explored: {model_name(model)} has no capsules of images to look into."
        ) from None
    channels, height, width = task.image_shape
    if channels not in (1, 3) or max(height, width) > MOST_SIDE:
        raise RunError(
            f"{title} cannot be explored: its images have {channels} channels and {height}×{width} pixels; the "
            f"explorer shows grey and RGB images of up to {MOST_SIDE}×{MOST_SIDE}."
        )
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise RunError(f"{title} cannot be explored: some of its weights are not a number; its training diverged.")
    subject = Subject(id, title, model, task, tuple(samples), digits, card)
    if subject.info.pose_size > LARGEST_POSE:
        raise RunError(
            f"{title} cannot be explored: its poses have {subject.info.pose_size} numbers, more than {LARGEST_POSE}."
        )
    return subject


def model_name(model: nn.Module) -> str:
    """The name by which a model was made; of one's own its class's."""
    config = getattr(model, "config", None)
    return type(model).__name__ if config is None else str(config.name)


def to_base64(picture: Tensor) -> str:
    """Pixels for the page: uint8, or floating-point numbers in 0 … 1, ``[C, H, W]``."""
    if picture.is_floating_point():
        picture = (picture * 255).round().clamp(0, 255).to(torch.uint8)
    return base64.b64encode(np.ascontiguousarray(picture.movedim(0, -1).numpy()).tobytes()).decode()


def _shape(shape: tuple[int, int, int]) -> PictureShape:
    return PictureShape(channels=shape[0], height=shape[1], width=shape[2])


def _numbers(values: Tensor) -> list[float]:
    return [round(value, _DIGITS) for value in values.tolist()]
