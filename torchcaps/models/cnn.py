"""Convolutional networks to compare capsules with."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchcaps.models.base import Model
from torchcaps.models.capsnet import SMALL_PRIMARY, SMALL_STEM, capsnet_small, require_images
from torchcaps.models.convolution import Conv, ConvTrunk
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import register_model


class CNN(Model):
    """Convolutions with ReLU, fully connected layers with ReLU, dropout, logits.

    Shapes:
        images ``[B, *image_shape]`` → :class:`ModelOutput` with logits ``[B, classes]`` as scores.
        A target is accepted, so that it can stand in for a capsule network, and not needed.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        convs: list[Conv],
        hidden: list[int],
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.image_shape, self.classes = image_shape, classes
        self.features = ConvTrunk(image_shape, convs)
        height, width = self.features.size
        layers: list[nn.Module] = [nn.Flatten()]
        size = height * width * convs[-1].channels
        for out in hidden:
            layers += [nn.Linear(size, out), nn.ReLU()]
            size = out
        self.classifier = nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(size, classes))

    def forward(self, images: Tensor, target: Tensor | None = None) -> ModelOutput:
        """Classify images."""
        require_images(images, self.image_shape)
        return ModelOutput(self.classifier(self.features(images)))


@register_model("cnn-baseline")
def cnn_baseline(image_shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> CNN:
    """The baseline of Sabour et al. 2017, §5: 35,445,522 parameters for MNIST (the paper says 35.4M).

    Three convolutions 5×5 of 256, 256, 128 channels that keep the size (only so does the count come out as the
    paper's), fully connected 328 and 192, dropout, softmax with cross-entropy.
    """
    convs = [Conv(256, 5, 1, 2), Conv(256, 5, 1, 2), Conv(128, 5, 1, 2)]
    return CNN(image_shape, classes, convs=convs, hidden=[328, 192], dropout=dropout)


@register_model("cnn-small")
def cnn_small(image_shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> CNN:
    """The trunk of ``capsnet-small`` with one hidden layer, as wide as makes the parameters most nearly equal.

    They are compared with those of ``capsnet-small`` with its decoder, for the given image size and classes.
    """
    convs = [*SMALL_STEM, SMALL_PRIMARY]
    with torch.device("meta"):
        trunk = ConvTrunk(image_shape, convs)
        rest = parameter_count(capsnet_small(image_shape, classes)) - parameter_count(trunk)
    return CNN(image_shape, classes, convs=convs, hidden=[hidden_width(trunk, rest, classes)], dropout=dropout)


def hidden_width(trunk: ConvTrunk, parameters: int, classes: int) -> int:
    """How wide one hidden layer on top of a trunk is if it and the last layer have about so many parameters."""
    features = math.prod(trunk.size) * trunk.channels
    # features·h + h weights and biases of the hidden layer, h·classes + classes of the last
    return max(1, round((parameters - classes) / (features + 1 + classes)))


def parameter_count(module: nn.Module) -> int:
    """How many numbers a module learns."""
    return sum(parameter.numel() for parameter in module.parameters())
