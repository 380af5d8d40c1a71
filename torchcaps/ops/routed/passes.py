"""The passes over the children, in torch: votes exist for a chunk of children at a time only.

This is the readable text of what the kernel in ``csrc/`` does, and the path that serves where the kernel does not:
without a compiler, and on devices other than the CPU. With û_ij = u_i W_ij and p = softmax_j(û_ij·V_j):

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

CHUNK_BYTES = {"cpu": 768 << 10, "other": 64 << 20}
"""How much memory the votes of one chunk of children may take: on a CPU what its caches hold, elsewhere enough to
keep the device busy."""


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
    """P [I', B, J]: softmax over the parents of û·V, even without V."""
    if agree is None:
        parents = votes.shape[2]
        return votes.new_full(votes.shape[:3], 1 / (parents + leaky))
    logits = (votes * agree).sum(dim=-1)
    return F.pad(logits, (1, 0)).softmax(dim=-1)[..., 1:] if leaky else logits.softmax(dim=-1)


def _child_weight(weights: Tensor | None, chunk: slice) -> Tensor | float:
    """W of a chunk [I', B, 1]."""
    return 1.0 if weights is None else weights[:, chunk].transpose(0, 1)[..., None]


def sum_pass(
    poses: Tensor,
    weight: Tensor,
    agree: Tensor | None,
    child_weight: Tensor | None,
    leaky: bool,
    coupling: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """S [B, J, D], and the couplings [B, I, J] if asked for."""
    batch, children, _ = poses.shape
    parents, size = weight.shape[-3], weight.shape[-1]
    total = poses.new_zeros(batch, parents, size)
    table = poses.new_empty(batch, children, parents) if coupling else None
    for chunk in _chunks(poses, weight):
        votes = _votes(poses, weight, chunk)
        c = _shares(votes, agree, leaky) * _child_weight(child_weight, chunk)
        total += torch.einsum("ibj,ibjd->bjd", c, votes)
        if table is not None:
            table[:, chunk] = c.transpose(0, 1)
    return total, table


def _logit_gradient(votes: Tensor, share: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """P (y − Σ p y) [I', B, J] and Σ p y [I', B], with y = û·G."""
    y = (votes * grad).sum(dim=-1)
    mean = (share * y).sum(dim=-1)
    return share * (y - mean[..., None]), mean


def agreement_pass(
    poses: Tensor, weight: Tensor, agree: Tensor, grad: Tensor, child_weight: Tensor | None, leaky: bool
) -> Tensor:
    """DV [B, J, D] for the gradient G [B, J, D] of s."""
    total = torch.zeros_like(agree)
    for chunk in _chunks(poses, weight):
        votes = _votes(poses, weight, chunk)
        logit, _ = _logit_gradient(votes, _shares(votes, agree, leaky), grad)
        total += torch.einsum("ibj,ibjd->bjd", logit * _child_weight(child_weight, chunk), votes)
    return total


def parameter_pass(
    poses: Tensor,
    weight: Tensor,
    agrees: Tensor,
    grads: Tensor,
    child_weight: Tensor | None,
    leaky: bool,
    first_even: bool,
    through: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """du, dW and dw from V and G of every iteration [T, B, J, D].

    ``first_even`` says that there was no V in the first of them; ``through`` whether V carries a gradient.
    """
    dposes, dweight = torch.empty_like(poses), torch.zeros_like(weight)
    dchild = poses.new_zeros(poses.shape[:2])
    for chunk in _chunks(poses, weight):
        votes = _votes(poses, weight, chunk)
        w = _child_weight(child_weight, chunk)
        dvotes = torch.zeros_like(votes)
        for t in range(len(grads)):
            agree = None if t == 0 and first_even else agrees[t]
            share = _shares(votes, agree, leaky)
            logit, mean = _logit_gradient(votes, share, grads[t])
            dvotes.addcmul_((share * w)[..., None], grads[t])
            if through and agree is not None:
                dvotes.addcmul_((logit * w)[..., None], agree)
            dchild[:, chunk] += mean.T
        u = poses[:, chunk].transpose(0, 1)  # [I', B, d]
        flat = dvotes.flatten(2)  # [I', B, J·D]
        if weight.dim() == 3:
            dposes[:, chunk] = torch.einsum("ibjk,jdk->bid", dvotes, weight)
            dweight += torch.einsum("ibd,ibjk->jdk", u, dvotes)
        else:
            matrix = weight[chunk].transpose(1, 2).flatten(2)  # [I', d, J·D]
            dposes[:, chunk] = torch.bmm(flat, matrix.transpose(1, 2)).transpose(0, 1)
            dmatrix = torch.bmm(u.transpose(1, 2), flat)  # [I', d, J·D]
            dweight[chunk] = dmatrix.view(*dmatrix.shape[:2], *votes.shape[2:]).transpose(1, 2)
    return dposes, dweight, dchild
