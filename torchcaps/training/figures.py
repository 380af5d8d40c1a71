"""The confusion matrix and the reliability of answers as figures of matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchcaps.extras import comes_with_an_extra

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"ink": "#1f2328", "soft": "#59636e", "grid": "#d8dee4", "blue": "#0969da", "orange": "#bc5a00"}
PIXELS = 100  # in an inch of a figure
MOST_WRITTEN = 20
"""Classes up to which every cell of a confusion matrix has its number."""
MOST_NAMED = 60
"""Classes up to which every row and column has its name."""
MOST_LETTERS = 18


def draw_measures(measures: Mapping[str, Any], colours: Mapping[str, str] = COLOURS) -> dict[str, Figure]:
    """The pictures of what :func:`~.tasks.metrics.measure_answers` gives, by the names of their files.

    ``reliability``, and where items have one label each ``confusion``.

    Args:
        measures: at least ``reliability`` and ``calibration_error``; ``confusion_matrix`` with ``per_class``.
        colours: of text, grid and bars.
    """
    figures = {"reliability": draw_reliability(measures, colours)}
    if "confusion_matrix" in measures:
        names = list(measures["per_class"])
        figures["confusion"] = draw_confusions(measures["confusion_matrix"], names, colours)
    return figures


def draw_confusions(
    matrix: Sequence[Sequence[int]], names: Sequence[str], colours: Mapping[str, str] = COLOURS
) -> Figure:
    """Labels down, answers across; the colour is the share of a row, so that rare classes are seen, too."""
    classes = len(names)
    side = min(900, max(300, 120 + (34 if classes <= MOST_WRITTEN else 13) * classes))
    figure = _new_figure(side + 40, side)
    axes = figure.add_subplot()
    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    shown = axes.imshow(shares, vmin=0, vmax=1, cmap="Blues", aspect="equal")
    shown.set_rasterized(True)
    if classes <= MOST_NAMED:
        short = [_shorten(name, number) for number, name in enumerate(names, 1)]
        axes.set_xticks(range(classes), short, rotation=90 if max(map(len, short)) > 3 else 0)
        axes.set_yticks(range(classes), short)
    if classes <= MOST_WRITTEN:
        for at, row in enumerate(matrix):
            for to, count in enumerate(row):
                if count:
                    dark = shares[at][to] > 0.55
                    axes.text(to, at, _count(count), ha="center", va="center", fontsize=6.5,
                              color="white" if dark else "#101418")  # fmt: skip
    _decorate(axes, "Confusion matrix", "answer", "label", colours)
    bar = figure.colorbar(shown, ax=axes, shrink=0.7, ticks=[0, 0.5, 1])
    bar.set_label("share of the label", fontsize=7.5, color=colours["soft"])
    bar.ax.tick_params(labelsize=7.5, length=0, colors=colours["soft"])
    bar.outline.set_visible(False)
    return figure


def draw_reliability(measures: Mapping[str, Any], colours: Mapping[str, str] = COLOURS) -> Figure:
    """How often answers of a confidence are right, and how many there are; on the diagonal confidence is a chance."""
    rows = [row for row in measures["reliability"] if row["count"]]
    several = "confusion_matrix" not in measures
    figure = _new_figure(380, 360)
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    middles = [(row["low"] + row["high"]) / 2 for row in rows]
    widths = [0.92 * (row["high"] - row["low"]) for row in rows]
    top.bar(middles, [row["accuracy"] for row in rows], widths, color=colours["blue"])
    top.plot(
        [row["confidence"] for row in rows], [row["accuracy"] for row in rows], "o", ms=3.5, color=colours["orange"],
        clip_on=False, zorder=4,
    )  # fmt: skip
    top.plot([0, 1], [0, 1], color=colours["soft"], linewidth=1, linestyle=(0, (4, 2.4)), zorder=3)
    top.set(xlim=(0, 1), ylim=(0, 1))
    title = f"Reliability: calibration error {measures['calibration_error']:.3f}"
    _decorate(top, title, "", "share that have the class" if several else "share of right answers", colours)
    below.bar(middles, [row["count"] for row in rows], widths, color=colours["soft"])
    of_what = "class" if several else "answer"
    below.set_yscale("log")
    below.set_ylim(bottom=0.5)  # so that a single case is seen
    _decorate(below, "", f"score of the {of_what}; dots are at the mean score of a bar", "cases", colours)
    return figure


def read_pixels(figure: Figure) -> np.ndarray:
    """A figure as it looks on white, uint8 ``[H, W, 3]``."""
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(save_png(figure))).convert("RGB"))


def save_png(figure: Figure) -> bytes:
    """A figure as PNG on white; the same figure gives the same bytes."""
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None}, facecolor="white")
    return content.getvalue()


def _new_figure(width: int, height: int) -> Figure:
    with comes_with_an_extra():
        from matplotlib.figure import Figure

    return Figure(figsize=(width / PIXELS, height / PIXELS), dpi=2 * PIXELS, layout="constrained")


def _decorate(axes: Axes, title: str, x_label: str, y_label: str, colours: Mapping[str, str]) -> None:
    if title:
        axes.set_title(title, fontsize=8.5, loc="left", color=colours["ink"], pad=9)
    axes.set_xlabel(x_label, fontsize=7.5, color=colours["soft"])
    axes.set_ylabel(y_label, fontsize=7.5, color=colours["soft"])
    axes.tick_params(labelsize=7.5, length=0, pad=4, colors=colours["soft"], which="both")
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not axes.images:
        axes.grid(axis="both", color=colours["grid"], lw=0.6)
        axes.set_axisbelow(True)


def _shorten(name: str, number: int) -> str:
    """A name that has room, in which matplotlib sees no formula; the class's number if the font lacks its letters."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))  # which comes with matplotlib
    if not all(font.get_char_index(ord(letter)) for letter in name):
        return f"#{number}"
    short = name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
    return short.replace("$", r"\$")


def _count(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.0f}k"
