"""Where children send themselves: how decided a routing is, what its iterations change, and who takes no part."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.analysis.gradients import evaluating
from torchcaps.analysis.receptive import Window, centre_positions, watch_fields, widen
from torchcaps.capsules import Capsules
from torchcaps.errors import InputError
from torchcaps.models.base import CapsuleModel, RoutedLayer
from torchcaps.ops.result import RoutingTrace

DEAD = 0.01
"""A capsule that is never more active than this is dead."""

_NOTHING = 1e-12
_AT_ONCE = 8  # images whose votes on a grid are stored: 75 MB for 4×4 windows of 3×3 with 32 types


def coupling_entropy(coupling: Tensor) -> Tensor:
    """−Σ_j c_ij ln c_ij in nats, mean over the children: ``[..., I, J]`` → ``[...]``; ln J is uniform, 0 one parent.

    A child's couplings are divided by their sum first, since leaky and amended routings keep a part back. A child that
    sends nothing is left out; if none sends anything, the entropy is 0.
    """
    shares, sends = _normalise(coupling)
    entropy = -torch.special.xlogy(shares, shares).sum(dim=-1)
    return _average_senders(entropy, sends)


def polarisation(coupling: Tensor, parents: Tensor | None = None) -> Tensor:
    """(J max_j c_ij − 1) / (J − 1), mean over the children: ``[..., I, J]`` → ``[...]``; 0 is uniform, 1 one parent.

    Couplings are normalised as in :func:`coupling_entropy`. Among fewer than two parents there is no choice: 1.

    Args:
        coupling: of every child.
        parents: how many of the J parents each child can send to ``[I]``; not given: all of them.
    """
    shares, sends = _normalise(coupling)
    count = torch.tensor(coupling.shape[-1], device=coupling.device) if parents is None else parents
    largest = shares.amax(dim=-1)
    choice = torch.where(count > 1, (count * largest - 1).clamp_min(0) / (count - 1).clamp_min(1), 1)
    return _average_senders(choice, sends)


def flip_rates(activation: Tensor, objects: int = 1) -> Tensor:
    """The share of images whose answer changes from an iteration to the next: ``[r, B, J]`` → ``[r − 1]``.

    The answer is the set of the ``objects`` most active classes, in any order.
    """
    chosen = activation.topk(objects, dim=-1).indices.sort(dim=-1).values  # [r, B, M]
    changed = (chosen[1:] != chosen[:-1]).any(dim=-1)
    return changed.to(activation.dtype).mean(dim=-1)


def dead_capsules(activation: Tensor, least: float = DEAD) -> Tensor:
    """Which capsules are in none of the N images more active than ``least``: ``[N, K]`` → bool ``[K]``.

    Mitterreiter et al. 2023, arXiv 2301.01583, found that many capsules starve while a network is trained; the
    threshold is ours. The same call on shares of coupling that each parent receives finds those nobody sends to.
    """
    if activation.dim() != 2 or not len(activation):
        raise InputError(f"activations must be of at least one image [N, K], got shape {tuple(activation.shape)}.")
    return activation.amax(dim=0) <= least


class LayerRouting(NamedTuple):
    """How one layer routes, over many images. A routing without iterations has r = 1.

    On a grid where children choose among all parents that see them, a child's parents are those at all positions.
    Where every window is routed on its own, a child counts once for each window that it is in.

    Attributes:
        name: of the layer in the model.
        entropy: ``[r]``, :func:`coupling_entropy`, mean over the images.
        largest_entropy: of uniform couplings: ln J, on a grid the mean of ln(parents that see a child).
        polarisation: ``[r]``, mean over the images.
        flips: ``[r − 1]``, :func:`flip_rates`; None but for the class layer.
        objective: ``[r]``, what the algorithm descends, mean over the images.
        dead_children: bool ``[H·W·T]``, :func:`dead_capsules` of the layer's children.
        dead_parents: bool ``[J]``, on a grid ``[H'·W'·J]``.
        agreement: ``[r]``: Σ c_ij û_ij·v_j/‖v_j‖ / Σ c_ij ‖û_ij‖, the mean cosine of votes and wholes where a vote
            counts by its length and coupling, mean over the images; 1 if all votes point the same way.
        received: ``[J]`` or ``[H'·W'·J]``: what comes to a parent in the last iteration, over the mean of the parents
            at its position; 1 for uniform couplings, 0 for a parent that nobody sends to. Mean over the images.
    """

    name: str
    entropy: Tensor
    largest_entropy: float
    polarisation: Tensor
    flips: Tensor | None
    objective: Tensor
    dead_children: Tensor
    dead_parents: Tensor
    agreement: Tensor
    received: Tensor


def routing_by_layer(model: nn.Module, images: Tensor, batch: int = 64) -> list[LayerRouting]:
    """How each layer of capsules routes images ``[N, C, H, W]``, from the first to the class capsules.

    Args:
        model: a :class:`~torchcaps.models.base.CapsuleModel`.
        images: as the model takes them.
        batch: images at a time.
    """
    capsule_model = require_capsule_model(model)
    if not len(images):
        raise InputError("routing is measured as a mean over images: give at least one.")
    layers = capsule_model.capsule_layers()
    measured: dict[str, list[_Measured]] = {name: [] for name, _ in layers}
    with evaluating(model), torch.inference_mode():
        for some in torch.split(images, batch):
            capsules = capsule_model.primary_capsules(some)
            for name, layer in layers:
                on_grid = hasattr(layer, "compete")  # the votes of many windows are stored there
                for piece in _split(capsules, _AT_ONCE if on_grid else batch):
                    measured[name].append(_measure(layer, piece, trace_layer(layer, piece)))
                capsules = layer(capsules)
    objects = getattr(model, "objects", 1)
    last = layers[-1][0]
    return [_sum_up(name, batches, objects if name == last else None) for name, batches in measured.items()]


def _split(capsules: Capsules, count: int) -> list[Capsules]:
    pairs = zip(torch.split(capsules.pose, count), torch.split(capsules.activation, count), strict=True)
    return [Capsules(pose, activation) for pose, activation in pairs]


class Flow(NamedTuple):
    """What flows into the class capsules from where, for one image.

    Attributes:
        coupling: ``[r, H, W, T, J]``.
        child_activation: ``[H, W, T]``.
        parent_activation: ``[r, J]``.
        entropy: ``[r]``, :func:`coupling_entropy`.
        agreement: ``[r]``, as in :class:`LayerRouting`.
        agreements: ``[r, J]``: the same for the votes for each parent alone.
        places: ``[H, W, 2]``: row and column of the pixel in the middle of what each child sees; half numbers lie
            between two pixels. With padding it may lie outside the image.
        patch: height and width of what each child sees.
    """

    coupling: Tensor
    child_activation: Tensor
    parent_activation: Tensor
    entropy: Tensor
    agreement: Tensor
    agreements: Tensor
    places: Tensor
    patch: tuple[int, int]


def routing_flow(model: nn.Module, image: Tensor, iterations: int | None = None) -> Flow:
    """Follow one image ``[C, H, W]`` into the class capsules, iteration by iteration, or for another number of them."""
    capsule_model = require_capsule_model(model)
    if image.dim() != 3:
        raise InputError(f"one image has shape [channels, height, width], got {tuple(image.shape)}.")
    height, width = image.shape[1:]
    with evaluating(model), torch.inference_mode():
        with watch_fields(model, (height, width)) as known:
            capsules = capsule_model.primary_capsules(image[None])
        size = _find_grid_size(capsules)
        fields = known[size]
        *below, (_, class_layer) = capsule_model.capsule_layers()
        for _, layer in below:  # a parent sees what its children see
            windows = layer.windows(size)
            fields = widen(fields, list(map(Window, windows.kernel, windows.stride, windows.padding)))
            capsules, size = layer(capsules), _pair(windows.out())
        trace = trace_layer(class_layer, capsules, iterations)
        measured = _measure(class_layer, capsules, trace)
    steps, classes = trace.activation.shape[0], trace.activation.shape[-1]
    return Flow(
        trace.coupling.reshape(steps, *size, -1, classes),
        capsules.activation.reshape(*size, -1),
        trace.activation.reshape(steps, classes),
        measured.entropy[:, 0],
        measured.agreement[:, 0],
        measured.agreements[:, 0],
        centre_positions(fields, size),
        (fields[0].side, fields[1].side),
    )


def _find_grid_size(capsules: Capsules) -> tuple[int, int]:
    if capsules.activation.dim() != 4:
        raise InputError(
            "primary_capsules(images) of a model that is looked into gives capsules on a grid, activation "
            f"[batch, height, width, types]; got {tuple(capsules.activation.shape)}."
        )
    return _pair(tuple(capsules.activation.shape[1:3]))


def _pair(size: tuple[int, ...]) -> tuple[int, int]:
    height, width = size
    return height, width


def require_capsule_model(model: nn.Module) -> CapsuleModel:
    """Raise unless the routing of this model can be followed; return it."""
    if isinstance(model, CapsuleModel):
        return model
    raise InputError(
        f"a {type(model).__name__} has no capsules of images to look into: it would have the methods "
        "primary_capsules(images) and capsule_layers(), see torchcaps.models.base.CapsuleModel."
    )


def class_children(model: CapsuleModel, images: Tensor) -> Capsules:
    """What is routed to the class capsules: images ``[B, C, H, W]`` → capsules."""
    capsules = model.primary_capsules(images)
    for _, layer in model.capsule_layers()[:-1]:
        capsules = layer(capsules)
    return capsules


def class_layer(model: CapsuleModel) -> RoutedLayer:
    """The layer of the class capsules."""
    return model.capsule_layers()[-1][1]


class _Measured(NamedTuple):
    """One layer and b images."""

    entropy: Tensor  # [r, b]
    polarisation: Tensor  # [r, b]
    objective: Tensor  # [r, b]
    agreement: Tensor  # [r, b]
    agreements: Tensor  # [r, b, P·J]
    parent_activation: Tensor  # [r, b, P·J]
    child_activation: Tensor  # [b, I]
    received: Tensor  # [b, P·J]
    largest_entropy: float


def trace_layer(layer: RoutedLayer, capsules: Capsules, iterations: int | None = None) -> RoutingTrace:
    """Every iteration of a layer, of another number of them if one is given."""
    trace = layer.route(capsules, trace=True, iterations=iterations).trace
    assert trace is not None  # it was asked for
    return trace


def _measure(layer: RoutedLayer, capsules: Capsules, trace: RoutingTrace) -> _Measured:
    votes = layer.votes(capsules)
    coupling, poses, parents = trace.coupling, trace.pose, trace.activation
    if votes.dim() == 4:  # of a plain set: one window over everything, with one type at every place
        votes, coupling = votes[:, None, :, None], coupling[:, :, None, :, None]  # [b, P, W, T, J, D], [r, …, J]
        poses, parents = poses[:, :, None], parents[:, :, None]  # [r, b, P, J, D], [r, b, P, J]
    sums = torch.einsum("rbpwtj,bpwtjd->rbpjd", coupling, votes)
    agreeing = (sums * nn.functional.normalize(poses, dim=-1)).sum(dim=-1).flatten(2)  # [r, b, P·J]
    sent = torch.einsum("rbpwtj,bpwtj->rbpj", coupling, votes.norm(dim=-1)).flatten(2)  # [r, b, P·J]
    received = coupling[-1].sum(dim=(2, 3))  # [b, P, J]
    by_child, choices = _group_choices(layer, capsules, coupling)
    return _Measured(
        coupling_entropy(by_child),
        polarisation(by_child, choices),
        trace.objective,
        agreeing.sum(dim=2) / sent.sum(dim=2).clamp_min(_NOTHING),
        agreeing / sent.clamp_min(_NOTHING),
        parents.flatten(2),
        capsules.activation.flatten(1),
        (received / received.mean(dim=-1, keepdim=True).clamp_min(_NOTHING)).flatten(1),
        float(choices[choices > 0].log().mean()),
    )


def _group_choices(layer: RoutedLayer, capsules: Capsules, coupling: Tensor) -> tuple[Tensor, Tensor]:
    """Couplings ``[r, b, P, W, T, J]`` as choices ``[r, b, N, K]``, and how many parents there are for each ``[N]``."""
    windows, places, types, parents = coupling.shape[2:]
    if windows == 1 or getattr(layer, "compete", "types") == "types":
        return coupling.flatten(2, 4), coupling.new_full((windows * places * types,), parents)
    table = layer.windows(tuple(capsules.activation.shape[1:-1])).table(coupling.device)  # [P, W]: positions
    positions = math.prod(capsules.activation.shape[1:-1])
    window = torch.full((positions, places), -1, device=coupling.device)  # in which a position is at that place
    at, place = (table >= 0).nonzero(as_tuple=True)
    window[table[at, place], place] = at
    seen = coupling[:, :, window.clamp_min(0), torch.arange(places, device=coupling.device)]  # [r, b, Q, W, T, J]
    seen = seen * (window >= 0)[:, :, None, None]
    choices = (window >= 0).sum(dim=1) * parents
    return seen.movedim(4, 3).flatten(4).flatten(2, 3), choices.repeat_interleave(types).to(coupling.dtype)


def _sum_up(name: str, batches: list[_Measured], objects: int | None) -> LayerRouting:
    """All images together; ``objects`` are given for the class layer."""

    def join(field: str, dim: int) -> Tensor:
        return torch.cat([getattr(batch, field) for batch in batches], dim=dim)

    parents = join("parent_activation", 1)
    return LayerRouting(
        name,
        join("entropy", 1).mean(dim=1),
        batches[0].largest_entropy,
        join("polarisation", 1).mean(dim=1),
        None if objects is None else flip_rates(parents, objects),
        join("objective", 1).mean(dim=1),
        dead_capsules(join("child_activation", 0)),
        dead_capsules(parents[-1]),
        join("agreement", 1).mean(dim=1),
        join("received", 0).mean(dim=0),
    )


def _normalise(coupling: Tensor) -> tuple[Tensor, Tensor]:
    """Couplings over their sum for each child ``[..., I, J]``, and which children send anything ``[..., I]``."""
    total = coupling.sum(dim=-1)
    sends = total > _NOTHING
    return coupling / torch.where(sends, total, 1)[..., None], sends


def _average_senders(values: Tensor, sends: Tensor) -> Tensor:
    return torch.where(sends, values, 0).sum(dim=-1) / sends.sum(dim=-1).clamp_min(1)
