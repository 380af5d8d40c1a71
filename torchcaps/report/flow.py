"""Routing on the image: where the children are, which parent each sends to, iteration by iteration.

The layout says where dots, links and parents are, in pixels; matplotlib draws it.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.couplings import Flow
from torchcaps.extras import comes_with_an_extra
from torchcaps.report.charts import COLOURS, PIXELS, Drawn, new_figure, save_figure
from torchcaps.report.pictures import Picture, join_pictures, show_channels

with comes_with_an_extra():
    from matplotlib.axes import Axes
    from matplotlib.collections import PatchCollection, PathCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Circle
    from matplotlib.path import Path

PALETTE = (
    "#4c8dff", "#f28e2b", "#3da35d", "#e15759", "#a06cd5", "#b07a4a", "#f06eb0", "#2cb5b0", "#b8a91d", "#7cb518",
)  # fmt: skip
NEUTRAL = "#98a2ad"
"""Of a child that sends equally much to every parent."""

BOX, TITLE, PARENTS, NAMES = 192, 22, 226, 242
"""Pixels: the image's longer side, the line above it, and where parents and their names are."""
LETTER, NUMBER, LEAST = 7, 42, 64  # pixels: a letter, the activation behind a name, and both together at least
MOST_LETTERS = 12  # of a parent's name
ROW = 19.2  # pixels between parents
MOST_PARENTS = 12
LINKED = 32  # so many of the most active children have their links drawn; more would be a fog
_PIXELS_BELOW = 5  # this level marks are pixels in the SVG, too: there are thousands of them


class Dot(NamedTuple):
    """A child: its place, its size, and the parent that it sends most to, None if it prefers none."""

    x: float
    y: float
    radius: float
    parent: int | None


class Link(NamedTuple):
    """From a child to a parent; the strength is 0 … 1."""

    x: float
    y: float
    parent: int
    strength: float


class ParentMark(NamedTuple):
    """A parent in the column at the right."""

    y: float
    radius: float
    parent: int
    activation: float


class IterationLayout(NamedTuple):
    """One iteration."""

    title: str
    dots: tuple[Dot, ...]
    links: tuple[Link, ...]
    parents: tuple[ParentMark, ...]


class FlowLayout(NamedTuple):
    """All iterations of an image.

    Attributes:
        panels: one for each.
        size: of the image in the panel, width and height.
        width: of a panel, wide enough for the longest name.
        height: of a panel.
        image: what is below, ``[C, H, W]`` in 0 … 1.
        names: of the parents.
    """

    panels: tuple[IterationLayout, ...]
    size: tuple[float, float]
    width: int
    height: float
    image: Tensor
    names: Sequence[str]


