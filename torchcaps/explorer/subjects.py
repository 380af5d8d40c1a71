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

from torchcaps.analysis.couplings import class_children, require_image_capsules, routing_flow
from torchcaps.analysis.iterations import MOST_ITERATIONS
from torchcaps.analysis.receptive import ImageCapsules
from torchcaps.capsules import Capsules
from torchcaps.explorer.schemas import (
    LARGEST_POSE,
    Card,
    Drawing,
    Look,
    ModelInfo,
    Part,
    PictureShape,
    Routing,
    Sample,
    Step,
)  # fmt: skip
from torchcaps.layers import ReconstructionDecoder
from torchcaps.models.capsnet import CapsNet
from torchcaps.routing import EMRouting
from torchcaps.training.specs import ModelSpec, RunError

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
        model: a network of capsules for images, in evaluation mode.
        spec: how it is fed.
        samples: test pictures.
        digits: its pictures are handwritten digits, as in MNIST.
        card: of a shipped model.
    """

    id: str
    title: str
    model: ImageCapsules
    spec: ModelSpec
    samples: Sequence[Sample] = ()
    digits: bool = False
    card: Card | None = None

    @property
    def decoder(self) -> ReconstructionDecoder | None:
        """What draws pictures from class capsules, if the model has it."""
        found = getattr(self.model, "decoder", None)
        return found if isinstance(found, ReconstructionDecoder) else None

    @property
    def objects(self) -> int:
        """How many things a picture shows."""
        return self.model.objects if isinstance(self.model, CapsNet) else 1

    @cached_property
    def info(self) -> ModelInfo:
        """All about it that the page needs to know."""
        routing, blank = self.model.class_capsules.routing, torch.zeros(1, *self.spec.image_shape)
        with torch.inference_mode():
            capsules = self.model(blank).capsules
        assert capsules is not None  # the explorer shows networks of capsules only
        iterations = int(getattr(routing, "iterations", 1))
        return ModelInfo(
            id=self.id,
            title=self.title,
            architecture=self.spec.name,
            parameters=sum(weights.numel() for weights in self.model.parameters()),
            picture=_shape(self.spec.fitted_shape),
            drawing=_shape(self.spec.image_shape),
            classes=list(self.spec.class_names),
            objects=self.objects,
            digits=self.digits,
            pose_size=math.prod(capsules.pose.shape[2:]),
            measure="length"
            if isinstance(self.model, CapsNet) and not isinstance(routing, EMRouting)
            else "activation",
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
        picture = self._picture(pixels)
        with torch.inference_mode():
            capsules = self.model.class_capsules(class_children(self.model, self._prepared(picture)[None]))
            found = capsules.activation[0].topk(self.objects).indices
            drawings = self._drawn(capsules, found)
        return Look(
            lengths=_numbers(capsules.activation[0]),
            found=found.tolist(),
            poses=[_numbers(pose) for pose in capsules.pose[0].flatten(1)],
            drawings=[
                Drawing(label=label, pixels=to_base64(drawing))
                for label, drawing in zip(found.tolist(), drawings, strict=bool(drawings))
            ],
            blank=not bool(picture.any()),
        )

    def decode(self, label: int, pose: Sequence[float]) -> Drawing:
        """What the decoder draws from one class capsule with this pose."""
        if self.decoder is None:
            raise RequestError(f"{self.title} has no decoder, so it cannot draw.")
        if label >= self.model.classes:
            raise RequestError(f"{self.title} has the classes 0 to {self.model.classes - 1}; got {label}.")
        if len(pose) != self.decoder.dim:
            raise RequestError(f"a pose of {self.title} has {self.decoder.dim} numbers; got {len(pose)}.")
        poses = torch.zeros(1, self.model.classes, self.decoder.dim)
        poses[0, label] = torch.tensor(pose, dtype=torch.float32)
        with torch.inference_mode():
            (drawing,) = self._drawn(Capsules.from_pose(poses), torch.tensor([label]))
        return Drawing(label=label, pixels=to_base64(drawing))

    def routing(self, pixels: str, iterations: int | None = None) -> Routing:
        """How a picture's parts are routed to the classes, iteration by iteration, or for another number of them."""
        picture = self._picture(pixels)
        if iterations == self.info.iterations:
            iterations = None
        if iterations is not None and self.info.most_iterations == self.info.iterations:
            raise RequestError(f"{self.title} can only be routed as it was trained, in {self.info.iterations} steps.")
        flow = routing_flow(self.model, self._prepared(picture), iterations)
        activation = flow.child_activation.flatten().tolist()
        types = flow.child_activation.shape[-1]
        places = flow.places.flatten(0, 1).repeat_interleave(types, dim=0).tolist()
        return Routing(
            parts=[
                Part(row=row, column=column, type=index % types, activation=round(active, _DIGITS))
                for index, ((row, column), active) in enumerate(zip(places, activation, strict=True))
            ],
            types=types,
            patch=flow.patch,
            seen=to_base64(self._prepared(picture, standardize=False)),
            uniform_entropy=math.log(self.model.classes),
            steps=[
                Step(
                    lengths=_numbers(flow.parent_activation[at]),
                    entropy=float(flow.entropy[at]),
                    agreement=float(flow.agreement[at]),
                    agreements=_numbers(flow.agreements[at]),
                    coupling=[_numbers(row) for row in flow.coupling[at].flatten(0, 2)],
                )
                for at in range(len(flow.coupling))
            ],
        )

    def _picture(self, pixels: str) -> Tensor:
        """``[C, H, W]`` uint8 of what a request carries."""
        channels, height, width = self.spec.fitted_shape
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

    def _prepared(self, picture: Tensor, standardize: bool = True) -> Tensor:
        """A picture as the model sees it, or as a person would; of several patches the central one."""
        preparation = replace(self.spec.preparation, crops=1)
        if not standardize:
            preparation = replace(preparation, standardize=False)
        return preparation.cut_patches(preparation.resize_images(picture[None].contiguous()))[0, 0]

    def _drawn(self, capsules: Capsules, labels: Tensor) -> list[Tensor]:
        """A picture for each of the classes ``[n]``; none without a decoder."""
        if self.decoder is None:
            return []
        return list(self.decoder(capsules, labels[None])[0])


