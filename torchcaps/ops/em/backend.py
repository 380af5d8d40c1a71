"""What a backend of EM routing on a grid does: one iteration, the moments of the votes, and their gradients.

B images, Q and P positions of children and parents, W places in a window, T and J types of children and parents; a pose
is R×d, a weight d×C, a vote R×C or H = R·C numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torchcaps.errors import InputTypeError
from torchcaps.ops.backends import Backend
from torchcaps.ops.windows import Windows


class Children(NamedTuple):
    """What votes.

    Attributes:
        poses: ``[B, Q, T, R, d]``.
        weight: ``[W or 1, T, J, d, C]``.
        activation: ``[B, Q, T]``.
        shift: of the votes, ``[Q, R, C]`` or None.
    """

    poses: Tensor
    weight: Tensor
    activation: Tensor
    shift: Tensor | None

    def images(self, chunk: slice) -> Children:
        """Those of a few images."""
        return Children(self.poses[chunk], self.weight, self.activation[chunk], self.shift)


class Parents(NamedTuple):
    """What is voted for: ln a_j − ½ Σ ln σ² as log_p ``[B, P, J]``, mean and precision 1/σ² ``[B, P, J, H]``."""

    log_p: Tensor
    mean: Tensor
    precision: Tensor

    def images(self, chunk: slice) -> Parents:
        """Those of a few images."""
        return Parents(self.log_p[chunk], self.mean[chunk], self.precision[chunk])


class Moments(NamedTuple):
    """Of the votes for every parent: amount Σ R a ``[B, P, J]``, mean and variance ``[B, P, J, H]``, and ln amount."""

    amount: Tensor
    mean: Tensor
    variance: Tensor
    log_mass: Tensor


class MomentGradients(NamedTuple):
    """Of everything that :func:`moments` is made from; the last three only where there were parents."""

    poses: Tensor
    weight: Tensor
    activation: Tensor
    log_p: Tensor
    mean: Tensor
    precision: Tensor


class GridPlan(NamedTuple):
    """Which children a parent sees, and whether a child chooses among its parents at all positions or at each."""

    windows: Windows
    everywhere: bool


class MomentsBackend(Backend):
    """Serves :func:`torchcaps.ops.routed_em`."""

    def moments(self, plan: GridPlan, children: Children, parents: Parents | None, present: Tensor | None) -> Moments:
        """Mass, mean and variance of the votes for every parent, each child's vote weighed by its share and activation.

        Without ``parents``, as in the first iteration, the shares are even; ``present`` ``[B, P]`` is False where
        nothing is sent.
        """
        raise InputTypeError(f"{type(self).__name__} must implement moments.")

    def moment_gradients(
        self,
        plan: GridPlan,
        children: Children,
        parents: Parents | None,
        present: Tensor | None,
        found: Moments,
        grads: tuple[Tensor, Tensor, Tensor],
    ) -> MomentGradients:
        """Gradients from those of amount, mean and variance; ``found`` is what :meth:`moments` gave."""
        raise InputTypeError(f"{type(self).__name__} must implement moment_gradients.")
