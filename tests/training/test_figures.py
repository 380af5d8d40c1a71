"""Pictures of measures: what they show, and names that a font or a formula would trip over."""

import warnings

import pytest
import torch

from torchcaps.training.figures import draw_confusions, draw_measures, draw_reliability, read_pixels, save_png
from torchcaps.training.tasks.metrics import measure_answers


def measures_of(names, items=60):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(items) % len(names)
    scores = torch.rand(items, len(names), generator=generator)
    scores[torch.arange(items), labels] += 0.3
    return measure_answers(scores.clamp_max(1), labels, tuple(names))


def test_what_is_drawn():
    measures = measures_of("abc")
    figures = draw_measures(measures)
    assert set(figures) == {"reliability", "confusion"}
    written = [text.get_text() for text in figures["confusion"].axes[0].texts]
    assert sorted(map(int, written)) == sorted(n for row in measures["confusion_matrix"] for n in row if n)
    bars = figures["reliability"].axes[0].patches
    there = [row for row in measures["reliability"] if row["count"]]
    assert [bar.get_height() for bar in bars] == pytest.approx([row["accuracy"] for row in there])
    pixels = read_pixels(figures["confusion"])
    assert pixels.shape[2] == 3
    assert pixels.std() > 10
    assert save_png(draw_measures(measures)["reliability"]) == save_png(draw_measures(measures)["reliability"])


def test_any_number_of_labels_has_no_confusions():
    flags = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0]]).bool()
    measures = measure_answers(torch.rand(3, 3), flags, ("a", "b", "c"))
    assert set(draw_measures(measures)) == {"reliability"}
    assert draw_reliability(measures).axes[0].get_ylabel() == "share that have the class"


def test_names_without_glyphs_formulas_and_long_ones():
    names = ["猫", "$x$", "a name that is much longer than its room", "plain"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw_confusions([[1, 0, 0, 0]] * 4, names)
        save_png(figure)
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == ["#1", r"\$x\$", "a name that is mu…", "plain"]


def test_very_many_classes_are_still_a_picture():
    figure = draw_confusions([[1] * 150] * 150, [f"class {n}" for n in range(150)])
    assert not figure.axes[0].texts
    assert max(figure.get_size_inches()) < 10
    assert save_png(figure)[:4] == b"\x89PNG"
