"""Networks of matrix capsules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.errors import InputError
from torchcaps.layers import CapsuleConv2d, ClassCapsules, MatrixPrimaryCapsules2d
from torchcaps.models.base import Model, RoutedLayer
from torchcaps.models.capsnet import require_images
from torchcaps.models.cnn import CNN, hidden_width, parameter_count
from torchcaps.models.convolution import Conv, ConvTrunk
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import register_model


class MatrixCapsNet(Model):
    """Convolutions → primary matrix capsules → convolutional capsule layers → class capsules (Hinton et al. 2018).

    Args:
        image_shape: channels, height, width.
        classes: number of class capsules.
        stem: the convolutions before the capsules.
        types: of the primary capsules.
        layers: of capsules, as convolutions whose channels are types of capsules.
        pose: side of a pose matrix.
        iterations: of the routing.
        routing: a name, or a mapping with a name and options; every layer gets its own.
        compete: see :class:`~torchcaps.layers.CapsuleConv2d`.

    Shapes:
        images ``[B, *image_shape]`` → :class:`ModelOutput` with the class activations as scores.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        stem: Sequence[Conv],
        types: int,
        layers: Sequence[Conv],
        pose: int = 4,
        iterations: int = 3,
        routing: str | Mapping[str, Any] = "em",
        compete: str | None = None,
    ) -> None:
        super().__init__()
        self.image_shape, self.classes = image_shape, classes
        self.stem = ConvTrunk(image_shape, stem, ahead=layers)
        self.primary = MatrixPrimaryCapsules2d(stem[-1].channels, types, (pose, pose))
        self.conv_capsules = nn.Sequential()
        for out, kernel, stride, padding in layers:
            own_routing = _with_iterations(routing, iterations)
            self.conv_capsules.append(
                CapsuleConv2d(
                    types, out, kernel, stride, padding, in_pose=(pose, pose), routing=own_routing, compete=compete
                )
            )
            types = out
        last = _with_iterations(routing, iterations)
        self.class_capsules = ClassCapsules(types, classes, in_pose=(pose, pose), routing=last)

    def primary_capsules(self, images: Tensor) -> Capsules:
        """The first capsules, pose ``[B, H, W, T, p, p]``."""
        require_images(images, self.image_shape)
        return self.primary(self.stem(images))

    def capsule_layers(self) -> list[tuple[str, RoutedLayer]]:
        """The convolutional capsules, then the class capsules."""
        between = [(f"conv_capsules.{at}", cast(RoutedLayer, layer)) for at, layer in enumerate(self.conv_capsules)]
        return [*between, ("class_capsules", self.class_capsules)]

    def forward(self, images: Tensor, target: Tensor | None = None) -> ModelOutput:
        """Classify images. A target is accepted as by every model, and not needed."""
        capsules = self.class_capsules(self.conv_capsules(self.primary_capsules(images)))
        return ModelOutput(capsules.activation, capsules)


def _with_iterations(routing: str | Mapping[str, Any], iterations: int) -> dict[str, Any]:
    """The routing of one layer; iterations given with the routing itself win, ``uniform`` and the like have none."""
    options: dict[str, Any] = {"name": routing} if isinstance(routing, str) else dict(routing)
    if options["name"] in ("em", "dynamic", "optimized", "kmeans"):
        options.setdefault("iterations", iterations)
    return options


@register_model("matrix-capsnet")
def matrix_capsnet(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    channels: int = 32,
    types: Sequence[int] = (32, 32, 32),
    pose: int = 4,
    iterations: int = 3,
    routing: str | Mapping[str, Any] = "em",
    compete: str | None = None,
) -> MatrixCapsNet:
    """The network of Hinton, Sabour and Frosst 2018 with A = B = C = D = 32.

    317,194 parameters for stereo pairs of 5 classes (the paper says 310K), 316,394 for one channel; 68,754 with
    ``channels=64, types=(8, 16, 16)``. Images smaller than 17×17 are centred on a black canvas of that size.
    """
    if len(types) != 3:
        raise InputError(f"types must be three numbers: primary, first and second capsule layer; got {types!r}.")
    return MatrixCapsNet(
        image_shape,
        classes,
        stem=[Conv(channels, 5, 2)],
        types=types[0],
        layers=[Conv(types[1], 3, 2), Conv(types[2], 3)],
        pose=pose,
        iterations=iterations,
        routing=routing,
        compete=compete,
    )


SMALL_STEM = (Conv(32, 5, 2), Conv(64, 3, 2), Conv(64, 3))


@register_model("matrix-capsnet-small")
def matrix_capsnet_small(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    iterations: int = 2,
    routing: str | Mapping[str, Any] = "em",
    compete: str | None = None,
) -> MatrixCapsNet:
    """Matrix capsules for two cores; docs/models.md says how it was chosen.

    Conv 5×5 stride 2, 32 → conv 3×3 stride 2, 64 → conv 3×3, 64 → primary capsules, 32 types → convolutional capsules
    3×3, 32 types → class capsules; two iterations. 241,706 parameters for 5 classes and one channel. Images smaller
    than 25×25 are centred on a black canvas of that size.
    """
    return MatrixCapsNet(
        image_shape,
        classes,
        stem=SMALL_STEM,
        types=32,
        layers=[Conv(32, 3)],
        iterations=iterations,
        routing=routing,
        compete=compete,
    )


@register_model("cnn-matched")
def cnn_matched(image_shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> CNN:
    """The convolutions of ``matrix-capsnet-small``, one more of 3×3 where it has capsules, and a hidden layer.

    The hidden layer is as wide as makes the parameters most nearly equal for the given image size and classes.
    """
    convs = [*SMALL_STEM, Conv(64, 3)]
    with torch.device("meta"):
        trunk = ConvTrunk(image_shape, convs)
        rest = parameter_count(matrix_capsnet_small(image_shape, classes)) - parameter_count(trunk)
    return CNN(image_shape, classes, convs=convs, hidden=[hidden_width(trunk, rest, classes)], dropout=dropout)
