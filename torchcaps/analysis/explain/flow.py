"""Routing on the image: where the parts are, which whole each sends to, iteration by iteration.

A drawing is laid out once, as dots, links and wholes with places in pixels, and then drawn twice: as SVG for a page and
as PNG.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

from torchcaps.analysis.charts import as_picture
from torchcaps.analysis.couplings import Flow
from torchcaps.analysis.pages import text
from torchcaps.analysis.pictures import Picture, as_colours, sheet

PALETTE = (
    "#4c8dff", "#f28e2b", "#3da35d", "#e15759", "#a06cd5", "#b07a4a", "#f06eb0", "#2cb5b0", "#b8a91d", "#7cb518",
)  # fmt: skip
NEUTRAL = "#98a2ad"
"""Of a part that sends equally much to every whole."""

BOX, TITLE, WHOLES, NAMES = 192, 22, 226, 242
"""Pixels: the image's longer side, the line above it, and where wholes and their names are."""
LETTER, NUMBER, LEAST = 7, 42, 64  # pixels: a letter, the activation behind a name, and both together at least
MOST_LETTERS = 12  # of a whole's name
ROW = 19.2  # pixels between wholes
MOST_WHOLES = 12
LINKED = 32  # so many of the most active parts have their links drawn; more would be a fog
STRENGTHS = 8  # links are drawn in so many opacities, which keeps the page small


class Dot(NamedTuple):
    """A part: its place, its size, and the whole that it sends most to, None if it prefers none."""

    x: float
    y: float
    radius: float
    parent: int | None


class Link(NamedTuple):
    """From a part to a whole; the strength is 0 … 1."""

    x: float
    y: float
    parent: int
    strength: float


class Whole(NamedTuple):
    """A parent in the column at the right."""

    y: float
    radius: float
    parent: int
    activation: float


class Panel(NamedTuple):
    """One iteration."""

    title: str
    dots: tuple[Dot, ...]
    links: tuple[Link, ...]
    wholes: tuple[Whole, ...]


class Drawing(NamedTuple):
    """All iterations of an image.

    Attributes:
        panels: one for each.
        size: of the image in the drawing, width and height.
        width: of a panel, wide enough for the longest name.
        height: of a panel.
        image: what is below, ``[C, H, W]`` in 0 … 1.
        names: of the wholes.
    """

    panels: tuple[Panel, ...]
    size: tuple[float, float]
    width: int
    height: float
    image: Tensor
    names: Sequence[str]


