"""Margin, spread and reconstruction loss, their schedules, and their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.capsules import Capsules, require_capsules
from torchcaps.checks import require_choice, require_finite, require_float
from torchcaps.errors import InputError, InputTypeError
from torchcaps.models.output import ModelOutput
from torchcaps.plain import shorten
from torchcaps.targets import class_flags


def _check_scores(name: str, scores: Tensor, target: Tensor) -> None:
    require_float(name, scores)
    if scores.dim() != 2:
        raise InputError(f"{name} must have shape [batch, classes], got {tuple(scores.shape)}.")
    if not isinstance(target, Tensor) or target.dim() == 0:
        raise InputTypeError(f"the target must be a tensor with one entry per image, got {target!r}.")
    if len(target) != len(scores):
        raise InputError(f"{name} for {len(scores)} images, but targets for {len(target)}.")
    require_finite(name, scores)


def _mean_of_items(losses: Tensor, target: Tensor, class_weights: Tensor | None) -> Tensor:
    """The mean of the items' losses ``[B]``, each multiplied by the mean weight of the classes that it has."""
    if class_weights is None or _is_flags(target):  # of flags the terms of the classes are weighted, not the items
        return losses.mean()
    weights = class_weights.to(losses)[target.long()].view(len(losses), -1).mean(dim=1)
    return (weights * losses).mean()


def _is_flags(target: Tensor) -> bool:
    return target.dtype == torch.bool or target.is_floating_point()


def _check_weights(class_weights: Tensor | None, classes: int) -> None:
    if class_weights is not None and class_weights.shape != (classes,):
        raise InputError(
            f"class_weights must have one number for each of the {classes} classes, got shape "
            f"{tuple(class_weights.shape)}."
        )


def margin_loss(
    lengths: Tensor,
    target: Tensor,
    *,
    present: float = 0.9,
    absent: float = 0.1,
    down_weight: float = 0.5,
    class_weights: Tensor | None = None,
) -> Tensor:
    r"""A present class should be longer than 0.9, an absent one shorter than 0.1.

    ::

        Σ_k T_k max(0, m⁺ − ‖v_k‖)² + λ (1 − T_k) max(0, ‖v_k‖ − m⁻)²

    summed over the classes, averaged over the images. Sabour et al. 2017, arXiv 1710.09829, eq. 4.

    Args:
        lengths: the class capsules' lengths, as they are: no softmax.
        target: class indices ``[B]`` or ``[B, M]``, or class flags ``[B, K]``; any number of classes may be present.
        present: m⁺.
        absent: m⁻.
        down_weight: λ, so that the many absent classes do not shrink all lengths at first.
        class_weights: w, see :class:`CapsuleLoss`; not given: all are 1.

    Shapes:
        lengths ``[B, K]``, class_weights ``[K]`` → scalar.
    """
    _check_scores("lengths", lengths, target)
    _check_weights(class_weights, lengths.shape[1])
    flags = class_flags(target, lengths.shape[1]).to(lengths.dtype)
    missing = flags * (present - lengths).clamp_min(0).square()
    if class_weights is not None and _is_flags(target):
        missing = missing * class_weights.to(missing)
    false = (1 - flags) * (lengths - absent).clamp_min(0).square()
    return _mean_of_items((missing + down_weight * false).sum(dim=1), target, class_weights)


def spread_loss(
    activations: Tensor, target: Tensor, margin: float = 0.9, *, class_weights: Tensor | None = None
) -> Tensor:
    r"""The right class should be more active than every other one by a margin.

    ::

        Σ_{i≠t} max(0, m − (a_t − a_i))²

    averaged over the images. Hinton et al. 2018, eq. 3. Raise m while training:
    :func:`spread_margin_by_epoch` or :func:`spread_margin_by_step`.

    Args:
        activations: of the class capsules.
        target: one class index per image.
        margin: m.
        class_weights: w, see :class:`CapsuleLoss`; not given: all are 1.

    Shapes:
        activations ``[B, K]``, target ``[B]``, class_weights ``[K]`` → scalar.
    """
    _check_scores("activations", activations, target)
    _check_weights(class_weights, activations.shape[1])
    if target.dim() != 1:
        raise InputError(f"spread loss needs one class index per image, shape [batch]; got {tuple(target.shape)}.")
    flags = class_flags(target, activations.shape[1])
    right = (activations * flags).sum(dim=1, keepdim=True)  # [B, 1]
    short = (margin - (right - activations)).clamp_min(0).square()
    return _mean_of_items(short.masked_fill(flags, 0).sum(dim=1), target, class_weights)


