"""Capsule networks for images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from torchcaps.capsules import Capsules
from torchcaps.checks import require_count, require_finite, require_float
from torchcaps.errors import InputError, InputTypeError
from torchcaps.layers import CapsuleLinear, PrimaryCapsules2d, ReconstructionDecoder
from torchcaps.models.base import Model, RoutedLayer
from torchcaps.models.convolution import Conv, ConvTrunk, convolution
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import register_model
from torchcaps.routing import RoutingLike


class CapsNet(Model):
    """Convolutions → primary capsules → class capsules, and a decoder (Sabour et al. 2017, §4).

    Args:
        image_shape: channels, height, width.
        classes: number of class capsules.
        stem: the convolutions before the capsules.
        primary: kernel, stride and padding of the primary capsules; its channels are types × dim.
        primary_dim: size of a primary capsule's pose.
        class_dim: size of a class capsule's pose.
        routing: between primary and class capsules; a name, a mapping or an instance.
        shared: share the class layer's weights among all primary capsules.
        squash: of the primary capsules.
        decoder: widths of the decoder's hidden layers; None for no decoder.
        objects: how many objects an image shows, decoded one by one when no target is given.
        normalised: batch normalisation in the stem.

    Shapes:
        images ``[B, *image_shape]``, target as in :meth:`ReconstructionDecoder.forward` → :class:`ModelOutput`.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        stem: Sequence[Conv],
        primary: Conv,
        primary_dim: int,
        class_dim: int,
        routing: RoutingLike = "dynamic",
        shared: bool = False,
        squash: str = "sabour",
        decoder: Sequence[int] | None = None,
        objects: int = 1,
        normalised: bool = False,
    ) -> None:
        super().__init__()
        require_count("objects", objects)
        if objects > classes:
            raise InputError(f"an image cannot show {objects} objects of different classes among {classes}.")
        self.image_shape, self.classes, self.objects = image_shape, classes, objects
        if not stem or primary.channels % primary_dim:
            raise InputError(
                f"a CapsNet needs at least one convolution in its stem, and primary channels that are a multiple of "
                f"primary_dim; got {len(stem)} convolutions, {primary.channels} channels, {primary_dim}-D capsules."
            )
        types = primary.channels // primary_dim
        self.stem = ConvTrunk(image_shape, stem, [primary], normalised)
        height, width = self.stem.final_size
        self.primary = PrimaryCapsules2d(
            stem[-1].channels, types, primary_dim, primary.kernel, primary.stride, primary.padding, squash
        )
        self.class_capsules = CapsuleLinear(
            height * width * types, primary_dim, classes, class_dim, routing, shared=shared
        )
        self.decoder = None if decoder is None else ReconstructionDecoder(classes, class_dim, image_shape, decoder)

    def primary_capsules(self, images: Tensor) -> Capsules:
        """The first capsules, pose ``[B, H, W, T, d]``."""
        require_images(images, self.image_shape)
        return self.primary(self.stem(images))

    def capsule_layers(self) -> list[tuple[str, RoutedLayer]]:
        """The class capsules, the only ones that are routed."""
        return [("class_capsules", self.class_capsules)]

    def forward(self, images: Tensor, target: Tensor | None = None) -> ModelOutput:
        """Classify images; decode the target classes (training) or the longest capsules (otherwise)."""
        capsules = self.class_capsules(self.primary_capsules(images))
        reconstruction = None if self.decoder is None else self.decoder(capsules, target, self.objects)
        return ModelOutput(capsules.activation, capsules, reconstruction)


def require_images(images: Tensor, image_shape: tuple[int, int, int]) -> None:
    """Raise unless these are images of that shape."""
    require_float("images", images)
    if images.dim() != 4 or tuple(images.shape[1:]) != image_shape:
        raise InputError(
            f"expected images of shape [batch, {', '.join(map(str, image_shape))}], got {tuple(images.shape)}. "
            "create_model(..., input_shape=…) makes a model for other sizes."
        )
    require_finite("images", images)


