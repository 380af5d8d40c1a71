"""The one value that flows between layers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.utils import _pytree as pytree

from torchcaps.checks import require_finite, require_float, require_mask
from torchcaps.errors import InputError, InputTypeError
from torchcaps.ops.squash import length


class Capsules(NamedTuple):
    """A batch of capsules: what each one sees (pose) and whether it is there (activation).

    The activation's shape says how the capsules are arranged; the pose has the same leading dimensions and
    then its own: one for a vector pose, two for a matrix pose.

    ==================  ====================  ===========
    arrangement         pose                  activation
    ==================  ====================  ===========
    a plain set         ``[B, N, D]``         ``[B, N]``
    along a sequence    ``[B, L, T, D]``      ``[B, L, T]``
    on an image grid    ``[B, H, W, T, D]``   ``[B, H, W, T]``
    matrix poses        ``[..., P, P]``       ``[...]``
    ==================  ====================  ===========

    with T capsule types at every position.

    Attributes:
        pose: floating point tensor ``[*arrangement, *pose]``.
        activation: ``[*arrangement]``, the probability that the entity is present. For vector capsules it is
            the length of the pose (:meth:`from_pose`); matrix capsules carry their own.
        mask: bool ``[*arrangement]`` or None. False marks padding: such a capsule takes no part in anything.
    """

    pose: Tensor
    activation: Tensor
    mask: Tensor | None = None

    @classmethod
    def from_pose(cls, pose: Tensor, mask: Tensor | None = None) -> Capsules:
        """Vector capsules whose activation is the length of their pose.

        Shapes: pose ``[*arrangement, D]``, mask ``[*arrangement]``.
        """
        return cls(pose, length(pose), mask)

    def flatten(self) -> Capsules:
        """The same capsules as a plain set: pose ``[B, N, D]``, activation ``[B, N]``, mask ``[B, N]``."""
        arrangement = self.activation.dim()
        return Capsules(
            self.pose.flatten(arrangement).flatten(1, arrangement - 1),
            self.activation.flatten(1),
            None if self.mask is None else self.mask.flatten(1),
        )

    def validate(self) -> Capsules:
        """Raise with shapes in the message unless pose, activation and mask belong together; return self."""
        require_float("pose", self.pose)
        require_float("activation", self.activation)
        arrangement, pose = tuple(self.activation.shape), tuple(self.pose.shape)
        if len(arrangement) < 2 or len(pose) <= len(arrangement) or pose[: len(arrangement)] != arrangement:
            raise InputError(
                "pose must have the activation's dimensions followed by its own (one for vectors, two for "
                f"matrices), with at least [batch, capsules] in front; got pose {pose} and activation "
                f"{arrangement}. Capsules.from_pose(pose) makes the activation of vector capsules."
            )
        if self.mask is not None:
            require_mask("mask", self.mask, arrangement, meaning="the activation's shape")
        for name, tensor in (("pose", self.pose), ("activation", self.activation)):
            if self.mask is not None:
                hidden = ~self.mask.view(*arrangement, *(1,) * (tensor.dim() - len(arrangement)))
                tensor = tensor.masked_fill(hidden, 0)
            require_finite(name, tensor)
        return self


def name_for_export(cls: type) -> None:
    """Give a named tuple the name under which ``torch.export.save`` writes it; without one it refuses."""
    register = getattr(pytree, "_register_namedtuple", None)
    if register is not None:  # torch has no public way to do this yet
        register(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")


name_for_export(Capsules)


def require_capsules(layer: str, capsules: Capsules) -> Capsules:
    """Raise unless ``capsules`` are valid :class:`Capsules`; return them."""
    if not isinstance(capsules, Capsules):
        raise InputTypeError(
            f"{layer} takes Capsules(pose, activation), got {type(capsules).__name__}. "
            "Capsules.from_pose(tensor) makes vector capsules of a tensor [batch, capsules, size]."
        )
    return capsules.validate()
