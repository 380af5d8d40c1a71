"""Dynamic and optimised routing in plain torch, votes and all: what torch differentiates as often as one likes.

It serves where a transform or ``create_graph`` asks for derivatives that the kernel does not have, and where a model is
exported without custom ops (:mod:`torchcaps.ops.transforms`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.ops.coupling import linear_votes
from torchcaps.ops.dynamic.plan import DynamicPlan
from torchcaps.ops.dynamic.steps import Steps


def route_plainly(
    plan: DynamicPlan, poses: Tensor, weight: Tensor, child_weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Pose ``[B, J, D]``, the sums of all passes ``[r, B, J, D]`` and the last couplings ``[B, I, J]``."""
    votes = linear_votes(poses, weight)  # [B, I, J, D]
    constant = plan.gradient == "last"  # what led to the last pass
    steps = Steps(plan, bias)
    agree: Tensor | None = None  # V, [B, J, D]
    sums: list[Tensor] = []
    coupling = votes.new_full(votes.shape[:3], 1 / (votes.shape[2] + int(plan.leaky)))  # [B, I, J], even at first
    for t in range(plan.iterations):
        if t > 0:
            agree = steps.next(agree, sums[-1], t - 1)
            led, by = (votes.detach(), agree.detach()) if constant else (votes, agree)
            logits = torch.einsum("bijd,bjd->bij", led, by)
            coupling = F.pad(logits, (1, 0)).softmax(dim=-1)[..., 1:] if plan.leaky else logits.softmax(dim=-1)
        if child_weight is not None:
            coupling = coupling * child_weight[..., None]
        sums.append(torch.einsum("bij,bijd->bjd", coupling, votes))
    return steps.result(sums[-1]), torch.stack(sums), coupling