def decoder_widths(decoder: bool | Sequence[int], default: Sequence[int]) -> Sequence[int] | None:
    """The decoder's hidden widths: the default for True, none for False, or those given."""
    if isinstance(decoder, bool):
        return default if decoder else None
    if isinstance(decoder, (str, dict)) or not isinstance(decoder, Iterable):
        raise InputTypeError(f"decoder must be true, false or a list of widths, got {decoder!r:.60}.", option="decoder")
    return decoder


@register_model("capsnet")
def capsnet(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    routing: RoutingLike = "dynamic",
    shared: bool = False,
    squash: str = "sabour",
    decoder: bool | Sequence[int] = True,
    objects: int = 1,
) -> CapsNet:
    """The network of Sabour et al. 2017: 8,215,568 parameters for MNIST, 6,804,224 without the decoder.

    Conv 9×9, 256 → primary capsules 9×9 stride 2, 32 types × 8-D → class capsules 16-D; decoder 512, 1024.
    Images smaller than 17×17 are centred on a black canvas of that size.
    """
    return CapsNet(
        image_shape,
        classes,
        stem=[Conv(256, 9)],
        primary=Conv(32 * 8, 9, 2),
        primary_dim=8,
        class_dim=16,
        routing=routing,
        shared=shared,
        squash=squash,
        decoder=decoder_widths(decoder, (512, 1024)),
        objects=objects,
    )


SMALL_STEM = (Conv(32, 5, 2), Conv(64, 5))
SMALL_PRIMARY = Conv(8 * 8, 3, 2)


@register_model("capsnet-small")
def capsnet_small(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    routing: RoutingLike = "dynamic",
    shared: bool = False,
    squash: str = "sabour",
    decoder: bool | Sequence[int] = True,
    objects: int = 1,
) -> CapsNet:
    """A capsule network that learns MNIST in a minute or two on two cores; docs/models.md says how it was chosen.

    Conv 5×5 stride 2, 32 → conv 5×5, 64 → primary capsules 3×3 stride 2, 8 types × 8-D → class capsules 16-D; decoder
    64, 128. 300,944 parameters for MNIST. Images smaller than 17×17 are centred on a black canvas of that size.
    """
    return CapsNet(
        image_shape,
        classes,
        stem=SMALL_STEM,
        primary=SMALL_PRIMARY,
        primary_dim=8,
        class_dim=16,
        routing=routing,
        shared=shared,
        squash=squash,
        decoder=decoder_widths(decoder, (64, 128)),
        objects=objects,
    )


DEEP_STEM = (Conv(32, 5, 2, 2), Conv(64, 3, 1, 1), Conv(96, 3, 2, 1))
DEEP_PRIMARY = Conv(8 * 8, 3)


@register_model("capsnet-deep")
def capsnet_deep(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    stem: Sequence[Sequence[int]] = DEEP_STEM,
    primary: Sequence[int] = DEEP_PRIMARY,
    primary_dim: int = 8,
    class_dim: int = 16,
    routing: RoutingLike = "dynamic",
    shared: bool = False,
    squash: str = "sabour",
    decoder: bool | Sequence[int] = True,
    objects: int = 1,
) -> CapsNet:
    """A capsule network on a stem of one's choice with batch normalisation, which learns in fewer epochs.

    By default conv 5×5 stride 2, 32 → conv 3×3, 64 → conv 3×3 stride 2, 96 → primary capsules 3×3, 8 types × 8-D →
    class capsules 16-D; decoder 128, 256. ``stem`` and ``primary`` are given as [channels, kernel, stride, padding],
    of which the last two may be left out. Images too small for them are centred on a black canvas.
    """
    return CapsNet(
        image_shape,
        classes,
        stem=[convolution("stem", sizes) for sizes in stem],
        primary=convolution("primary", primary),
        primary_dim=primary_dim,
        class_dim=class_dim,
        routing=routing,
        shared=shared,
        squash=squash,
        decoder=decoder_widths(decoder, (128, 256)),
        objects=objects,
        normalised=True,
    )
