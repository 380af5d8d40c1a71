"""Routing is clustering: four algorithms on the same points, from the same start, iteration by iteration.

Su Jianlin 2018 ("From k-means to capsules", kexue.fm/archives/5112, §4) reads routing as a soft k-means of the votes;
S. Cheng 2018 reads a capsule as a cluster of agreement among them. Here every point is a child whose vote is the same
for every parent, û_ij = u_i, so that parents are nothing but cluster centres.

**How the symmetry is broken.** With equal votes and equal couplings all parents would stay equal for ever. All four
algorithms therefore start from the same K centres, close together around the mean (:func:`small_start`). Soft k-means
and the mixture take them as they are; the routings take the agreement with them, ⟨u_i, start_j⟩, as initial logits,
just as if the centres came from an iteration before.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchcaps.checks import require_count
from torchcaps.errors import InputError
from torchcaps.ops import dynamic_routing, gaussian_mixture, soft_kmeans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

NOISE = -1
"""The label of scattered points that belong to no cluster."""

SHARPNESS = 1.0
"""K of soft k-means."""

ALPHA = 0.5
"""α of optimised routing. As ‖u−v‖² holds 2⟨u, v⟩, α = 1/(2K) makes it choose as sharply as soft k-means."""

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of the clusters; also the colour-blind can tell them apart (Okabe & Ito 2008)."""


class Clustered(NamedTuple):
    """What one algorithm made of the points in r − 1 iterations.

    Attributes:
        name: of the algorithm.
        centres: ``[r, K, 2]``, first the start, then after each iteration.
        share: ``[r, N, K]``, how much of each point goes to each of these centres. At the start nothing has been shared
            out yet: 1/K.
        objective: ``[r]``, where the algorithm itself measures it. For soft k-means and the mixture that is at these
            centres, for the routings at the couplings with these centres and the parents that come of them, half a step
            later.
        objective_name: what it is.
        rises: in how many iterations the objective rose, by more than rounding.
        purity: of the last shares, see :func:`purity`.
    """

    name: str
    centres: Tensor
    share: Tensor
    objective: Tensor
    objective_name: str
    rises: int
    purity: float


def make_points(seed: int, clusters: int = 3, per_cluster: int = 60) -> tuple[Tensor, Tensor]:
    """Clusters of agreement, each around a direction and a length of its own, and votes scattered over a disc.

    For every six points of clusters there is a scattered one, labelled :data:`NOISE`.

    Shapes:
        → points float64 ``[N, 2]``, labels int64 ``[N]``.
    """
    require_count("clusters", clusters)
    require_count("per_cluster", per_cluster)
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    turns = (torch.arange(clusters) + random(1) + 0.3 * (random(clusters) - 0.5)) / clusters
    centres = _on_circles(turns, 1.3 + 0.9 * random(clusters))
    spread = 0.3 * torch.randn(clusters * per_cluster, 2, generator=generator, dtype=torch.float64)
    scattered = clusters * per_cluster // 6
    noise = _on_circles(random(scattered), 2.2 * random(scattered).sqrt())  # the root: as dense everywhere
    labels = torch.arange(clusters).repeat_interleave(per_cluster)
    points = torch.cat([centres.repeat_interleave(per_cluster, dim=0) + spread, noise])
    return points, torch.cat([labels, torch.full((scattered,), NOISE)])


def make_lengths(seed: int, per_cluster: int = 60) -> tuple[Tensor, Tensor]:
    """Three clusters of which two lie in the same direction and differ in their length alone.

    Shapes:
        → points float64 ``[3 · per_cluster, 2]``, labels int64.
    """
    generator = torch.Generator().manual_seed(seed)
    turn = torch.rand(1, generator=generator, dtype=torch.float64)
    centres = _on_circles(torch.cat([turn, turn, turn + 0.3]), torch.tensor([0.8, 2.4, 1.6], dtype=torch.float64))
    spread = 0.2 * torch.randn(3 * per_cluster, 2, generator=generator, dtype=torch.float64)
    return centres.repeat_interleave(per_cluster, dim=0) + spread, torch.arange(3).repeat_interleave(per_cluster)


def _on_circles(turns: Tensor, radius: Tensor) -> Tensor:
    angle = 2 * math.pi * turns
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)


