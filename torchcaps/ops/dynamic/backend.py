"""What a backend of dynamic and optimised routing does: three passes over the children, put together here.

Forward, with V₁ = 0:   s_t = Σ_i w_i softmax_j(û_ij·V_t) û_ij      r passes over the children
                        V_{t+1} = V_t + squash(s_t + bias)           dynamic; without V_t for ``replace``
                        V_{t+1} = s_t / (α_t ‖s_t‖)                  optimised

Backward: G_r is the gradient of s_r. For t = r … 2 a pass over the children gives dV_t from G_t, and dV_t gives
G_{t−1}. One more pass gives the gradients of poses and weights from all V_t and G_t. Only the sums s_t are kept from
the forward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import InputTypeError
from torchcaps.ops.backends import Backend
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.dynamic.steps import Steps
from torchcaps.ops.precision import exact


class Inputs(NamedTuple):
    """Poses ``[B, I, d]``, weight ``[I, J, d, D]`` or ``[J, d, D]``, child weights ``[B, I]`` and bias ``[J, D]``."""

    poses: Tensor
    weight: Tensor
    child_weight: Tensor | None
    bias: Tensor | None


class Gradients(NamedTuple):
    """Of the inputs, in their order and of their shapes; those of inputs that are not there hold anything."""

    poses: Tensor
    weight: Tensor
    child_weight: Tensor
    bias: Tensor


class RoutedBackend(Backend):
    """Serves :func:`torchcaps.ops.routed_linear`. A backend has the three passes; it may also do the whole at once."""

    def sum_pass(
        self, plan: DynamicPlan, inputs: Inputs, agree: Tensor | None, coupling: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """s ``[B, J, D]`` for V ``[B, J, D]`` (None: even shares), and the couplings ``[B, I, J]`` if asked for."""
        raise InputTypeError(f"{type(self).__name__} must implement sum_pass.")

    def agreement_pass(self, plan: DynamicPlan, inputs: Inputs, agree: Tensor, grad: Tensor) -> Tensor:
        """dV ``[B, J, D]`` for the gradient G ``[B, J, D]`` of s."""
        raise InputTypeError(f"{type(self).__name__} must implement agreement_pass.")

    def parameter_pass(
        self, plan: DynamicPlan, inputs: Inputs, agrees: Tensor, grads: Tensor, first_even: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """du, dW and dw from V and G of every pass ``[T, B, J, D]``.

        ``first_even`` says that there was no V in the first of them. With ``gradient="last"`` V carries no gradient.
        """
        raise InputTypeError(f"{type(self).__name__} must implement parameter_pass.")

    def forward(self, plan: DynamicPlan, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Pose ``[B, J, D]`` and the sums of all passes ``[r, B, J, D]``."""
        steps, agree = Steps(plan, inputs.bias), None
        sums: list[Tensor] = []
        with exact(inputs.poses):
            for t in range(plan.iterations):
                if t > 0:
                    agree = steps.next(agree, sums[-1], t - 1)
                sums.append(self.sum_pass(plan, inputs, agree)[0])
            return steps.result(sums[-1]), torch.stack(sums)

    def backward(self, plan: DynamicPlan, inputs: Inputs, sums: Tensor, grad: Tensor) -> Gradients:
        """Gradients of all inputs from that of the pose ``[B, J, D]``."""
        with exact(inputs.poses):
            steps, last = Steps(plan, inputs.bias), plan.iterations - 1
            agrees = steps.agreements(sums)
            grads = [torch.empty(0)] * plan.iterations
            grads[-1] = steps.result_gradient(grad, sums[-1])
            dbias = grads[-1].sum(dim=0)
            carry: Tensor | None = None
            first = last if plan.gradient == "last" else 0
            for t in range(last, first, -1):
                agree = agrees[t]
                assert agree is not None  # only the first pass has none
                dagree = self.agreement_pass(plan, inputs, agree, grads[t])
                carry = carry + dagree if plan.accumulates and carry is not None else dagree
                grads[t - 1] = steps.next_gradient(carry, sums[t - 1], t - 1)
                dbias = dbias + grads[t - 1].sum(dim=0)
            used = [torch.zeros_like(sums[0]) if agree is None else agree for agree in agrees[first:]]
            passes = torch.stack(used), torch.stack(grads[first:])
            return Gradients(*self.parameter_pass(plan, inputs, *passes, agrees[first] is None), dbias)

    def coupling(self, plan: DynamicPlan, inputs: Inputs, sums: Tensor) -> Tensor:
        """The couplings ``[B, I, J]`` of the last pass, from the sums of the passes before it."""
        agree = Steps(plan, inputs.bias).agreements(sums)[-1]
        table = self.sum_pass(plan, inputs, agree, coupling=True)[1]
        assert table is not None
        return table
