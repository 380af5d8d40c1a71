"""The pictures, charts and pieces of pages of a report, one by one."""

import io
import math
import re

import matplotlib as mpl
import numpy as np
import pytest
import torch
from checked_html import Checked, check_svg
from matplotlib.textpath import TextPath
from PIL import Image

from torchcaps.analysis.answers import match_order
from torchcaps.analysis.couplings import Flow
from torchcaps.report import charts
from torchcaps.report.charts import Curve, LineChart, draw_bars, draw_lines
from torchcaps.report.flow import (
    NAMES,
    NEUTRAL,
    PALETTE,
    PARENTS,
    TITLE,
    choose_colour,
    draw_flow,
    lay_out,
    list_drawn_parents,
)
from torchcaps.report.formats import count_nouns, format_number, format_significant
from torchcaps.report.header import ReportHeader
from torchcaps.report.pictures import BLUE, ORANGE, make_sheet, mix_two_colours
from torchcaps.report.rendering import TEMPLATES, Section, Table, TableCell, render


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
    sizes = [mark.radius for mark in last.parents]
    assert sizes[2] > sizes[0] > sizes[1]
    png = Image.open(io.BytesIO(draw_flow("flow", drawing, "a flow")[1].content))
    at = png.getpixel((2 * (drawing.width + round(chosen.x)), 2 * round(chosen.y)))
    assert "#" + bytes(at).hex() == PALETTE[2]


def test_the_png_of_a_flow_has_the_colours_too(flow):
    drawing = lay_out(flow, torch.zeros(1, 16, 16), ["a", "b", "c"])
    picture = draw_flow("flow", drawing, "a flow")[1]
    pixels = np.asarray(Image.open(io.BytesIO(picture.content)).convert("RGB"))
    across = pixels.shape[1] / 2 / len(drawing.panels)  # pixels per panel at half size
    for number_of, panel in enumerate(drawing.panels):
        for dot in panel.dots:
            if dot.radius > 2:
                at = pixels[round(2 * dot.y), round(2 * (dot.x + number_of * across))]
                assert "#" + bytes(at.tolist()).hex() == (choose_colour(dot.parent) if number_of else NEUTRAL)
        mark = panel.parents[2]
        at = pixels[round(2 * mark.y), round(2 * (PARENTS + number_of * across))]
        assert "#" + bytes(at.tolist()).hex() == PALETTE[2]


def test_many_parents_are_shown_by_the_most_active(flow):
    many = Flow(torch.full((1, 1, 1, 1, 40), 0.025), torch.ones(1, 1, 1), torch.linspace(0, 1, 40)[None],
                torch.ones(1), torch.ones(1), torch.ones(1, 40), torch.zeros(1, 1, 2), (3, 3))  # fmt: skip
    drawing = lay_out(many, torch.zeros(3, 8, 4), [f"class {n}" for n in range(40)])
    assert [mark.parent for mark in drawing.panels[0].parents] == list(range(28, 40))
    assert len({choose_colour(n) for n in range(40)}) == 40
    assert list_drawn_parents([drawing]) == list(range(28, 40))


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], ["aeroplane", "horse", "shoe"], ["incomprehensibilities", "b", "c"]]
)
def test_panels_are_wide_enough_for_names(flow, names):
    drawing = lay_out(flow, torch.zeros(1, 16, 16), names)
    panels, joined = draw_flow("flow", drawing, "a flow")
    texts = [part for svg in panels for part in re.findall("<text.*?</text>", svg.content.decode())]
    said = [re.sub("<.*?>", "", part) for part in texts if "--ink" in part]
    assert len(said) == 2 * 3
    assert max(len(part.split()[0]) for part in said) <= 12
    widest = max(TextPath((0, 0), part, size=7.5 * 100 / 72).get_extents().width for part in said)
    assert NAMES + widest < drawing.width
    assert (names[0] == "a") == (drawing.width == 306), "short names leave panels as they are"
    with Image.open(io.BytesIO(joined.content)) as picture:
        assert picture.size[0] == 2 * 2 * drawing.width


def test_sheets_and_two_colours():
    rows = [torch.ones(3, 1, 4, 5), torch.zeros(2, 3, 4, 5)]
    picture = make_sheet("s", rows, "two rows", gap=1)
    assert (picture.width, picture.height) == (3 * 6 - 1, 2 * 5 - 1)
    pixels = np.asarray(Image.open(io.BytesIO(picture.content)))
    assert pixels.shape == (9, 17, 4)
    assert pixels[0, 0].tolist() == [255] * 4
    assert pixels[5, 0].tolist() == [0, 0, 0, 255]
    assert pixels[5, 12, 3] == pixels[4, 0, 3] == 0, "nothing is there"
    mixed = mix_two_colours(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]]))
    assert mixed[:, 0, 0].tolist() == pytest.approx(ORANGE)
    assert mixed[:, 0, 1].tolist() == pytest.approx(BLUE)


def test_found_digits_are_put_in_the_order_of_their_labels():
    labels = torch.tensor([[3, 5], [3, 5], [3, 5], [3, 5]])
    found = torch.tensor([[5, 3], [3, 5], [7, 3], [5, 8]])
    assert match_order(found, labels).tolist() == [[3, 5], [3, 5], [3, 7], [8, 5]]


