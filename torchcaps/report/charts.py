"""Charts from plain numbers, drawn once by matplotlib: as SVG in the colours of the page, and as PNG on white."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from torchcaps.extras import comes_with_an_extra
from torchcaps.report.pictures import Picture
from torchcaps.report.rendering import TEMPLATES, light_colours

with comes_with_an_extra():
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

WIDTH, HEIGHT = 330, 210
"""Pixels of a line chart on the page."""
PIXELS = 100  # of the page in an inch of a figure
ENLARGED = 2  # pixels of a PNG for one of the page
CURVES = (("blue", "-"), ("orange", (0, (4, 2.4))), ("green", (0, (1.2, 2.4))))
"""Colours and dashes, so that colour is not needed to tell curves apart."""
LEAST_SPAN = 1e-3  # of an axis, relative to its largest value
COLOURS = light_colours()
_THEMED = ("ink", "soft", "grid", "blue", "orange", "green")  # which a dark page has otherwise


class Curve(NamedTuple):
    """A name and its values, one for each x; NaN leaves a gap."""

    name: str
    values: Sequence[float]


class LineChart(NamedTuple):
    """Curves over a number.

    Attributes:
        title: what is shown, in a few words.
        x_label: the name and unit of x.
        x: rising.
        curves: at most three.
        bottom: lowest y; not given: that of the data.
        top: highest y; not given: that of the data.
    """

    title: str
    x_label: str
    x: Sequence[float]
    curves: Sequence[Curve]
    bottom: float | None = None
    top: float | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """Of y; a curve that is constant, or nearly, gets some room: nobody is to take rounding for a movement."""
        values = [value for curve in self.curves for value in curve.values if math.isfinite(value)] or [0.0]
        low = min(values) if self.bottom is None else self.bottom
        high = max(values) if self.top is None else self.top
        if high <= low:
            return low - 0.5, low + 0.5
        lacking = LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
        return (low - lacking / 2, high + lacking / 2) if lacking > 0 else (low, high)


class Drawn(NamedTuple):
    """One figure twice: for the page, and as a file."""

    svg: Picture
    png: Picture


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many pixels on the page."""
    return Figure(figsize=(width / PIXELS, height / PIXELS), dpi=PIXELS * ENLARGED, layout="constrained")


def save_figure(name: str, figure: Figure, alt: str) -> Drawn:
    """A figure as SVG and PNG; the same figure gives the same bytes, and matplotlib's settings are left alone."""
    svg, png = io.BytesIO(), io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "torchcaps"}):
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        figure.savefig(png, format="png", metadata={"Software": None}, facecolor="white")
    width, height = (round(side * PIXELS) for side in figure.get_size_inches())
    content = _follow_theme(svg.getvalue().decode()).encode()
    return Drawn(
        Picture(name, content, width, height, alt, "svg+xml"),
        Picture(name, png.getvalue(), width * ENLARGED, height * ENLARGED, alt),
    )


def _follow_theme(svg: str) -> str:
    """The same SVG with the page's colours by name, light or dark as the reader has it, and the page's font."""
    names = {COLOURS[name]: f"var(--{name})" for name in _THEMED}
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda colour: names.get(colour[0], colour[0]), svg)
    svg = re.sub(r"'DejaVu Sans'(, '[^']+'|, [\w-]+)*", "system-ui, sans-serif", svg)
    style = '<style type="text/css">'
    return svg.replace(style, style + (TEMPLATES / "colours.css").read_text(encoding="utf-8"), 1)


def draw_lines(chart: LineChart, name: str = "") -> Drawn:
    """Curves with their points, a legend if there are several."""
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_subplot()
    for (colour, dashes), curve in zip(CURVES, chart.curves, strict=False):
        (line,) = axes.plot(chart.x, curve.values, label=curve.name, clip_on=False, marker="o", ms=3)
        line.set(color=COLOURS[colour], linestyle=dashes, linewidth=1.6)
    low, high = chart.limits
    room = 0.06 * (high - low)
    axes.set_ylim(low - room * (chart.bottom is None), high + room * (chart.top is None))
    _set_ticks(axes, chart.x)
    _decorate(axes, chart.title, chart.x_label)
    if len(chart.curves) > 1:
        axes.legend(frameon=False, fontsize=7.5, labelcolor=COLOURS["soft"], loc="best", handlelength=2.6)
    return save_figure(name, figure, describe_chart(chart))


def draw_bars(title: str, names: Sequence[str], values: Sequence[float], name: str = "") -> Drawn:
    """Horizontal bars on a logarithmic scale, the first on top; what is zero has none."""
    figure = new_figure(640, 70 + 21 * len(names))
    axes = figure.add_subplot()
    positive = [value for value in values if value > 0] or [1.0]
    lengths = [value if value > 0 else min(positive) / 1e3 for value in values]
    axes.barh(range(len(names)), lengths, color=COLOURS["blue"], height=0.62)
    axes.set_yticks(range(len(names)), [_plain(part) for part in names])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(positive) / 3, max(positive) * 2)
    _decorate(axes, title, "")
    said = ", ".join(f"{part} {value:.2g}" for part, value in zip(names, values, strict=True))
    return save_figure(name, figure, f"{title}: {said}.")


def describe_chart(chart: LineChart) -> str:
    """The chart for those who hear it."""
    curves = "; ".join(f"{c.name}: {', '.join(_shorten(v) for v in c.values)}" for c in chart.curves)
    return f"{chart.title}, over {chart.x_label} from {_shorten(chart.x[0])} to {_shorten(chart.x[-1])}. {curves}."


def _shorten(value: float) -> str:
    return f"{value:.3g}".replace("-", "−") if math.isfinite(value) else "none"


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _set_ticks(axes: Axes, x: Sequence[float], most: int = 7) -> None:
    """Round numbers of y; of x some of the values themselves, zero among them if it is one."""
    formatter = ScalarFormatter(useOffset=False)
    formatter.set_powerlimits((-4, 6))
    axes.yaxis.set_major_formatter(formatter)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    step = math.ceil(len(x) / most)
    first = list(x).index(0) % step if 0 in x else 0
    axes.set_xticks(list(x[first::step]), [_shorten(value) for value in x[first::step]])


def _decorate(axes: Axes, title: str, x_label: str) -> None:
    axes.set_title(_plain(title), fontsize=8.5, loc="left", color=COLOURS["ink"], pad=9)
    axes.set_xlabel(x_label, fontsize=7.5, color=COLOURS["soft"])
    axes.tick_params(labelsize=7.5, length=0, pad=5, colors=COLOURS["soft"], which="both")
    axes.yaxis.get_offset_text().set(color=COLOURS["soft"], fontsize=7)
    axes.grid(axis="both", color=COLOURS["grid"], lw=0.6)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
