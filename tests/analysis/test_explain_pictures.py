"""The pictures, charts and pieces of pages of a report, one by one."""

import io
import math
import re

import numpy as np
import pytest
import torch
from checked_html import Checked
from matplotlib.textpath import TextPath
from PIL import Image

from torchcaps.analysis.charts import Curve, LineChart, line_png, line_svg, log_share, round_ticks, tick_labels
from torchcaps.analysis.couplings import Flow
from torchcaps.analysis.explain.cases import _matched
from torchcaps.analysis.explain.flow import (
    NAMES,
    NEUTRAL,
    PALETTE,
    TITLE,
    WHOLES,
    colour_of,
    drawn_wholes,
    flow_png,
    lay_out,
    panel_svgs,
)
from torchcaps.analysis.pages import COLOURS, Section, counted, heat_cell, number, page, significant, table
from torchcaps.analysis.pictures import BLUE, ORANGE, sheet, two_colours


@pytest.fixture
def flow():
    """Two iterations, 1×2 places, two types, three wholes: one part sends to the last whole, one to the first."""
    coupling = torch.full((2, 1, 2, 2, 3), 1 / 3)
    coupling[1, 0, 0, 0] = torch.tensor([0.05, 0.05, 0.9])
    coupling[1, 0, 1, 1] = torch.tensor([0.8, 0.1, 0.1])
    activation = torch.tensor([[[0.9, 0.0], [0.1, 0.8]]])
    parents = torch.tensor([[0.3, 0.3, 0.3], [0.6, 0.1, 0.9]])
    return Flow(
        coupling,
        activation,
        parents,
        torch.ones(2),
        torch.ones(2),
        torch.ones(2, 3),
        torch.tensor([[[4.0, 4.0], [4.0, 12.0]]]),
        (5, 5),
    )


def test_a_part_is_drawn_in_its_colour_at_its_place(flow):
    drawing = lay_out(flow, torch.zeros(1, 16, 16), ["a", "b", "c"])
    first, last = drawing.panels
    assert {dot.parent for dot in first.dots} == {None}, "nobody has decided yet"
    assert len(last.dots) == 3, "what is not active is not drawn"
    chosen = max(last.dots, key=lambda dot: dot.radius)
    assert chosen.parent == 2
    scale = drawing.size[0] / 16
    assert abs(chosen.x - 4.5 * scale) < 4 * scale
    assert abs(chosen.y - TITLE - 4.5 * scale) < 4 * scale
    assert max(last.links, key=lambda link: link.strength).parent == 2
    sizes = [whole.radius for whole in last.wholes]
    assert sizes[2] > sizes[0] > sizes[1]
    svg = panel_svgs(drawing)[1]
    assert f'cx="{chosen.x:.1f}" cy="{chosen.y:.1f}" r="{chosen.radius:.1f}" fill="{PALETTE[2]}"' in svg


def test_the_png_of_a_flow_has_the_colours_too(flow):
    drawing = lay_out(flow, torch.zeros(1, 16, 16), ["a", "b", "c"])
    picture = flow_png("flow", drawing, "a flow")
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB"))
    across = pixels.shape[1] / 2 / len(drawing.panels)  # pixels per panel at half size
    for number_of, panel in enumerate(drawing.panels):
        for dot in panel.dots:
            if dot.radius > 2:
                at = pixels[round(2 * dot.y), round(2 * (dot.x + number_of * across))]
                assert "#" + bytes(at.tolist()).hex() == (colour_of(dot.parent) if number_of else NEUTRAL)
        whole = panel.wholes[2]
        at = pixels[round(2 * whole.y), round(2 * (WHOLES + number_of * across))]
        assert "#" + bytes(at.tolist()).hex() == PALETTE[2]


def test_many_wholes_are_shown_by_the_most_active(flow):
    many = Flow(torch.full((1, 1, 1, 1, 40), 0.025), torch.ones(1, 1, 1), torch.linspace(0, 1, 40)[None],
                torch.ones(1), torch.ones(1), torch.ones(1, 40), torch.zeros(1, 1, 2), (3, 3))  # fmt: skip
    drawing = lay_out(many, torch.zeros(3, 8, 4), [f"class {n}" for n in range(40)])
    assert [whole.parent for whole in drawing.panels[0].wholes] == list(range(28, 40))
    assert len({colour_of(n) for n in range(40)}) == 40
    assert drawn_wholes([drawing]) == list(range(28, 40))


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], ["aeroplane", "horse", "shoe"], ["incomprehensibilities", "b", "c"]]
)
def test_panels_are_wide_enough_for_names(flow, names):
    drawing = lay_out(flow, torch.zeros(1, 16, 16), names)
    said = [
        re.sub("<.*?>", "", part)
        for svg in panel_svgs(drawing)
        for part in re.findall("<text class=.ink.*?</text>", svg)
    ]
    assert max(len(part.split()[0]) for part in said) <= 12
    widest = max(TextPath((0, 0), part, size=7.5 * 100 / 72).get_extents().width for part in said)
    assert NAMES + widest < drawing.width
    assert (names[0] == "a") == (drawing.width == 306), "short names leave panels as they are"
    with Image.open(io.BytesIO(flow_png("flow", drawing, "a flow").png)) as picture:
        assert picture.size[0] == 2 * 2 * drawing.width