def small_start(points: Tensor, clusters: int, seed: int, size: float = 0.3) -> Tensor:
    """Centres close together around the mean, but in different directions: ``[K, 2]``.

    A random point, then always the point farthest from those chosen (Gonzalez 1985), all of them drawn in to ``size``
    of their distance from the mean. Without it, two centres that start side by side often share one cluster to the end.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = [points[int(torch.randint(len(points), (1,), generator=generator))]]
    while len(chosen) < clusters:
        distance = torch.cdist(points, torch.stack(chosen)).amin(dim=1)
        chosen.append(points[int(distance.argmax())])
    mean = points.mean(dim=0)
    return mean + size * (torch.stack(chosen) - mean)


def cluster_all(points: Tensor, labels: Tensor, clusters: int, iterations: int, seed: int) -> list[Clustered]:
    """Soft k-means, Gaussian mixture, dynamic and optimised routing of the same points from the same start.

    Args:
        points: float64, so that an objective's last small steps are not lost in rounding.
        labels: the true clusters, for the purity alone.
        clusters: K, how many to look for.
        iterations: of each algorithm.
        seed: of the start.

    Shapes:
        points ``[N, 2]``, labels ``[N]``.
    """
    require_count("clusters", clusters)
    require_count("iterations", iterations)
    start = small_start(points, clusters, seed)
    return [
        _by_kmeans(points, labels, start, iterations),
        _by_mixture(points, labels, start, iterations),
        _by_dynamic_routing(points, labels, start, iterations),
        _by_optimised_routing(points, labels, start, iterations),
    ]


def _by_kmeans(points: Tensor, labels: Tensor, start: Tensor, iterations: int) -> Clustered:
    clustering = soft_kmeans(points, start, iterations, sharpness=SHARPNESS)
    # One more step from each centre to the next gives the assignment that goes with the latter.
    shares = [soft_kmeans(points, before, 1, sharpness=SHARPNESS).assignment for before in clustering.path[:-1]]
    name = "−(1/K) Σ ln Σ exp(−K‖u − v‖²)"
    return _sum_up("soft k-means", labels, clustering.path, shares, clustering.objective, name)


def _by_mixture(points: Tensor, labels: Tensor, start: Tensor, iterations: int) -> Clustered:
    # A mixture is more than its means, so it cannot go on from them: each length of the run begins anew.
    runs = [gaussian_mixture(points, start, count) for count in range(1, iterations + 1)]
    shares = [run.responsibilities for run in runs]
    name = "negative log-likelihood"
    return _sum_up("Gaussian mixture", labels, runs[-1].path, shares, -runs[-1].log_likelihood, name)


def _by_dynamic_routing(points: Tensor, labels: Tensor, start: Tensor, iterations: int) -> Clustered:
    votes = points[None, :, None].expand(1, -1, len(start), -1)
    trace = dynamic_routing(votes, iterations + 1, logits=points @ start.T, trace=True).trace
    assert trace is not None  # it was asked for
    path = torch.cat([start[None], trace.pose[:-1, 0]])
    name = "−Σ c⟨u, v⟩ + Σ KL(c ‖ c before)"
    return _sum_up("dynamic routing", labels, path, list(trace.coupling[1:, 0]), trace.objective[:, 0], name)


def _by_optimised_routing(points: Tensor, labels: Tensor, start: Tensor, iterations: int) -> Clustered:
    """Through ``dynamic_routing``, because ``optimized_routing`` always starts from b = 0.

    With parents of unit length, logits replaced instead of accumulated and votes û/α the two are the same algorithm,
    and the former's objective is the latter's divided by α.
    """
    votes = (points / ALPHA)[None, :, None].expand(1, -1, len(start), -1)
    logits = points @ start.T / ALPHA
    routed = dynamic_routing(votes, iterations + 1, logits=logits, update="replace", squash="unit", trace=True)
    assert routed.trace is not None  # it was asked for
    path = torch.cat([start[None], routed.trace.pose[:-1, 0]])
    shares, objective = list(routed.trace.coupling[1:, 0]), ALPHA * routed.trace.objective[:, 0]
    return _sum_up("optimised routing", labels, path, shares, objective, "−Σ c⟨u, s⟩ + α Σ c ln c")


def _sum_up(
    name: str, labels: Tensor, path: Tensor, shares: list[Tensor], objective: Tensor, objective_name: str
) -> Clustered:
    share = torch.stack([torch.full_like(shares[0], 1 / shares[0].shape[1]), *shares])
    rounding = 1e-8 * float(objective.abs().max())
    rises = int((objective.diff() > rounding).sum())
    return Clustered(name, path, share, objective, objective_name, rises, purity(share[-1], labels))


def purity(share: Tensor, labels: Tensor) -> float:
    """How many points lie in a cluster where most are of their kind, as a share of all that are not noise.

    Each point counts for the centre that gets most of it. 1 if no two kinds are mixed; about 1/K if all points are in
    one cluster.

    Shapes:
        share ``[N, K]``, labels ``[N]``.
    """
    kept = labels != NOISE
    if not bool(kept.any()):
        raise InputError("purity needs points that belong to a cluster, but all of them are noise.")
    counts = torch.zeros(share.shape[1], int(labels.max()) + 1, dtype=torch.int64)
    ones = torch.ones(int(kept.sum()), dtype=torch.int64)
    counts.index_put_((share[kept].argmax(dim=1), labels[kept]), ones, accumulate=True)
    return float(counts.amax(dim=1).sum()) / len(ones)


def write_animation(
    path: Path, points: Tensor, results: Sequence[Clustered], progress: Callable[[int], None] | None = None
) -> None:
    """An endless GIF, a frame for each iteration: above the points and centres, below the objectives.

    A point has the colours of the centres that share it, mixed; a centre draws its way behind it. ``progress`` is
    told of each frame.
    """
    from PIL import Image

    pictures = []
    for at in range(len(results[0].centres)):
        pictures.append(_draw_picture(points, results, at))
        if progress is not None:
            progress(1)
    # One palette for all, from frames at the start, on the way and at the end: nothing flickers.
    width, height = pictures[0].size
    typical = [pictures[0], pictures[len(pictures) // 4], pictures[-1]]
    together = Image.new("RGB", (width, height * len(typical)))
    for row, picture in enumerate(typical):
        together.paste(picture, (0, row * height))
    palette = together.quantize(128, method=Image.Quantize.MAXCOVERAGE)
    first, *rest = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    durations = [900] + [350] * (len(pictures) - 2) + [2500]  # milliseconds; time to see how it begins and ends
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=durations, loop=0)


def _draw_picture(points: Tensor, results: Sequence[Clustered], at: int) -> Image:
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(3.2 * len(results), 5.2), dpi=80, facecolor="white")
    figure.subplots_adjust(left=0.04, right=0.985, top=0.875, bottom=0.065, wspace=0.2, hspace=0.2)
    axes = figure.subplots(2, len(results), height_ratios=(3, 1.1), squeeze=False)
    for column, result in enumerate(results):
        _draw_points(axes[0, column], points, result, at)
        _draw_objective(axes[1, column], result, at)
    figure.suptitle(f"iteration {at} of {len(results[0].centres) - 1}", fontsize=12, color="#555555")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    return Image.open(drawn).convert("RGB")


def _draw_points(axes: Axes, points: Tensor, result: Clustered, at: int) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Circle

    clusters = result.centres.shape[1]
    palette = torch.tensor([to_rgb(COLOURS[j % len(COLOURS)]) for j in range(clusters)], dtype=points.dtype)
    mixed = (result.share[at] @ palette).clamp(0, 1).numpy()
    axes.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=14, c=mixed, alpha=0.6, linewidths=0)
    if result.name.endswith("routing"):  # where parents are directions, of a length up to one
        axes.add_patch(Circle((0, 0), 1, fill=False, color="#aaaaaa", linewidth=0.8, linestyle="--"))
        axes.text(0, -0.8, "length 1", fontsize=9, color="#777777", ha="center", va="center")
    for j, colour in enumerate(palette.tolist()):
        trail = result.centres[: at + 1, j].numpy()
        axes.plot(*trail.T, color="black", linewidth=1.2, marker=".", markersize=4)
        axes.plot(*trail[-1], marker="o", markersize=12, color=colour, markeredgecolor="black", markeredgewidth=1.5)
    reach = 1.05 * float(points.abs().max())
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    axes.set_title(result.name, fontsize=14, fontweight="bold")


def _draw_objective(axes: Axes, result: Clustered, at: int) -> None:
    values = result.objective.numpy()
    axes.plot(values, color="#cccccc", linewidth=1.2)
    axes.plot(values[: at + 1], color="black", linewidth=1.6)
    axes.plot(at, values[at], marker="o", markersize=6, color="black")
    axes.set_title(result.objective_name, fontsize=10.5)
    axes.tick_params(labelsize=9)
    axes.locator_params(axis="y", nbins=3)
    axes.spines[["top", "right"]].set_visible(False)