@pytest.mark.parametrize("values", [[0.5, 0.5], [0.0, 1.0], [-3.0, math.nan], [1e-6, 2e-6], [0.0]])
def test_charts_of_any_numbers(values):
    chart = LineChart("a < b, $x$", "x", [float(n) for n in range(len(values))], [Curve("y", values)])
    drawn = draw_lines(chart)
    svg = drawn.svg.content.decode()
    check_svg(svg)
    assert "nan" not in svg.replace("none", "")
    assert svg.count("<use") == sum(map(math.isfinite, values)), "a point for each"
    assert ">a &lt; b, $x$<" in svg, "a title is no formula"
    with Image.open(io.BytesIO(drawn.png.content)) as picture:
        assert picture.size == (drawn.png.width, drawn.png.height) == (2 * drawn.svg.width, 2 * drawn.svg.height)


def test_the_same_numbers_are_the_same_bytes_and_settings_stay():
    before = dict(mpl.rcParams)
    chart = LineChart("t", "x", [0.0, 1.0], [Curve("y", [0.0, 1.0]), Curve("z", [1.0, 0.0])])
    assert draw_lines(chart) == draw_lines(chart)
    assert draw_bars("t", ["a", "b"], [0.0, 2.0]) == draw_bars("t", ["a", "b"], [0.0, 2.0])
    assert dict(mpl.rcParams) == before


def test_charts_follow_the_page_in_light_and_dark():
    svg = draw_lines(LineChart("t", "x", [0.0, 1.0], [Curve("y", [0.0, 1.0])])).svg.content.decode()
    style, _, drawn = svg.partition("</style>")
    assert "prefers-color-scheme: dark" in style
    assert set(re.findall(r"#[0-9a-f]{6}", drawn)) == set(), "every colour has a name"
    assert {"var(--blue)", "var(--ink)", "var(--soft)", "var(--grid)"} <= set(re.findall(r"var\(--\w+\)", drawn))


def test_a_missing_value_leaves_a_gap():
    chart = LineChart("t", "x", [0.0, 1.0, 2.0, 3.0, 4.0], [Curve("y", [1.0, 2.0, math.nan, 1.0, 2.0])])
    svg = draw_lines(chart).svg.content.decode()
    (path,) = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--blue\); stroke-width: 1.6', svg)
    assert [part.count("L") for part in path.split("M")[1:]] == [1, 1]


@pytest.mark.parametrize(
    "values", [[1.0, 1.0 + 1e-6], [0.99999, 1.0], [-250.0, -250.0001], [1e-9, 1.00001e-9], [0.0, 1.0]]
)
def test_ticks_can_be_told_apart(values, monkeypatch):
    chart = LineChart("t", "x", [0.0, 1.0], [Curve("y", values)])
    low, high = chart.limits
    assert low <= min(values) < max(values) <= high
    assert high - low >= 0.999e-3 * abs(values[0])
    figures = []
    monkeypatch.setattr(charts, "save_figure", lambda _, figure, __: figures.append(figure))
    draw_lines(chart)
    (axes,) = figures[0].axes
    figures[0].draw_without_rendering()
    bottom, top = axes.get_ylim()
    ticks = [(tick, text.get_text()) for tick, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
             if bottom <= tick <= top]  # fmt: skip
    labels = [label for _, label in ticks]
    assert len(set(labels)) == len(labels) > 2
    power = axes.yaxis.get_offset_text().get_text().replace("−", "-")
    for tick, label in ticks:
        assert float(f"{label.replace('−', '-')}{power[1:]}") == pytest.approx(tick, abs=1e-3 * (high - low))


def test_pieces_of_a_page():
    table = Table("a & b", ["a", TableCell("b", "<i>")], [["x", TableCell("−1", strength=0.5)]])
    content = {"images": "1 image", "objects": 1, "multi_label": False, "on_black": True, "summary": "{{ 7*7 }}"}
    section = Section("s", "S & T", "movements.html", {**content, "table": table, "blocks": []})
    header = ReportHeader("<title>", (), {"data": "'"}, "explain --seed 3", {})
    text = render("report.html", header=header, sections=[section], version="1", numbers="n", pictures="p")
    found = Checked(text)
    assert "S &amp; T" in text
    assert '<td class="heat" style="--s:50%">−1</td>' in text
    assert "<code>explain <span>--seed</span> 3</code>" in text
    assert "<title>" in found.said
    assert "{{ 7*7 }}" in found.said
    assert format_number(-0.25, 2) == "−0.25"
    assert format_number(math.nan) == format_number(None) == "–"
    assert format_significant(-7.2e-6) == "−7.2e−06"
    assert (format_significant(0.0), format_significant(-0.25), format_significant(math.nan)) == (
        "0.000",
        "−0.250",
        "–",
    )
    assert (count_nouns(1, "image"), count_nouns(2000, "image")) == ("1 image", "2,000 images")


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_can_be_read_on_their_colours():
    """WCAG 2: a contrast of at least 4.5, in light and in dark."""
    for mode in (TEMPLATES / "colours.css").read_text().split("@media"):
        colours = {name: luminance(value) for name, value in re.findall(r"--([\w-]+): (#\w{6})", mode)}
        for ground in ("paper", "card", "for", "against"):
            dark, light = sorted((colours["ink"], colours[ground]))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, ground