def test_sheets_and_two_colours():
    rows = [torch.ones(3, 1, 4, 5), torch.zeros(2, 3, 4, 5)]
    picture = sheet("s", rows, "two rows", gap=1)
    assert (picture.width, picture.height) == (3 * 6 - 1, 2 * 5 - 1)
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)))
    assert pixels.shape == (9, 17, 4)
    assert pixels[0, 0].tolist() == [255] * 4
    assert pixels[5, 0].tolist() == [0, 0, 0, 255]
    assert pixels[5, 12, 3] == pixels[4, 0, 3] == 0, "nothing is there"
    mixed = two_colours(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]]))
    assert mixed[:, 0, 0].tolist() == pytest.approx(ORANGE)
    assert mixed[:, 0, 1].tolist() == pytest.approx(BLUE)


def test_found_digits_are_put_in_the_order_of_their_labels():
    labels = torch.tensor([[3, 5], [3, 5], [3, 5], [3, 5]])
    found = torch.tensor([[5, 3], [3, 5], [7, 3], [5, 8]])
    assert _matched(found, labels).tolist() == [[3, 5], [3, 5], [3, 7], [8, 5]]


@pytest.mark.parametrize("values", [[0.5, 0.5], [0.0, 1.0], [-3.0, math.nan], [1e-6, 2e-6], [0.0]])
def test_charts_of_any_numbers(values):
    chart = LineChart("a < b", "x", [float(n) for n in range(len(values))], [Curve("y", values)])
    svg = line_svg(chart)
    Checked(f"<h1></h1>{svg}")
    assert "nan" not in svg
    assert svg.count("<circle") == sum(map(math.isfinite, values))
    with Image.open(io.BytesIO(line_png("c", [chart]).png)) as picture:
        picture.verify()


def test_a_missing_value_leaves_a_gap():
    svg = line_svg(LineChart("t", "x", [0.0, 1.0, 2.0, 3.0, 4.0], [Curve("y", [1.0, 2.0, math.nan, 1.0, 2.0])]))
    (path,) = re.findall('<path d="(M[^"]*)" fill="none" style', svg)
    assert [part.count("L") for part in path.split("M")[1:]] == [1, 1]


@pytest.mark.parametrize(
    "values", [[1.0, 1.0 + 1e-6], [0.99999, 1.0], [-250.0, -250.0001], [1e-9, 1.00001e-9], [0.0, 1.0]]
)
def test_ticks_can_be_told_apart(values):
    low, high = LineChart("t", "x", [0.0, 1.0], [Curve("y", values)]).limits
    assert low <= min(values) < max(values) <= high
    assert high - low >= 0.999e-3 * abs(values[0])
    labels = tick_labels(round_ticks(low, high))
    assert len(set(labels)) == len(labels) > 2
    for label, tick in zip(labels, round_ticks(low, high), strict=True):
        assert float(label.replace("−", "-")) == pytest.approx(tick, abs=1e-3 * (high - low))


def test_ticks_and_shares():
    assert tick_labels([0, 0.25, 0.5, 0.75, 1]) == ["0", "0.25", "0.5", "0.75", "1"]
    assert tick_labels([99000, 100000]) == ["99000", "100000"]
    assert tick_labels([-3.0]) == ["−3"]
    assert round_ticks(0, 1) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert log_share(1, [1, 100]) == pytest.approx(0.5 / 2.5)
    assert log_share(100, [1, 100]) == 1
    assert log_share(0, [0, 1]) == 0


def test_pieces_of_a_page():
    body = table(["a", "b"], [["x", heat_cell(-1, 0.5, "−1")]], "a & b")
    text = page("<title>", "<h1>t</h1>", [Section("s", "S & T", body)])
    Checked(text)
    assert "S &amp; T" in text
    assert "heat minus" in text
    assert number(-0.25, 2) == "−0.25"
    assert number(math.nan) == number(None) == "–"
    assert significant(-7.2e-6) == "−7.2e−06"
    assert (significant(0.0), significant(-0.25), significant(math.nan)) == ("0.000", "−0.250", "–")
    assert (counted(1, "image"), counted(2000, "image")) == ("1 image", "2,000 images")


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_can_be_read_on_their_colours():
    """WCAG 2: a contrast of at least 4.5, in light and in dark."""
    for mode in COLOURS.split("@media"):
        colours = {name: luminance(value) for name, value in re.findall(r"--([\w-]+): (#\w{6})", mode)}
        for ground in ("paper", "card", "for", "against"):
            dark, light = sorted((colours["ink"], colours[ground]))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, ground
