"""How well each class is answered: a table, what is taken for what, and how far scores can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchcaps.analysis.answers import ImageAnswers
from torchcaps.models.base import TextCapsuleModel
from torchcaps.report.charts import COLOURS, Drawn, save_figure
from torchcaps.report.formats import count_nouns, format_number, format_percent
from torchcaps.report.given import GivenImages, GivenTexts
from torchcaps.report.rendering import Section, Table, TableCell
from torchcaps.training.balance import describe_unanswered
from torchcaps.training.figures import draw_measures
from torchcaps.training.tasks.metrics import TOP, find_unanswered, measure_answers

MOST_ROWS = 60
"""Classes in the table; of more those with the lowest F1."""
MOST_SAID = 10


def show_measures(given: GivenImages | GivenTexts) -> Section:
    """Of any model: each class, the confusions of single labels, and the reliability of the scores."""
    answers, kind = given.answers, given.task.kind
    labels = answers.batch.labels if isinstance(answers, ImageAnswers) else answers.labels
    measures = measure_answers(answers.scores, labels, answers.class_names)
    said = {"reliability": _describe_reliability(measures), "confusion": _describe_confusions(measures)}
    drawn: dict[str, Drawn] = {
        name: save_figure(name, figure, said[name]) for name, figure in draw_measures(measures, COLOURS).items()
    }
    of_image = answers.capsules if isinstance(answers, ImageAnswers) else None
    capsules = of_image is not None or isinstance(given.model, TextCapsuleModel)
    content = {
        "summary": _describe_averages(measures),
        "unanswered": describe_unanswered(find_unanswered(measures), kind),
        "table": _make_table(measures, kind),
        "left_out": max(0, len(measures["per_class"]) - MOST_ROWS),
        "several": "confusion_matrix" not in measures,
        "capsules": capsules,
        "charts": [drawn[name].svg for name in ("confusion", "reliability") if name in drawn],
    }
    pictures = [picture.png for picture in drawn.values()]
    return Section("measures", "Class by class", "measures.html", content, pictures, measures)


def _describe_averages(measures: Mapping[str, Any]) -> str:
    if "balanced_accuracy" not in measures:
        return "No item has any of the classes."
    said = (
        f"Every class counting the same, accuracy is {format_percent(measures['balanced_accuracy'])} (balanced "
        f"accuracy, the mean recall) and the mean F1 {format_percent(measures['macro_f1'])}."
    )
    tops = [k for k in TOP if f"top_{k}_accuracy" in measures]
    if tops:
        shares = ", ".join(f"among the first {k} in {format_percent(measures[f'top_{k}_accuracy'])}" for k in tops)
        said += f" By score the label is {shares} of all cases."
    return f"{said} The calibration error is {format_number(measures['calibration_error'])}."


def _make_table(measures: Mapping[str, Any], kind: str) -> Table:
    rows = list(measures["per_class"].items())
    if len(rows) > MOST_ROWS:
        rows = sorted(rows, key=lambda pair: float(pair[1]["f1"]))[:MOST_ROWS]
    cells = [
        [
            name,
            *(TableCell(format_percent(row[key]), strength=1 - row[key]) for key in ("precision", "recall", "f1")),
            f"{row['count']:,}",
            f"{row['answered']:,}",
        ]
        for name, row in rows
    ]
    return Table("Each class", ("class", "precision", "recall", "F1", kind, "answered"), cells)


def _describe_confusions(measures: Mapping[str, Any]) -> str:
    """The matrix for those who hear it: what is taken for what most often."""
    names = list(measures["per_class"])
    matrix = measures.get("confusion_matrix", ())
    wrong = [
        (count, names[at], names[to])
        for at, row in enumerate(matrix)
        for to, count in enumerate(row)
        if at != to and count
    ]
    if not wrong:
        return "Confusion matrix: nothing is taken for anything else."
    most = sorted(wrong, key=lambda triple: -triple[0])[:MOST_SAID]
    said = "; ".join(f"{label} taken for {answer} {count:,} times" for count, label, answer in most)
    return f"Confusion matrix: {said}."


def _describe_reliability(measures: Mapping[str, Any]) -> str:
    rows = [row for row in measures["reliability"] if row["count"]]
    said = "; ".join(
        f"{row['confidence']:.2f}: {format_percent(row['accuracy'], 0)} of {count_nouns(row['count'], 'case')}"
        for row in rows
    )
    return f"How often answers are right, by their score. {said}."