def spread_margin_by_epoch(epoch: int, start: float = 0.2, step: float = 0.1, end: float = 0.9) -> float:
    """0.2 in epoch 0, then 0.1 more per epoch up to 0.9 (S. Cheng 2018, after Hinton et al. 2018)."""
    return min(end, start + step * epoch)


def spread_margin_by_step(step: int) -> float:
    """m = 0.2 + 0.79·σ(min(10, step/50000 − 4)): the schedule in the code of Hinton et al. 2018."""
    return 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / 50_000 - 4)))


def reconstruction_loss(reconstruction: Tensor, image: Tensor, scale: float = 0.0005) -> Tensor:
    """``scale`` times the SUM of squared pixel errors of an image, averaged over the images.

    The sum keeps the stated scale true for every image size; a mean would divide it by the number of pixels.
    Sabour et al. 2017, §4.1.

    Shapes:
        reconstruction and image ``[B, *image]``, or both with several objects ``[B, M, *image]`` → scalar.
    """
    if reconstruction.shape != image.shape:
        raise InputError(
            f"the reconstruction has shape {tuple(reconstruction.shape)}, the image {tuple(image.shape)}; they "
            "must be equal. Several objects need one target image each: [batch, objects, *image]."
        )
    require_finite("reconstruction", reconstruction)
    require_finite("image", image)
    return scale * (reconstruction - image).square().flatten(1).sum(dim=1).mean()