def make_subject(
    id: str,  # noqa: A002 - as in the interface
    title: str,
    model: nn.Module,
    spec: ModelSpec,
    samples: Sequence[Sample] = (),
    digits: bool = False,
    card: Card | None = None,
) -> Subject:
    """A subject, unless the model cannot be explored: then a RunError says why."""
    try:
        capsules = require_image_capsules(model)
    except ValueError:
        raise RunError(f"{title} cannot be explored: {spec.name} has no capsules of images to look into.") from None
    channels, height, width = spec.fitted_shape
    if channels not in (1, 3) or max(height, width) > MOST_SIDE:
        raise RunError(
            f"{title} cannot be explored: its images have {channels} channels and {height}×{width} pixels; the "
            f"explorer shows grey and RGB images of up to {MOST_SIDE}×{MOST_SIDE}."
        )
    if not all(bool(weights.isfinite().all()) for weights in capsules.parameters()):
        raise RunError(f"{title} cannot be explored: some of its weights are not a number; its training diverged.")
    subject = Subject(id, title, capsules, spec, tuple(samples), digits, card)
    if subject.info.pose_size > LARGEST_POSE:
        raise RunError(
            f"{title} cannot be explored: its poses have {subject.info.pose_size} numbers, more than {LARGEST_POSE}."
        )
    return subject


def to_base64(picture: Tensor) -> str:
    """Pixels for the page: uint8, or floating-point numbers in 0 … 1, ``[C, H, W]``."""
    if picture.is_floating_point():
        picture = (picture * 255).round().clamp(0, 255).to(torch.uint8)
    return base64.b64encode(np.ascontiguousarray(picture.movedim(0, -1).numpy()).tobytes()).decode()


def _shape(shape: tuple[int, int, int]) -> PictureShape:
    return PictureShape(channels=shape[0], height=shape[1], width=shape[2])


def _numbers(values: Tensor) -> list[float]:
    return [round(value, _DIGITS) for value in values.tolist()]
