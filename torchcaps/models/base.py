"""What all models have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.models.config import ModelConfig
from torchcaps.models.output import ModelOutput
from torchcaps.ops.result import RoutingOutput
from torchcaps.ops.windows import Windows
from torchcaps.routing.base import Routing


class Model(nn.Module):
    """A network that :func:`~torchcaps.create_model` makes: ``model(inputs, target=None)`` → :class:`ModelOutput`.

    Subclasses implement ``forward(inputs, target=None)``; the inputs are images ``[B, C, H, W]`` or token ids
    ``[B, L]``. Those that need no target take one all the same.

    Attributes:
        config: how to make such a model again; None for a model that was not made by a registered function.
    """

    config: ModelConfig | None = None

    if TYPE_CHECKING:

        def __call__(self, inputs: Tensor, /, target: Tensor | None = None) -> ModelOutput:
            """See ``forward``."""


class RoutedLayer(Protocol):
    """A layer of routed capsules, such as ``CapsuleLinear``, ``CapsuleConv2d`` or ``ClassCapsules``.

    A layer on a grid also says by ``compete`` among which parents a child chooses, those at all ``positions`` that see
    it or at each position the ``types``; see ``CapsuleConv2d``.

    Attributes:
        routing: decides whose votes count.
    """

    routing: Routing

    def __call__(self, capsules: Capsules, /) -> Capsules:
        """The parents."""
        ...

    def route(self, capsules: Capsules, trace: bool = False, *, iterations: int | None = None) -> RoutingOutput:
        """The parents with the coupling and, if asked for, every iteration; or another number of them."""
        ...

    def votes(self, capsules: Capsules) -> Tensor:
        """Of every window's children ``[B, P, W, T, J, D]``, or of a plain set ``[B, I, J, D]``."""
        ...

    def windows(self, size: tuple[int, ...]) -> Windows:
        """Which children each parent sees, on a grid of that size."""
        ...


class Decoder(Protocol):
    """What draws images from class capsules, such as ``ReconstructionDecoder``.

    Attributes:
        dim: size of a class capsule's pose.
    """

    dim: int

    def __call__(self, capsules: Capsules, target: Tensor | None = None, /) -> Tensor:
        """Images of the classes that the target ``[B]`` or ``[B, M]`` names: ``[B, C, H, W]``, ``[B, M, C, H, W]``."""
        ...

    def decode(self, pose: Tensor, /) -> Tensor:
        """Poses of all classes as they are, ``[..., J, D]`` → ``[..., C, H, W]``."""
        ...


def find_decoder(model: nn.Module) -> Decoder | None:
    """The ``decoder`` of a model, None if it has none."""
    decoder: Decoder | None = getattr(model, "decoder", None)
    return decoder


@runtime_checkable
class CapsuleModel(Protocol):
    """A model of images that can be looked into: all that analysis, reports and the explorer ask of it.

    ``model(images)`` gives a :class:`ModelOutput` with the class capsules. Two attributes may be there besides:
    ``decoder``, a :class:`Decoder`, and ``objects``, how many objects an image shows.
    """

    def primary_capsules(self, images: Tensor, /) -> Capsules:
        """The first capsules, on a grid: pose ``[B, H, W, T, *pose]``."""
        ...

    def capsule_layers(self) -> Sequence[tuple[str, RoutedLayer]]:
        """The routed layers in their order, the class capsules last, each with its name among the modules."""
        ...


class TextBranch(Protocol):
    """A way from words to classes: n-grams → primary capsules → capsules of windows → class capsules.

    Attributes:
        ngram: words that an n-gram has.
        stride: words from one n-gram to the next.
        ngrams: the convolution over word vectors, followed by ReLU.
        primary: with ``conv``, the convolution of width 1 that makes poses of the n-grams' features.
        windows: the routed layer of n-grams.
        class_capsules: the routed layer of windows; the classes come first, a noise class after them.
    """

    ngram: int
    stride: int
    ngrams: nn.Conv1d
    primary: Any
    windows: RoutedLayer
    class_capsules: RoutedLayer

    def primary_capsules(self, vectors: Tensor, mask: Tensor, /) -> Capsules:
        """The capsules of the n-grams, pose ``[B, Q, T, pose]``."""
        ...


@runtime_checkable
class TextCapsuleModel(Protocol):
    """A model of text whose answers can be traced back to words.

    Attributes:
        branches: whose class capsules are averaged, each a :class:`TextBranch`.
    """

    branches: Iterable[Any]

    def embed(self, token_ids: Tensor, /) -> tuple[Tensor, Tensor]:
        """What the branches see of token ids ``[B, L]``: vectors ``[B, dim, L']`` and mask ``[B, L']``."""
        ...
