"""Networks for text: capsules after Zhao et al. 2018, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.capsules import Capsules
from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.layers import CapsuleConv1d, CapsuleLinear, ClassCapsules, PrimaryCapsules1d
from torchcaps.models.base import Model
from torchcaps.models.embedding import PADDING, WordVectors, require_sizes
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import register_model
from torchcaps.ops.plan import require_options, takes_options
from torchcaps.ops.transforms import has_no_values

if TYPE_CHECKING:
    from typing_extensions import Unpack

ALIVE = 0.3
"""Mean activation of the routed capsules with first weights."""
FREQUENT = 2000
"""So many of the words, which a vocabulary has in the order of their frequency, make up texts to fit weights to."""


@dataclass(frozen=True, kw_only=True)
class TextCapsConfig:
    """The options of :class:`TextCapsNet`, checked when it is made.

    Args:
        ngrams: sizes of the n-grams; one branch for each.
        static: keep the word vectors as they are.
        filters: of the n-gram convolution.
        stride: of the n-gram convolution; 2 halves the work for long texts.
        types: of the primary and of the convolutional capsules.
        pose: size of all poses.
        window: positions that a convolutional capsule sees.
        squash: of all capsules, a kind of :func:`torchcaps.ops.squash`; of the routed ones if their routing takes it.
        routing: a name, or a mapping with a name and options; every layer gets its own.
        noise_class: one more class capsule, for what belongs to no class (stop words); it is no score and no loss.
        leaky: of dynamic routing: a child may go nowhere.
        amend: of dynamic routing: a child counts by its activation.
        partial_sampling: of dynamic routing: the share of the convolutional capsules that take part in a training
            step. Not of the class capsules, among which the label is.
        dropout: of the entries of the word vectors.
        capsule_dropout: of whole convolutional capsules, before they vote for classes.
        length: give every position weights of its own, for texts of up to so many words; None: shared along the text.
    """

    ngrams: Sequence[int] = (3, 4, 5)
    static: bool = False
    filters: int = 32
    stride: int = 1
    types: int = 16
    pose: int = 16
    window: int = 3
    squash: str = "exponential"
    routing: str | Mapping[str, Any] = "dynamic"
    noise_class: bool = True
    leaky: bool = True
    amend: bool = True
    partial_sampling: float | None = None
    dropout: float = 0.4
    capsule_dropout: float = 0.0
    length: int | None = None

    def __post_init__(self) -> None:
        require_sizes(self.ngrams)
        for size in ("filters", "stride", "types", "pose", "window"):
            require_count(size, getattr(self, size))
        name = self.class_routing().get("name")  # the resolver of routings tells if there is none
        if name == "em":
            raise InputError(
                "a text capsule's probability is the length of its pose, which EM routing does not make: choose "
                "dynamic, optimized or kmeans."
            )
        stabilisers = {"leaky": self.leaky, "amend": self.amend, "partial_sampling": self.partial_sampling is not None}
        wanted = [stabiliser for stabiliser, on in stabilisers.items() if on]
        if wanted and name not in (None, "dynamic"):
            raise InputError(
                f"{', '.join(wanted)}: stabilisers of dynamic routing, which {name!r} does not have. Switch "
                "them off (partial_sampling: null) or use routing 'dynamic'."
            )

    def shortest(self, ngram: int) -> int:
        """Words that one window over n-grams of that size spans."""
        return ngram + (self.window - 1) * self.stride

    def class_routing(self) -> dict[str, Any]:
        """The routing to the classes: with its squash and those stabilisers that are on."""
        options = {"name": self.routing} if isinstance(self.routing, str) else dict(self.routing)
        if options.get("name") in ("dynamic", "kmeans"):
            options.setdefault("squash", self.squash)
        flags = {"leaky": self.leaky, "amend": self.amend}
        return options | {name: True for name, on in flags.items() if on}

    def window_routing(self) -> dict[str, Any]:
        """The routing to the convolutional capsules, of which not all may take part."""
        sampled = {} if self.partial_sampling is None else {"partial_sampling": self.partial_sampling}
        return self.class_routing() | sampled


class CapsuleBranch(nn.Module):
    """N-grams → primary capsules → convolutional capsules → class capsules, for one size of n-grams.

    ::

        words [L] → n-grams [L − n + 1] → capsules [L − n + 1, T] → windows [L − n − K + 2, T] → classes

    Args:
        dim: size of a word's vector.
        classes: number of class capsules.
        ngram: n, words that a filter of the first convolution sees.
        config: T, K (its window), and the other options.

    Shapes:
        vectors ``[B, dim, L]``, mask ``[B, L]`` → class capsules ``[B, classes, pose]``.
    """

    if TYPE_CHECKING:

        def __call__(self, vectors: Tensor, mask: Tensor) -> Capsules:
            """See :meth:`forward`."""

    def __init__(self, dim: int, classes: int, ngram: int, config: TextCapsConfig) -> None:
        super().__init__()
        self.ngram, self.stride, self.length = ngram, config.stride, config.length
        types, pose = config.types, config.pose
        self.dropout = nn.Dropout(config.capsule_dropout)
        self.ngrams = nn.Conv1d(dim, config.filters, ngram, config.stride)
        self.primary = PrimaryCapsules1d(config.filters, types, pose, squash=config.squash)
        positions = None
        if config.length is not None:
            if config.length < (shortest := config.shortest(ngram)):
                raise InputError(
                    f"n-grams of {ngram} in windows of {config.window} need length ≥ {shortest}, got {config.length}."
                )
            positions = (config.length - ngram) // config.stride + 2 - config.window
        self.windows = CapsuleConv1d(
            types, types, config.window, in_pose=pose, routing=config.window_routing(), positions=positions
        )
        routing = config.class_routing()
        self.class_capsules: ClassCapsules | CapsuleLinear
        if positions is None:
            self.class_capsules = ClassCapsules(types, classes, in_pose=pose, routing=routing, coordinates=False)
        else:
            self.class_capsules = CapsuleLinear(positions * types, pose, classes, pose, routing)

    def primary_capsules(self, vectors: Tensor, mask: Tensor) -> Capsules:
        """The capsules of the n-grams, pose ``[B, L − n + 1, T, pose]``; one that would see padding is masked."""
        features = torch.relu(self.ngrams(vectors))
        # Padding is at the end: an n-gram without padding is one whose last word is there.
        return self.primary(features, mask[:, self.ngram - 1 :: self.stride])

    def reset_parameters(self, vectors: Tensor, mask: Tensor) -> None:
        """Draw new weights that bring texts like these ``[B, dim, L]`` to life.

        Squashing makes short vectors shorter, layer after layer, and amended coefficients once more: with weights that
        fit word vectors of another size, or another number of classes, nothing would arrive at the classes and nothing
        would be learned. So every layer is scaled by what it makes of the texts (after Mishkin & Matas 2016, "All you
        need is a good init").
        """
        nn.init.kaiming_normal_(self.ngrams.weight, nonlinearity="relu")
        nn.init.normal_(self.primary.conv.weight)
        for conv in (self.ngrams, self.primary.conv):
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        with torch.no_grad():
            features = self.ngrams(vectors)
            self.ngrams.weight.div_(features.std())
            features = torch.relu(features / features.std())
            maps = self.primary.conv(features)
            self.primary.conv.weight.div_(maps.std() * self.primary.dim**0.5)  # poses of length 1 before squashing
            ngrams = self.primary_capsules(vectors, mask)
            self.windows.reset_parameters()
            _scale(self.windows, ngrams, ALIVE)
            self.class_capsules.reset_parameters()
            _scale(self.class_capsules, self.windows(ngrams), ALIVE)

    def forward(self, vectors: Tensor, mask: Tensor) -> Capsules:
        """The class capsules."""
        windows = self.windows(self.primary_capsules(vectors, mask))
        kept = self.dropout(torch.ones_like(windows.activation))  # whole capsules
        counted = Capsules(windows.pose * kept[..., None], windows.activation, windows.mask)
        return self.class_capsules(counted)


def _scale(layer: CapsuleConv1d | ClassCapsules | CapsuleLinear, children: Capsules, wanted: float) -> None:
    """Multiply a layer's weights until its parents' mean activation is about as wanted; normalised ones are as long."""
    if layer.normalize:
        return
    for _ in range(12):
        parents = layer(children)
        there = parents.activation if parents.mask is None else parents.activation[parents.mask]
        mean = float(there.mean().clamp(1e-12, 0.999))
        # From length to activation and back: a = |s|²/(1 + |s|²). In small steps, since longer votes also agree more.
        factor = (wanted / (1 - wanted) * (1 - mean) / mean) ** 0.5
        if 0.9 < factor < 1.1:
            return
        layer.weight.mul_(min(max(factor, 0.25), 4.0))


class TextCapsNet(Model):
    """Capsules for text: one :class:`CapsuleBranch`, or the mean of several with different n-grams.

    Wei Zhao et al. 2018, "Investigating Capsule Networks with Dynamic Routing for Text Classification",
    arXiv 1804.00538. The class capsules of the branches are averaged pose by pose, a class's score is the length of
    its mean pose.

    Args:
        shape: rows of the table of word vectors, padding included, and their size.
        classes: number of classes.
        config: its options, :class:`TextCapsConfig` as it is if not given.

    Shapes:
        token ids int64 ``[B, L]``, 0 for padding at the end → :class:`ModelOutput`.
    """

    def __init__(self, shape: tuple[int, int], classes: int, config: TextCapsConfig | None = None) -> None:
        super().__init__()
        config = config or TextCapsConfig()
        words, dim = shape
        self.classes, self.noise_class, self.length = classes, config.noise_class, config.length
        self.words = WordVectors(words, dim, config.static, config.dropout)
        self.branches = nn.ModuleList(
            CapsuleBranch(dim, classes + config.noise_class, ngram, config) for ngram in config.ngrams
        )
        self.shortest = config.shortest(max(config.ngrams))
        self.reset_parameters()

    def load_vectors(self, vectors: Tensor) -> None:
        """Begin with these word vectors ``[words, dim]``, and with other weights that fit them."""
        self.words.load(vectors)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights that fit the word vectors, by texts of random words among the frequent ones."""
        table = self.words.table
        if has_no_values(table.weight) or table.num_embeddings < 3:  # nothing to measure
            return
        length = max(self.shortest, 20) if self.length is None else self.length
        most = min(table.num_embeddings, FREQUENT)
        vectors = table(torch.randint(2, most, (32, length), device=table.weight.device)).detach().transpose(1, 2)
        mask = torch.ones(32, length, dtype=torch.bool, device=vectors.device)
        training = self.training
        self.eval()
        for branch in self.branches:
            assert isinstance(branch, CapsuleBranch)
            branch.reset_parameters(vectors, mask)
        self.train(training)

    def embed(self, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """What the branches see: vectors ``[B, dim, L']`` and mask ``[B, L']``."""
        if self.length is not None:
            if token_ids.shape[1] > self.length:
                raise InputError(
                    f"this model has weights for texts of up to {self.length} words (its option length), got "
                    f"{token_ids.shape[1]}. Cut the texts, or share the weights along the text: length=None."
                )
            token_ids = F.pad(token_ids, (0, self.length - token_ids.shape[1]), value=PADDING)
        return self.words(token_ids, self.shortest)

    def class_capsules(self, token_ids: Tensor) -> list[Capsules]:
        """Those of every branch, the noise class among them as the last."""
        vectors, mask = self.embed(token_ids)
        return [branch(vectors, mask) for branch in self.branches]

    def forward(self, token_ids: Tensor, target: Tensor | None = None) -> ModelOutput:
        """Classify texts; a target is accepted, as by every model, and not needed."""
        poses = [capsules.pose[:, : self.classes] for capsules in self.class_capsules(token_ids)]
        capsules = Capsules.from_pose(torch.stack(poses).mean(dim=0))
        return ModelOutput(capsules.activation, capsules)


class TextCapsOptions(TypedDict, total=False):
    """The options of a text capsule network as keywords, for type checkers: see :class:`TextCapsConfig`."""

    static: bool
    filters: int
    stride: int
    types: int
    pose: int
    window: int
    squash: str
    routing: str | Mapping[str, Any]
    noise_class: bool
    leaky: bool
    amend: bool
    partial_sampling: float | None
    dropout: float
    capsule_dropout: float
    length: int | None


@register_model("text-capsnet-a", reads="words")
@takes_options(TextCapsConfig, "ngrams")
def text_capsnet_a(
    shape: tuple[int, int], classes: int, *, ngram: int = 3, **options: Unpack[TextCapsOptions]
) -> TextCapsNet:
    """Capsule-A of Zhao et al. 2018: capsules over n-grams of one size."""
    require_options(TextCapsConfig, options)
    return TextCapsNet(shape, classes, TextCapsConfig(ngrams=(ngram,), **options))


@register_model("text-capsnet-b", reads="words")
@takes_options(TextCapsConfig)
def text_capsnet_b(
    shape: tuple[int, int],
    classes: int,
    *,
    ngrams: Sequence[int] = TextCapsConfig.ngrams,
    **options: Unpack[TextCapsOptions],
) -> TextCapsNet:
    """Capsule-B of Zhao et al. 2018: the mean of several Capsule-A, each with n-grams of another size."""
    require_options(TextCapsConfig, options)
    return TextCapsNet(shape, classes, TextCapsConfig(ngrams=ngrams, **options))