def _cross_entropy(logits: Tensor, target: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Of class indices, among which the probability is shared evenly, or of flags for each class on its own."""
    _check_scores("logits", logits, target)
    _check_weights(class_weights, logits.shape[1])
    flags = class_flags(target, logits.shape[1]).to(logits)
    if target.dtype == torch.bool:
        weight = None if class_weights is None else class_weights.to(logits)
        return F.binary_cross_entropy_with_logits(logits, flags, reduction="none", pos_weight=weight).sum(dim=1).mean()
    shares = flags / flags.sum(dim=1, keepdim=True)
    if class_weights is None:
        return F.cross_entropy(logits, shares)
    if target.is_floating_point():
        return -(class_weights.to(logits) * shares * logits.log_softmax(dim=1)).sum(dim=1).mean()
    return _mean_of_items(F.cross_entropy(logits, shares, reduction="none"), target, class_weights)


def _read_weights(weights: Tensor | Sequence[float] | None) -> Tensor | None:
    """Weights of classes as a tensor ``[K]``; what cannot be one is refused."""
    if weights is None:
        return None
    read = torch.as_tensor(weights)
    read = (read if read.is_floating_point() else read.float()).detach().clone()
    if read.dim() != 1 or not bool(((read > 0) & read.isfinite()).all()):
        raise InputError(f"class_weights must be positive numbers, one for each class; got {shorten(read.tolist())}.")
    return read


class LossParts(NamedTuple):
    """A loss and what it is made of; ``total.backward()`` trains."""

    total: Tensor
    classification: Tensor
    reconstruction: Tensor


class CapsuleLoss(nn.Module):
    """Classification loss plus scaled reconstruction loss, for models of this library and networks of one's own.

    Args:
        classification: ``margin`` (capsules, single or multi label; for class flags also the sigmoid of the logits of
            models without capsules, as Zhao et al. 2018 train theirs), ``spread`` (matrix capsules) or
            ``cross-entropy`` (models without capsules, on logits: of the softmax for class indices, several of them
            having equal parts of the probability; of each class's sigmoid, summed over the classes, for class flags).
        reconstruction_scale: weight of the sum of squared pixel errors; 0 leaves it out.
        margin: m of the spread loss; a schedule sets the attribute while training.
        class_weights: w, one positive number per class, for classes of very different sizes; not given: all are 1.
            Of class indices the classification loss L of an item counts as often as the weight of its class says, or
            the mean weight of several::

                1/B Σ_b L_b · mean_{t ∈ targets of b} w_t

            It is divided by the number of items, not by the sum of their weights: with w_k = n / (K n_k), where n_k of
            n items have class k, weights are 1 in the mean over the data, and a batch in which a rare class comes
            pulls more than others. Of class flags the terms of classes that are present are multiplied by their
            weights, those of absent classes are not::

                1/B Σ_b Σ_k w_k T_bk L⁺_bk + (1 − T_bk) L⁻_bk

            The reconstruction loss is not weighted. The weights are no part of the state dict.

    Shapes:
        ``loss(output, target, image)`` → :class:`LossParts`. The output is that of a model; or the class capsules, pose
        ``[B, classes, *pose]``; or scores ``[B, classes]``, which margin and spread read as they are, as lengths or
        activations from 0 to 1, and cross-entropy as logits. Targets as in :func:`margin_loss`; the image to
        reconstruct ``[B, *image]`` (or ``[B, M, *image]``, one per object), if the model does.
    """

    KINDS = ("margin", "spread", "cross-entropy")

    if TYPE_CHECKING:

        def __call__(
            self, output: ModelOutput | Capsules | Tensor, target: Tensor, image: Tensor | None = None
        ) -> LossParts:
            """See :meth:`forward`."""

    class_weights: Tensor | None

    def __init__(
        self,
        classification: str = "margin",
        *,
        reconstruction_scale: float = 0.0005,
        margin: float = 0.9,
        class_weights: Tensor | Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        require_choice("classification loss", classification, self.KINDS)
        if reconstruction_scale < 0:
            raise InputError(f"reconstruction_scale must not be negative, got {reconstruction_scale}.")
        self.classification, self.reconstruction_scale, self.margin = (
            classification,
            reconstruction_scale,
            margin,
        )
        self.register_buffer("class_weights", _read_weights(class_weights), persistent=False)

    def forward(
        self, output: ModelOutput | Capsules | Tensor, target: Tensor, image: Tensor | None = None
    ) -> LossParts:
        """Loss of one batch."""
        scores = self._scores(output, target)
        if self.classification == "margin":
            classification = margin_loss(scores, target, class_weights=self.class_weights)
        elif self.classification == "spread":
            classification = spread_loss(scores, target, self.margin, class_weights=self.class_weights)
        else:
            classification = _cross_entropy(scores, target, self.class_weights)
        reconstruction = classification.new_zeros(())
        if isinstance(output, ModelOutput) and output.reconstruction is not None and self.reconstruction_scale > 0:
            if image is None:
                raise InputError(
                    "the model reconstructs: pass the image to compare with, or set reconstruction_scale=0."
                )
            reconstruction = reconstruction_loss(output.reconstruction, image, self.reconstruction_scale)
        return LossParts(classification + reconstruction, classification, reconstruction)

    def _scores(self, output: ModelOutput | Capsules | Tensor, target: Tensor) -> Tensor:
        """What is compared with the target ``[B, classes]``."""
        if isinstance(output, Tensor):
            return output
        if isinstance(output, Capsules):
            return require_capsules("CapsuleLoss", output).activation
        if not isinstance(output, ModelOutput):
            raise InputTypeError(
                "CapsuleLoss takes what a model gives (ModelOutput), class Capsules, or a tensor of scores "
                f"[batch, classes]; got {type(output).__name__}."
            )
        if self.classification == "cross-entropy" or output.capsules is not None:
            return output.scores
        if self.classification == "margin" and isinstance(target, Tensor) and target.dtype == torch.bool:
            return output.scores.sigmoid()
        raise InputError(
            f"the {self.classification} loss compares capsules, but this model gives logits: "
            "use CapsuleLoss('cross-entropy')."
        )

    def extra_repr(self) -> str:
        """Show kind and scale."""
        weighted = "" if self.class_weights is None else f", class_weights={shorten(self.class_weights.tolist())}"
        return f"{self.classification!r}, reconstruction_scale={self.reconstruction_scale}{weighted}"
