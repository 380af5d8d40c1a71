"""What each number of a pose means: change it, decode, and measure how the picture changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.ground import lay_on_black
from torchcaps.analysis.moments import Shape, measure_shape
from torchcaps.errors import InputError
from torchcaps.models.base import Decoder

STEPS: tuple[float, ...] = tuple(round(0.05 * step, 2) for step in range(-5, 6))
"""What is added to one number of a pose: −0.25 … 0.25 in steps of 0.05 (Sabour et al. 2017, §5.1)."""

PROPERTIES = {"thickness": "thickness", "slant": "slant", "width": "width", "height": "height", "x": "x", "y": "y",
              "ink": "mass"}  # fmt: skip
"""What is measured, by the name that a reader sees: the field of :class:`~torchcaps.analysis.moments.Shape`."""

NOT_IN_PIXELS = ("slant", "ink")
"""Properties without a unit; all others are lengths in pixels."""

CLEAR_EFFECT, CLEAR_AGREEMENT = 0.5, 0.75
"""An effect is clear if it is at least half a natural standard deviation, the same way in three of four images."""

STILL = 1e-4
"""A property whose natural standard deviation is not larger does not vary: there is no scale to compare with."""

FADES = 0.15
"""A row of pictures whose brightest pixel loses more than this part of itself dissolves, whatever else it does."""

_AT_ONCE = 16  # images, each of which becomes 16 × 11


class Effects(NamedTuple):
    """What the D numbers of a pose do to the P properties of a picture.

    Attributes:
        names: of the properties.
        change: ``[D, P]``: from the first step to the last, by a straight line through all of them; mean over images.
        spread: ``[D, P]``: standard deviation of the changes over the images.
        effect: ``[D, P]``: change / natural standard deviation of the property, so that properties can be compared;
            0 for a property that does not vary by nature.
        agreement: ``[D, P]``: share of the images that change the way the mean does; 0 if the mean does not change.
        fading: ``[D]``: the part of its brightness that the brightest pixel loses from the brightest to the faintest
            step; mean over images.
    """

    names: tuple[str, ...]
    change: Tensor
    spread: Tensor
    effect: Tensor
    agreement: Tensor
    fading: Tensor


def perturb_images(decoder: Decoder, pose: Tensor, classes: Tensor, steps: Sequence[float] = STEPS) -> Tensor:
    """Decode the capsule of one class with one of its numbers changed; all other capsules are zero.

    Sabour et al. 2017, arXiv 1710.09829, §5.1 and figure 4.

    Args:
        decoder: of the model.
        pose: of the class capsules.
        classes: whose capsule is decoded, an index per image.
        steps: what is added to a number.

    Shapes:
        pose ``[B, J, D]``, classes ``[B]`` → ``[B, D, S, C, H, W]``.
    """
    if pose.dim() != 3 or classes.shape != pose.shape[:1] or classes.is_floating_point() or classes.dtype == torch.bool:
        raise InputError(
            "poses of the class capsules must have shape [batch, classes, size] and come with one class index per "
            f"image; got poses {tuple(pose.shape)} and classes {tuple(classes.shape)} of {classes.dtype}."
        )
    batch, capsules, size = pose.shape
    if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < capsules:
        raise InputError(f"classes must be in 0 … {capsules - 1}, got {int(classes.min())} to {int(classes.max())}.")
    added = torch.tensor(steps, dtype=pose.dtype, device=pose.device)
    one = torch.eye(size, dtype=pose.dtype, device=pose.device)[:, None] * added[:, None]  # [D, S, D]
    rows = torch.arange(batch, device=pose.device)
    changed = pose.new_zeros(batch, size, len(added), capsules, size)
    changed[rows, :, :, classes] = pose[rows, classes][:, None, None] + one
    with torch.inference_mode():
        images: Tensor = decoder.decode(changed)
    return images


def pose_effects(
    decoder: Decoder,
    pose: Tensor,
    classes: Tensor,
    natural: Tensor | None = None,
    ground: Tensor | None = None,
    content: Tensor | None = None,
) -> Effects:
    """Measure every number of the poses, over all given images or those of one class: of drawings on a plain ground.

    Args:
        decoder: of the model.
        pose: of the class capsules.
        classes: whose capsule is decoded, an index per image.
        natural: images in 0 … 1, bright on black, whose spread is the scale of an effect. Not given: the decoded images
            without any change; then at least two different ones are needed for an effect to have a scale. Digits that
            a data set has centred have next to no spread in x and y: give images shifted as in training.
        ground: its colour, see :func:`~torchcaps.analysis.ground.find_ground`; not given: black.
        content: pixels that count; not given: all.

    Shapes:
        pose ``[B, J, D]``, classes ``[B]``, natural ``[N, H, W]``, ground ``[C]``, content bool ``[B, 1, H, W]`` →
        :class:`Effects`.
    """
    if not len(pose):
        raise InputError("effects are means over images: give the pose of at least one.")
    steps = torch.tensor(STEPS, dtype=pose.dtype, device=pose.device)
    line = (steps - steps.mean()) / (steps - steps.mean()).square().sum()  # times the values: the slope
    changes, unchanged, peaks = [], [], []
    for start in range(0, len(pose), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        images = _draw_on_black(perturb_images(decoder, pose[some], classes[some]), ground, content, some)
        values = properties(images)  # [b, D, S, P]
        peaks.append(images.flatten(-2).amax(dim=-1))  # [b, D, S]
        changes.append(torch.einsum("bdsp,s->bdp", values, line) * (steps.max() - steps.min()))
        unchanged.append(values[:, 0, STEPS.index(0.0)])
    change = torch.cat(changes)
    scale = (torch.cat(unchanged) if natural is None else properties(natural)).std(dim=0, correction=0)  # [P]
    mean = change.mean(dim=0)
    return Effects(
        tuple(PROPERTIES),
        mean,
        change.std(dim=0, correction=0),
        torch.where(scale > STILL, mean / torch.where(scale > STILL, scale, 1), 0),
        ((change.sign() == mean.sign()) & (mean != 0)).to(change.dtype).mean(dim=0),
        _measure_fading(torch.cat(peaks)),
    )


def _draw_on_black(images: Tensor, ground: Tensor | None, content: Tensor | None, some: slice) -> Tensor:
    """What is measured of decoded images ``[b, D, S, C, H, W]`` → ``[b, D, S, H, W]``."""
    if ground is None:
        ground = images.new_zeros(images.shape[-3])
    return lay_on_black(images, ground, None if content is None else content[some, None, None])


def measure_changes(decoder: Decoder, pose: Tensor, classes: Tensor, content: Tensor | None = None) -> Tensor:
    """How much each number of the poses changes a picture, whatever it shows: from the first step to the last.

    The root of the mean squared difference of its pixels, mean over the images. White and black differ by 1.

    Args:
        decoder: of the model.
        pose: of the class capsules.
        classes: whose capsule is decoded, an index per image.
        content: pixels that count; not given: all.

    Shapes:
        pose ``[B, J, D]``, classes ``[B]``, content bool ``[B, 1, H, W]`` → ``[D]``.
    """
    if not len(pose):
        raise InputError("changes are means over images: give the pose of at least one.")
    changes = []
    for start in range(0, len(pose), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        images = perturb_images(decoder, pose[some], classes[some], (STEPS[0], STEPS[-1]))  # [b, D, 2, C, H, W]
        squared = (images[:, :, 1] - images[:, :, 0]).square().mean(dim=-3).flatten(2)  # [b, D, HW]
        counted = torch.ones_like(squared[:, :1]) if content is None else content[some].flatten(2).to(squared.dtype)
        changes.append(((squared * counted).sum(dim=2) / counted.sum(dim=2).clamp_min(1)).sqrt())
    return torch.cat(changes).mean(dim=0)


def _measure_fading(peaks: Tensor) -> Tensor:
    """``[B, D, S]`` → ``[D]``."""
    most = peaks.amax(dim=-1)
    return torch.where(most > 0, 1 - peaks.amin(dim=-1) / torch.where(most > 0, most, 1), 0).mean(dim=0)


def properties(images: Tensor) -> Tensor:
    """The measured properties in the order of :data:`PROPERTIES`: ``[..., H, W]`` → ``[..., P]``."""
    shape: Shape = measure_shape(images)
    return torch.stack([getattr(shape, field) for field in PROPERTIES.values()], dim=-1)


def find_clear(effects: Effects) -> Tensor:
    """Which effects are clear, bool ``[D, P]``: :data:`CLEAR_EFFECT` and :data:`CLEAR_AGREEMENT` say when."""
    return (effects.effect.abs() >= CLEAR_EFFECT) & (effects.agreement >= CLEAR_AGREEMENT)


def describe_dimension(effects: Effects, dimension: int, most: int = 1) -> str:
    """What a number of the pose does, in words: the strongest clear effects, such as ``slant (+0.31, 92 % of images)``.

    The number is the change of the property itself, from a step of −0.25 to one of +0.25. Effects below
    :data:`CLEAR_EFFECT` natural standard deviations, or the same way in less than :data:`CLEAR_AGREEMENT` of the
    images, are not clear. A row whose pictures lose more than :data:`FADES` of their brightness is said to fade: what
    is measured of a dissolving shape says little.

    Args:
        effects: of all numbers.
        dimension: which of them.
        most: how many effects to name.
    """
    size, agreement = effects.effect[dimension].abs(), effects.agreement[dimension]
    clear = find_clear(effects)[dimension]
    parts: list[str] = []
    for at in size.argsort(descending=True).tolist():
        if clear[at] and len(parts) < most:
            name = effects.names[at]
            unit = "" if name in NOT_IN_PIXELS else " pixels"
            change, share = float(effects.change[dimension, at]), float(agreement[at])
            parts.append(f"{name} ({change:+.2f}{unit}, {100 * share:.0f} % of images)")
    fades = float(effects.fading[dimension])
    return (", ".join(parts) or "no clear effect") + (f"; fades by {100 * fades:.0f} %" if fades > FADES else "")