def choose_colour(parent: int | None) -> str:
    """Of a parent and of all that goes to it; ten that are easily told apart, then others."""
    if parent is None:
        return NEUTRAL
    if parent < len(PALETTE):
        return PALETTE[parent]
    red, green, blue = colorsys.hls_to_rgb(parent * 0.618 % 1, 0.55, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def lay_out(flow: Flow, image: Tensor, names: Sequence[str]) -> FlowLayout:
    """Where everything is drawn.

    Args:
        flow: of one image.
        image: as a person sees it, ``[C, H, W]`` in 0 … 1.
        names: of the parents.
    """
    scale = BOX / max(image.shape[-2:])
    size = (image.shape[-1] * scale, image.shape[-2] * scale)
    shown = _choose_parents(flow.parent_activation)
    height = TITLE + max(size[1], ROW * len(shown)) + 4
    places, room = _place_children(flow.places, flow.child_activation.shape[2], scale)
    sent = flow.child_activation[..., None] * flow.coupling  # [r, H, W, T, J]
    most = max(float(sent.max()), 1e-12)
    panels = []
    for number, (coupling, weight, activation) in enumerate(
        zip(flow.coupling, sent, flow.parent_activation, strict=True)
    ):
        dots = _place_dots(coupling.flatten(0, 2), weight.flatten(0, 2), places, room, most)
        links = _choose_links(weight.flatten(0, 2), flow.child_activation.flatten(), places, shown, most)
        parents = _place_parents(activation, shown, height)
        panels.append(IterationLayout(f"iteration {number + 1}", dots, links, parents))
    longest = max(len(_shorten(names[parent])) for parent in shown)
    width = NAMES + max(LEAST, LETTER * longest + NUMBER)
    return FlowLayout(tuple(panels), size, width, height, image, names)


def list_drawn_parents(layouts: Sequence[FlowLayout]) -> list[int]:
    """Every parent whose colour is seen in one of the layouts, in the column at the right or as that of a child."""
    panels = [panel for layout in layouts for panel in layout.panels]
    dots = {dot.parent for panel in panels for dot in panel.dots if dot.parent is not None}
    return sorted(dots | {mark.parent for panel in panels for mark in panel.parents})


def _choose_parents(activation: Tensor) -> list[int]:
    """All parents, or the most active ones at the end if there are many."""
    count = activation.shape[1]
    if count <= MOST_PARENTS:
        return list(range(count))
    return sorted(activation[-1].topk(MOST_PARENTS).indices.tolist())


def _place_children(centres: Tensor, types: int, scale: float) -> tuple[Tensor, float]:
    """Where each child is, ``[H·W·T, 2]`` as x and y, types as a small square around their position; and the room."""
    rows, columns = centres.shape[:2]
    steps = [(centres[1:] - centres[:-1]).abs().amax(dim=2)] if rows > 1 else []
    steps += [(centres[:, 1:] - centres[:, :-1]).abs().amax(dim=2)] if columns > 1 else []
    step = min((float(distances.min()) for distances in steps), default=0.4 * BOX / scale) * scale
    side = math.ceil(math.sqrt(types))
    room = step / (side + 1.0)
    number = torch.arange(types)
    lines = math.ceil(types / side)
    across = (number % side - (side - 1) / 2) * room
    down = (torch.div(number, side, rounding_mode="floor") - (lines - 1) / 2) * room
    middle = (centres.flip(-1) + 0.5) * scale  # x, y of the pixel's middle
    middle = middle + torch.tensor([0.0, TITLE])
    return (middle[:, :, None] + torch.stack([across, down], dim=1)).reshape(-1, 2), room


def _place_dots(coupling: Tensor, weight: Tensor, places: Tensor, room: float, most: float) -> tuple[Dot, ...]:
    strongest, parent = coupling.max(dim=1)
    undecided = strongest - coupling.min(dim=1).values < 1e-4
    radius = (weight.max(dim=1).values / most).clamp_min(0).sqrt() * min(room * 0.62, 9.0)
    return tuple(
        Dot(x, y, size, None if equal else index)
        for (x, y), size, index, equal in zip(
            places.tolist(), radius.tolist(), parent.tolist(), undecided.tolist(), strict=True
        )
        if size > 0.2
    )


def _choose_links(
    weight: Tensor, activation: Tensor, places: Tensor, shown: list[int], most: float
) -> tuple[Link, ...]:
    chosen = activation.topk(min(LINKED, len(activation))).indices.tolist()
    links = []
    for child in chosen:
        x, y = places[child].tolist()
        for parent in shown:
            strength = float(weight[child, parent]) / most
            if strength > 0.03:
                links.append(Link(x, y, parent, strength))
    return tuple(links)


def _place_parents(activation: Tensor, shown: list[int], height: float) -> tuple[ParentMark, ...]:
    step = (height - TITLE) / len(shown)
    places = [TITLE + step * (n + 0.5) for n in range(len(shown))]
    largest = min(step * 0.46, 10.0)
    marks = []
    for y, parent in zip(places, shown, strict=True):
        active = float(activation[parent])
        marks.append(ParentMark(y, max(1.2, math.sqrt(min(max(active, 0.0), 1.0)) * largest), parent, active))
    return tuple(marks)


def draw_flow(name: str, layout: FlowLayout, alt: str) -> tuple[list[Picture], Picture]:
    """Every iteration for the page, and all of them side by side as PNG."""
    drawn = [_draw_panel(layout, panel) for panel in layout.panels]
    return [panel.svg for panel in drawn], join_pictures(name, [panel.png for panel in drawn], alt)


def _draw_panel(layout: FlowLayout, panel: IterationLayout) -> Drawn:
    figure = new_figure(layout.width, layout.height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_rasterization_zorder(_PIXELS_BELOW)
    _draw_image(axes, layout)
    _draw_links(axes, panel)
    circles = [Circle((dot.x, dot.y), dot.radius) for dot in panel.dots]
    circles += [Circle((PARENTS, mark.y), mark.radius) for mark in panel.parents]
    faces = [choose_colour(dot.parent) for dot in panel.dots]
    faces += [choose_colour(mark.parent) for mark in panel.parents]
    axes.add_collection(PatchCollection(circles, facecolors=faces, edgecolors="none", zorder=2), autolim=False)
    points = 72 / PIXELS  # for a pixel of the page
    text: dict[str, Any] = {"parse_math": False, "zorder": _PIXELS_BELOW + 1}
    axes.text(0, 12, panel.title, fontsize=11 * points, color=COLOURS["soft"], **text)
    for mark in panel.parents:
        said = f"{_shorten(layout.names[mark.parent])} {mark.activation:.2f}"
        axes.text(NAMES, mark.y + 4, said, fontsize=10.5 * points, color=COLOURS["ink"], **text)
    axes.set_xlim(0, layout.width)
    axes.set_ylim(layout.height, 0)
    axes.set_aspect("auto")
    return save_figure("", figure, f"{panel.title}: {_describe(panel, layout.names)}")


def _draw_image(axes: Axes, layout: FlowLayout) -> None:
    """The image, dimmed."""
    wide, high = layout.size
    pixels = show_channels(layout.image).expand(3, -1, -1).permute(1, 2, 0).clamp(0, 1).float().numpy() * 0.5
    axes.imshow(pixels, extent=(0, wide, TITLE + high, TITLE), interpolation="nearest", zorder=0)


def _draw_links(axes: Axes, panel: IterationLayout) -> None:
    """A curve from each linked child to a parent, the weak ones first."""
    rows = {mark.parent: mark.y for mark in panel.parents}
    links = sorted(panel.links, key=lambda link: link.strength)
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    paths = []
    for x, y, parent, _ in links:
        bend = (x + PARENTS) / 2 + 20
        paths.append(Path([(x, y), (bend, y), (bend, rows[parent]), (PARENTS, rows[parent])], codes))
    colours = [to_rgba(choose_colour(link.parent), _opacity(link.strength)) for link in links]
    widths = [0.4 + 0.9 * link.strength for link in links]
    curves = PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths, zorder=1)
    axes.add_collection(curves, autolim=False)


def _opacity(share: float) -> float:
    return 0.05 + 0.8 * share**2  # squared: the many weak links are not to hide the strong ones


def _shorten(name: str, most: int = MOST_LETTERS) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _describe(panel: IterationLayout, names: Sequence[str]) -> str:
    best = sorted(panel.parents, key=lambda mark: -mark.activation)[:3]
    return "the most active wholes are " + ", ".join(f"{names[mark.parent]} {mark.activation:.2f}" for mark in best)
