"""Dynamic routing, line by line: slow, plain, and the text that every faster path is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops.squash import squash_reference


def dynamic_routing_reference(
    votes: Tensor,
    iterations: int = 3,
    *,
    activation: Tensor | None = None,
    mask: Tensor | None = None,
    parent_mask: Tensor | None = None,
    logits: Tensor | None = None,
    bias: Tensor | None = None,
    squash: str = "sabour",
    update: str = "accumulate",
    gradient: str = "all",
    leaky: bool = False,
    amend: bool = False,
) -> tuple[Tensor, Tensor]:
    """Procedure 1 of Sabour et al. 2017 for one image after the other.

    The arguments are those of :func:`torchcaps.ops.dynamic_routing`; masks and logits in their full shapes,
    parent_mask ``[B, J]``, logits ``[B, I, J]``.

    Shapes:
        votes ``[B, I, J, D]`` → pose ``[B, J, D]``, coupling ``[B, I, J]``.
    """
    batch, children, parents, size = votes.shape
    poses, couplings = [], []
    for image in range(batch):
        u = votes[image]
        present = [i for i in range(children) if mask is None or bool(mask[image, i])]
        open_to = [j for j in range(parents) if parent_mask is None or bool(parent_mask[image, j])]
        zero = u.new_zeros(())
        b = {(i, j): zero if logits is None else logits[image, i, j] for i in present for j in open_to}
        for t in range(iterations):
            c = {}
            for i in present:
                scores = [b[i, j] for j in open_to]
                share = torch.stack([zero, *scores] if leaky else scores).softmax(dim=0)
                for k, j in enumerate(open_to):
                    c[i, j] = share[k + 1 if leaky else k]
                    if amend and activation is not None:
                        c[i, j] = activation[image, i] * c[i, j]
            v = []
            for j in range(parents):
                s = u.new_zeros(size) if bias is None else bias[j]
                for i in present:
                    if j in open_to:
                        s = s + c[i, j] * u[i, j]
                v.append(squash_reference(s, squash))
            if t == iterations - 1:
                break
            for i in present:
                for j in open_to:
                    agree = u[i, j] @ v[j]
                    agree = agree.detach() if gradient == "last" else agree
                    b[i, j] = b[i, j] + agree if update == "accumulate" else agree
        poses.append(torch.stack(v))
        couplings.append(
            torch.stack([torch.stack([c.get((i, j), zero) for j in range(parents)]) for i in range(children)])
        )
    return torch.stack(poses), torch.stack(couplings)