def colour_of(parent: int | None) -> str:
    """Of a whole and of all that goes to it; ten that are easily told apart, then others."""
    if parent is None:
        return NEUTRAL
    if parent < len(PALETTE):
        return PALETTE[parent]
    red, green, blue = colorsys.hls_to_rgb(parent * 0.618 % 1, 0.55, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def lay_out(flow: Flow, image: Tensor, names: Sequence[str]) -> Drawing:
    """Where everything is drawn.

    Args:
        flow: of one image.
        image: as a person sees it, ``[C, H, W]`` in 0 … 1.
        names: of the wholes.
    """
    scale = BOX / max(image.shape[-2:])
    size = (image.shape[-1] * scale, image.shape[-2] * scale)
    shown = _shown_wholes(flow.parent_activation)
    height = TITLE + max(size[1], ROW * len(shown)) + 4
    places, room = _places(flow.places, flow.child_activation.shape[2], scale)
    sent = flow.child_activation[..., None] * flow.coupling  # [r, H, W, T, J]
    most = max(float(sent.max()), 1e-12)
    panels = []
    for number, (coupling, weight, activation) in enumerate(
        zip(flow.coupling, sent, flow.parent_activation, strict=True)
    ):
        dots = _dots(coupling.flatten(0, 2), weight.flatten(0, 2), places, room, most)
        links = _links(weight.flatten(0, 2), flow.child_activation.flatten(), places, shown, most)
        wholes = _wholes(activation, shown, height)
        panels.append(Panel(f"iteration {number + 1}", dots, links, wholes))
    longest = max(len(_shortened(names[parent])) for parent in shown)
    width = NAMES + max(LEAST, LETTER * longest + NUMBER)
    return Drawing(tuple(panels), size, width, height, image, names)


def drawn_wholes(drawings: Sequence[Drawing]) -> list[int]:
    """Every whole whose colour is seen in one of the drawings, in the column at the right or as that of a part."""
    panels = [panel for drawing in drawings for panel in drawing.panels]
    dots = {dot.parent for panel in panels for dot in panel.dots if dot.parent is not None}
    return sorted(dots | {whole.parent for panel in panels for whole in panel.wholes})


def _shown_wholes(activation: Tensor) -> list[int]:
    """All wholes, or the most active ones at the end if there are many."""
    count = activation.shape[1]
    if count <= MOST_WHOLES:
        return list(range(count))
    return sorted(activation[-1].topk(MOST_WHOLES).indices.tolist())


def _places(centres: Tensor, types: int, scale: float) -> tuple[Tensor, float]:
    """Where each part is, ``[H·W·T, 2]`` as x and y, types as a small square around their position; and the room."""
    rows, columns = centres.shape[:2]
    steps = [(centres[1:] - centres[:-1]).abs().amax(dim=2)] if rows > 1 else []
    steps += [(centres[:, 1:] - centres[:, :-1]).abs().amax(dim=2)] if columns > 1 else []
    step = min((float(part.min()) for part in steps), default=0.4 * BOX / scale) * scale
    side = math.ceil(math.sqrt(types))
    room = step / (side + 1.0)
    number = torch.arange(types)
    lines = math.ceil(types / side)
    across = (number % side - (side - 1) / 2) * room
    down = (torch.div(number, side, rounding_mode="floor") - (lines - 1) / 2) * room
    middle = (centres.flip(-1) + 0.5) * scale  # x, y of the pixel's middle
    middle = middle + torch.tensor([0.0, TITLE])
    return (middle[:, :, None] + torch.stack([across, down], dim=1)).reshape(-1, 2), room


def _dots(coupling: Tensor, weight: Tensor, places: Tensor, room: float, most: float) -> tuple[Dot, ...]:
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


def _links(weight: Tensor, activation: Tensor, places: Tensor, shown: list[int], most: float) -> tuple[Link, ...]:
    chosen = activation.topk(min(LINKED, len(activation))).indices.tolist()
    found = []
    for child in chosen:
        x, y = places[child].tolist()
        for parent in shown:
            strength = float(weight[child, parent]) / most
            if strength > 0.03:
                found.append(Link(x, y, parent, strength))
    return tuple(found)


def _wholes(activation: Tensor, shown: list[int], height: float) -> tuple[Whole, ...]:
    step = (height - TITLE) / len(shown)
    places = [TITLE + step * (n + 0.5) for n in range(len(shown))]
    largest = min(step * 0.46, 10.0)
    found = []
    for y, parent in zip(places, shown, strict=True):
        active = float(activation[parent])
        found.append(Whole(y, max(1.2, math.sqrt(min(max(active, 0.0), 1.0)) * largest), parent, active))
    return tuple(found)


def panel_svgs(drawing: Drawing) -> list[str]:
    """Every iteration as inline SVG."""
    background = sheet("", [as_colours(drawing.image)[None]], "").uri
    return [_svg(drawing, panel, background) for panel in drawing.panels]


def _svg(drawing: Drawing, panel: Panel, background: str) -> str:
    wide, high = drawing.size
    rows = {whole.parent: whole.y for whole in panel.wholes}
    parts = [
        f'<text class="soft" x="0" y="12">{panel.title}</text>',
        f'<rect x="0" y="{TITLE}" width="{wide:g}" height="{high:g}" fill="#000"/>',
        f'<image href="{background}" x="0" y="{TITLE}" width="{wide:g}" height="{high:g}" opacity=".5" '
        'preserveAspectRatio="none" style="image-rendering:pixelated"/>',
    ]
    grouped: dict[tuple[int, int], list[str]] = {}
    for x, y, parent, strength in panel.links:
        end, bend = rows[parent], (x + WHOLES) / 2 + 20
        path = f"M{x:.1f} {y:.1f}C{bend:.0f} {y:.0f} {bend:.0f} {end:.0f} {WHOLES} {end:.1f}"
        grouped.setdefault((parent, math.ceil(strength * STRENGTHS)), []).append(path)
    for (parent, level), paths in sorted(grouped.items(), key=lambda item: item[0][1]):
        share = level / STRENGTHS
        parts.append(
            f'<path d="{"".join(paths)}" fill="none" stroke="{colour_of(parent)}" '
            f'stroke-width="{0.5 + 1.3 * share:.2f}" opacity="{_opacity(share):.2f}"/>'
        )
    for x, y, radius, of in panel.dots:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour_of(of)}"/>')
    for whole in panel.wholes:
        parts.append(
            f'<circle cx="{WHOLES}" cy="{whole.y:.1f}" r="{whole.radius:.1f}" fill="{colour_of(whole.parent)}"/>'
        )
        name = text(_shortened(drawing.names[whole.parent]))
        parts.append(f'<text class="ink" x="{NAMES}" y="{whole.y + 4:.1f}">{name} <tspan class="soft">')
        parts.append(f"{whole.activation:.2f}</tspan></text>")
    label = text(f"{panel.title}: {_in_words(panel, drawing.names)}")
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {drawing.width} {drawing.height:g}" '
        f'width="{drawing.width}" '
        f'height="{drawing.height:g}">{"".join(parts)}</svg>'
    )


