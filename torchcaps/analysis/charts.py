"""Charts from plain numbers: as SVG that takes the colours of the page around it, and as PNG for everywhere else."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import NamedTuple

from torchcaps.analysis.pages import text
from torchcaps.analysis.pictures import Picture
from torchcaps.extras import comes_with_an_extra

with comes_with_an_extra():
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 300, 176
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 14, 34
"""Room around the plot: numbers and names of the axes."""

COLOURS = (("var(--blue)", "#0969da"), ("var(--orange)", "#bc5a00"), ("var(--green)", "#1a7f37"))
"""Of the curves, for the page and for a PNG on white; each also has its own dashes, so that colour is not needed."""
DASHES = ("", "5 3", "1.5 3")
DPI = 144
LEAST_SPAN = 1e-3  # of an axis, relative to its largest value


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


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers from low to high, about so many."""
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= min((1, 2, 2.5, 5, 10), key=lambda factor: abs((high - low) / (factor * step) - about))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Numbers with as many digits as it takes to tell neighbours apart."""
    if len(ticks) < 2:
        return [_short(tick) for tick in ticks]
    largest, step = max(map(abs, ticks)), ticks[1] - ticks[0]
    before, fine = (math.floor(math.log10(value) + 1e-9) for value in (largest, step))
    digits = before - fine + 2  # a step itself has up to two, such as 2.5
    if largest < 1e6:
        digits = max(digits, before + 1)  # all before the point
    return [f"{tick:.{digits}g}".replace("-", "−") for tick in ticks]


def line_svg(chart: LineChart) -> str:
    """A chart as inline SVG."""
    low, high = chart.limits
    ticks = round_ticks(low, high)
    start, end = (chart.x[0], chart.x[-1]) if len(chart.x) > 1 else (chart.x[0] - 1, chart.x[0] + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - start) / (end - start) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f"<title>{text(_in_words(chart))}</title>"]
    for tick, said in zip(ticks, tick_labels(ticks), strict=True):
        y = place(start, tick)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{said}</text>')
    for tick in _x_ticks(chart.x):
        x = place(tick, low)[0]
        parts.append(f'<text class="soft" x="{x:.1f}" y="{HEIGHT - 19}" text-anchor="middle">{_short(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    label = text(chart.x_label)
    parts.append(f'<text class="soft" x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{label}</text>')
    for n, curve in enumerate(chart.curves):
        runs: list[list[tuple[float, float]]] = [[]]
        for x, y in zip(chart.x, curve.values, strict=True):
            if math.isfinite(y):
                runs[-1].append(place(x, y))
            else:
                runs.append([])
        parts.append(_curve([run for run in runs if run], COLOURS[n][0], DASHES[n]))
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'aria-label="{text(_in_words(chart))}">{"".join(parts)}</svg>'
    )


def _curve(runs: Sequence[Sequence[tuple[float, float]]], colour: str, dashes: str) -> str:
    """A line through each run of points, and the points."""
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs)
    points = [point for run in runs for point in run]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" style="stroke:{colour}" stroke-width="2"{dashed}/>{dots}' if path else ""


def line_legend(chart: LineChart) -> str:
    """The title and the names of the curves as HTML, in their colours."""
    if len(chart.curves) == 1:
        return text(chart.title)
    names = " ".join(
        f'<span class="swatch"><svg width="26" height="8" aria-hidden="true"><path d="M1 4H25" '
        f'style="stroke:{COLOURS[n][0]}" stroke-width="2.5" stroke-dasharray="{DASHES[n]}"/></svg>{text(curve.name)}'
        "</span>"
        for n, curve in enumerate(chart.curves)
    )
    return f"{text(chart.title)}<br>{names}"


def _in_words(chart: LineChart) -> str:
    """The chart for those who hear it."""
    curves = "; ".join(f"{c.name}: {', '.join(_short(v) for v in c.values)}" for c in chart.curves)
    return f"{chart.title}, over {chart.x_label} from {_short(chart.x[0])} to {_short(chart.x[-1])}. {curves}."


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−") if math.isfinite(value) else "none"


def _x_ticks(x: Sequence[float], most: int = 7) -> list[float]:
    """Some of the values themselves; with many, every second or third, and zero among them if it is one."""
    step = math.ceil(len(x) / most)
    first = list(x).index(0) % step if 0 in x else 0
    return list(x[first::step])


def line_png(name: str, charts: Sequence[LineChart]) -> Picture:
    """The same charts side by side, on white."""
    wide = 3.6 * len(charts)
    figure = Figure(figsize=(wide, 2.5), dpi=DPI)
    figure.subplots_adjust(left=0.45 / wide, right=1 - 0.12 / wide, bottom=0.17, top=0.9, wspace=0.2)
    for n, chart in enumerate(charts):
        axes = figure.add_subplot(1, len(charts), n + 1)
        for k, curve in enumerate(chart.curves):
            style = "-" if not DASHES[k] else (0, tuple(float(part) for part in DASHES[k].split()))
            axes.plot(chart.x, curve.values, color=COLOURS[k][1], marker="o", ms=3, ls=style, label=curve.name)
        low, high = chart.limits
        room = 0.04 * (high - low)
        axes.set_ylim(low - room, high + room)
        axes.ticklabel_format(axis="y", useOffset=False)
        if len(chart.curves) > 1:
            axes.legend(frameon=False, fontsize=8)
        _plain(axes, chart.title, chart.x_label)
    return as_picture(name, figure, " ".join(map(_in_words, charts)))


def bar_png(name: str, title: str, names: Sequence[str], values: Sequence[float]) -> Picture:
    """Horizontal bars on a logarithmic scale, the first on top; what is zero has none."""
    figure = Figure(figsize=(6.4, 0.9 + 0.28 * len(names)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.barh(range(len(names)), [max(value, 1e-30) for value in values], color=COLOURS[0][1], height=0.62)
    axes.set_yticks(range(len(names)), list(names))
    axes.invert_yaxis()
    positive = [value for value in values if value > 0] or [1.0]
    axes.set_xscale("log")
    axes.set_xlim(min(positive) / 3, max(positive) * 2)
    _plain(axes, title, "")
    words = ", ".join(f"{name} {value:.2g}" for name, value in zip(names, values, strict=True))
    return as_picture(name, figure, f"{title}: {words}.")


def log_share(value: float, values: Sequence[float]) -> float:
    """How long a bar is on a logarithmic scale, 0 … 1; the smallest value still has a visible one."""
    positive = [v for v in values if v > 0]
    if not positive or value <= 0:
        return 0.0
    low, high = math.log10(min(positive)) - 0.5, math.log10(max(positive))
    return (math.log10(value) - low) / (high - low)


def _plain(axes: Axes, title: str, x_label: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(x_label, fontsize=8)
    axes.tick_params(labelsize=8, length=0)
    axes.grid(axis="both", color="#e4e8ec", lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def as_picture(name: str, figure: Figure, alt: str) -> Picture:
    """A matplotlib figure as PNG; nothing of matplotlib's global state is touched."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    width, height = (round(side * figure.dpi) for side in figure.get_size_inches())
    return Picture(name, file.getvalue(), width, height, alt)
