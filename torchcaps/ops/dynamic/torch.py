"""The passes over the children, in torch: votes exist for a chunk of children at a time only.

This is the readable text of what the kernel in ``csrc/`` does, and what serves where the kernel does not: without a
compiler, and on devices other than the CPU. With û_ij = u_i W_ij and p = softmax_j(û_ij·V_j):

    sum         s_j  = Σ_i w_i p_ij û_ij
    agreement   dV_j = Σ_i db_ij û_ij,   db_ij = w_i p_ij (y_ij − Σ_k p_ik y_ik),   y_ij = û_ij·G_j
    parameters  dû_ij = Σ_t w_i p_ij G_j + db_ij V_j,   dw_i = Σ_tj p_ij y_ij,
                du_i = Σ_j dû_ij W_ijᵀ,   dW_ij = Σ_b u_iᵀ dû_ij
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.ops.backends import register_backend
from torchcaps.ops.dynamic.backend import Inputs, RoutedBackend
from torchcaps.ops.dynamic.plan import DynamicPlan

CHUNK_BYTES = {"cpu": 768 << 10, "other": 64 << 20}
"""How much memory the votes of one chunk of children may take: on a CPU what its caches hold, elsewhere enough to
keep the device busy."""


@register_backend("dynamic")
class TorchRouting(RoutedBackend):
    """Serves every device and type of number."""

    name = "torch"

    def describe(self) -> str:
        """How."""
        return "torch, in chunks of children"

    def sum_pass(
        self, plan: DynamicPlan, inputs: Inputs, agree: Tensor | None, coupling: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """See :class:`RoutedBackend`."""
        poses, weight, child_weight, _ = inputs
        batch, children, _ = poses.shape
        parents, size = weight.shape[-3], weight.shape[-1]
        total = poses.new_zeros(batch, parents, size)
        table = poses.new_empty(batch, children, parents) if coupling else None
        for chunk in _chunks(poses, weight):
            votes = _votes(poses, weight, chunk)
            c = _shares(votes, agree, plan.leaky) * _child_weight(child_weight, chunk)
            total += torch.einsum("ibj,ibjd->bjd", c, votes)
            if table is not None:
                table[:, chunk] = c.transpose(0, 1)
        return total, table

    def agreement_pass(self, plan: DynamicPlan, inputs: Inputs, agree: Tensor, grad: Tensor) -> Tensor:
        """See :class:`RoutedBackend`."""
        poses, weight, child_weight, _ = inputs
        total = torch.zeros_like(agree)
        for chunk in _chunks(poses, weight):
            votes = _votes(poses, weight, chunk)
            logit, _ = _logit_gradient(votes, _shares(votes, agree, plan.leaky), grad)
            total += torch.einsum("ibj,ibjd->bjd", logit * _child_weight(child_weight, chunk), votes)
        return total

    def parameter_pass(
        self, plan: DynamicPlan, inputs: Inputs, agrees: Tensor, grads: Tensor, first_even: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`RoutedBackend`."""
        poses, weight, child_weight, _ = inputs
        dposes, dweight = torch.empty_like(poses), torch.zeros_like(weight)
        dchild = poses.new_zeros(poses.shape[:2])
        for chunk in _chunks(poses, weight):
            votes = _votes(poses, weight, chunk)
            w = _child_weight(child_weight, chunk)
            dvotes = torch.zeros_like(votes)
            for t in range(len(grads)):
                agree = None if t == 0 and first_even else agrees[t]
                share = _shares(votes, agree, plan.leaky)
                logit, mean = _logit_gradient(votes, share, grads[t])
                dvotes.addcmul_((share * w)[..., None], grads[t])
                if plan.gradient != "last" and agree is not None:
                    dvotes.addcmul_((logit * w)[..., None], agree)
                dchild[:, chunk] += mean.T
            _add_parameter_gradients(poses, weight, chunk, dvotes, dposes, dweight)
        return dposes, dweight, dchild


def _chunks(poses: Tensor, weight: Tensor) -> Iterator[slice]:
    """Ranges of children whose votes fit into ``CHUNK_BYTES``."""
    batch, children, _ = poses.shape
    parents, size = weight.shape[-3], weight.shape[-1]
    each = max(1, batch * parents * size * poses.element_size())
    step = max(1, CHUNK_BYTES.get(poses.device.type, CHUNK_BYTES["other"]) // each)
    for start in range(0, children, step):
        yield slice(start, min(start + step, children))


def _votes(poses: Tensor, weight: Tensor, chunk: slice) -> Tensor:
    """û of a chunk, children first: [I', B, J, D]."""
    u = poses[:, chunk].transpose(0, 1)  # [I', B, d]
    parents, inner, size = weight.shape[-3:]
    if weight.dim() == 3:
        matrix = weight.transpose(0, 1).reshape(inner, parents * size).expand(u.shape[0], -1, -1)
    else:
        matrix = weight[chunk].transpose(1, 2).reshape(u.shape[0], inner, parents * size)
    return torch.bmm(u, matrix).view(u.shape[0], u.shape[1], parents, size)


def _shares(votes: Tensor, agree: Tensor | None, leaky: bool) -> Tensor:
    """p [I', B, J]: softmax over the parents of û·V, even without V."""
    if agree is None:
        parents = votes.shape[2]
        return votes.new_full(votes.shape[:3], 1 / (parents + leaky))
    logits = (votes * agree).sum(dim=-1)
    return F.pad(logits, (1, 0)).softmax(dim=-1)[..., 1:] if leaky else logits.softmax(dim=-1)


def _child_weight(weights: Tensor | None, chunk: slice) -> Tensor | float:
    """w of a chunk [I', B, 1]."""
    return 1.0 if weights is None else weights[:, chunk].transpose(0, 1)[..., None]


def _logit_gradient(votes: Tensor, share: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """p (y − Σ p y) [I', B, J] and Σ p y [I', B], with y = û·G."""
    y = (votes * grad).sum(dim=-1)
    mean = (share * y).sum(dim=-1)
    return share * (y - mean[..., None]), mean


def _add_parameter_gradients(
    poses: Tensor, weight: Tensor, chunk: slice, dvotes: Tensor, dposes: Tensor, dweight: Tensor
) -> None:
    """du and dW of a chunk from dû [I', B, J, D]."""
    u = poses[:, chunk].transpose(0, 1)  # [I', B, d]
    if weight.dim() == 3:
        dposes[:, chunk] = torch.einsum("ibjk,jdk->bid", dvotes, weight)
        dweight += torch.einsum("ibd,ibjk->jdk", u, dvotes)
        return
    flat = dvotes.flatten(2)  # [I', B, J·D]
    matrix = weight[chunk].transpose(1, 2).flatten(2)  # [I', d, J·D]
    dposes[:, chunk] = torch.bmm(flat, matrix.transpose(1, 2)).transpose(0, 1)
    dmatrix = torch.bmm(u.transpose(1, 2), flat)  # [I', d, J·D]
    dweight[chunk] = dmatrix.view(*dmatrix.shape[:2], *dvotes.shape[2:]).transpose(1, 2)