def _opacity(share: float) -> float:
    return 0.05 + 0.8 * share**2  # squared: the many weak links are not to hide the strong ones


def _shortened(name: str, most: int = MOST_LETTERS) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _in_words(panel: Panel, names: Sequence[str]) -> str:
    best = sorted(panel.wholes, key=lambda whole: -whole.activation)[:3]
    return "the most active wholes are " + ", ".join(f"{names[w.parent]} {w.activation:.2f}" for w in best)


def flow_png(name: str, drawing: Drawing, alt: str, enlarged: int = 2) -> Picture:
    """All iterations side by side, on white, ``enlarged`` pixels for one of the drawing."""
    count, width, height = len(drawing.panels), drawing.width, drawing.height
    figure = Figure(figsize=(count * width / 100, height / 100), dpi=100 * enlarged)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    pixels = as_colours(drawing.image).expand(3, -1, -1).permute(1, 2, 0).clamp(0, 1).float().numpy() * 0.5
    for number, panel in enumerate(drawing.panels):
        left = number * width
        wide, high = drawing.size
        axes.imshow(pixels, extent=(left, left + wide, TITLE + high, TITLE), interpolation="nearest", zorder=0)
        axes.text(left, 13, panel.title, fontsize=8, color="#59636e")
        rows = {whole.parent: whole.y for whole in panel.wholes}
        lines = [[(left + link.x, link.y), (left + WHOLES, rows[link.parent])] for link in panel.links]
        colours = [to_rgba(colour_of(link.parent), _opacity(link.strength)) for link in panel.links]
        widths = [0.4 + link.strength for link in panel.links]
        axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, zorder=1), autolim=False)
        circles = [Circle((left + dot.x, dot.y), dot.radius) for dot in panel.dots]
        circles += [Circle((left + WHOLES, whole.y), whole.radius) for whole in panel.wholes]
        faces = [colour_of(dot.parent) for dot in panel.dots] + [colour_of(whole.parent) for whole in panel.wholes]
        axes.add_collection(PatchCollection(circles, facecolors=faces, edgecolors="none", zorder=2), autolim=False)
        for whole in panel.wholes:
            said = f"{_shortened(drawing.names[whole.parent])} {whole.activation:.2f}"
            axes.text(left + NAMES, whole.y + 3.5, said, fontsize=7.5, color="#1f2328")
    axes.set_xlim(0, count * width)
    axes.set_ylim(height, 0)
    axes.set_aspect("auto")
    return as_picture(name, figure, alt)
