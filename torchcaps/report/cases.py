"""Right and wrong answers: the images, what is drawn from the capsules, and two digits told apart by colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.answers import ImageAnswers
from torchcaps.analysis.reconstruction import compare_errors, draw_classes, list_drawn, measure_drawing
from torchcaps.report.formats import count_nouns, format_number
from torchcaps.report.given import NONE, GivenImages, case_numbers, describe_answer
from torchcaps.report.pictures import (
    BLUE,
    ORANGE,
    Picture,
    choose_scale,
    make_sheet,
    mix_two_colours,
    show_channels,
)
from torchcaps.report.rendering import Section, Swatch


class CasePanel(NamedTuple):
    """One of the images that are seen beside each other.

    Attributes:
        names: what stands below it; two names are in two colours.
        image: ``[C, H, W]``.
    """

    names: tuple[str, ...]
    image: Tensor

    @property
    def said(self) -> str:
        """The names as text."""
        return " + ".join(self.names)


Panels = Callable[[int], list[CasePanel]]


def show_cases(given: GivenImages) -> Section:
    """Right and wrong cases, in the way that the model allows."""
    if given.decoder is None:
        return _show_predictions(given)
    return _show_reconstructions(given) if given.answers.objects == 1 else _show_two_objects(given)


def _show_predictions(given: GivenImages) -> Section:
    def panels(index: int) -> list[CasePanel]:
        return [CasePanel((), given.answers.pictures[index])]

    capsules = given.answers.capsules is not None
    content = {"why": "decoder" if capsules else "capsules"}
    score = "activation" if capsules else "probability"
    return _make_section(given, "predictions", "Predictions", score, panels, content)


def _show_reconstructions(given: GivenImages) -> Section:
    answers, decoder = given.answers, given.decoder
    assert decoder is not None  # as was asked before
    predicted, label = list_drawn(answers)
    errors = measure_drawing(decoder, answers)
    assert errors.as_predicted is not None  # of one object it is there

    def panels(index: int) -> list[CasePanel]:
        classes = [predicted[index]] if answers.right[index] else [predicted[index], label[index]]
        drawn = draw_classes(decoder, answers.capsules, torch.tensor([index] * len(classes)), torch.stack(classes))
        decoded = [
            CasePanel((f"r = {_name_drawn(given, some)}",), image) for some, image in zip(classes, drawn, strict=True)
        ]
        return [CasePanel(("input",), answers.pictures[index]), *decoded]

    numbers: dict[str, Any] = {"error_per_pixel": float(errors.as_predicted.mean())}
    if errors.mean_image is not None:
        numbers["error_of_mean_image"] = errors.mean_image
    if not answers.right.all():
        wrong = {"as_predicted": errors.as_predicted, "as_labelled": errors.as_labelled}
        numbers["error_per_pixel_of_wrong_cases"] = {
            name: float(error[~answers.right].mean()) for name, error in wrong.items()
        }
    content = {"summary": _describe_errors(answers.right, numbers), "together": answers.multi_label}
    return _make_section(given, "reconstructions", "Reconstructions", "activation", panels, content, numbers)


def _name_drawn(given: GivenImages, classes: Tensor) -> str:
    """The class that is drawn, or all that are flagged."""
    names = given.answers.class_names
    if classes.dim() == 0:
        return names[int(classes)]
    return " + ".join(names[k] for k in classes.nonzero()[:, 0].tolist()) or NONE


def _describe_errors(right: Tensor, numbers: Mapping[str, Any]) -> str:
    said = (
        "Decoded from the predicted class, the squared error per pixel is "
        f"{format_number(numbers['error_per_pixel'], 4)} on average over {count_nouns(len(right), 'image')}"
    )
    if "error_of_mean_image" in numbers:
        said += _compare(numbers["error_per_pixel"], numbers["error_of_mean_image"], "images")
    wrong = numbers.get("error_per_pixel_of_wrong_cases")
    if wrong is None:
        return f"{said}."
    count = int((~right).sum())
    cases = "the only wrong case" if count == 1 else f"the {count:,} wrong cases"
    return (
        f"{said}. In {cases} it is {format_number(wrong['as_predicted'], 4)} decoded as predicted and "
        f"{format_number(wrong['as_labelled'], 4)} decoded as labelled."
    )


def _compare(error: float, other: float, kind: str) -> str:
    """The end of a sentence on an error: that of a mean image, and what the two say about each other."""
    return (
        f"; the mean of all other {kind} would have {format_number(other, 4)}, so it is {compare_errors(error, other)}"
    )


def _show_two_objects(given: GivenImages) -> Section:
    answers, decoder = given.answers, given.decoder
    assert decoder is not None  # as was asked before
    names = answers.class_names
    errors = measure_drawing(decoder, answers)
    numbers = {"error_per_pixel_of_each_object": (error := float(errors.as_labelled.mean()))}
    compared = ""
    if errors.mean_image is not None:
        numbers["error_of_mean_image"] = errors.mean_image
        compared = _compare(error, errors.mean_image, "objects")

    def panels(index: int) -> list[CasePanel]:
        shown, labels = answers.pictures[index], answers.labels[index]
        predicted = answers.predictions[index]
        parts = [CasePanel(("input",), shown)]
        for classes in [predicted] if answers.right[index] else [predicted, labels]:
            drawn = draw_classes(decoder, answers.capsules, torch.tensor([index, index]), classes)
            pair = tuple(names[k] for k in classes.tolist())
            parts.append(CasePanel(pair, mix_two_colours(drawn[0], drawn[1], shown)))
        truth = answers.batch.targets[index]
        return [*parts, CasePanel(("true digits",), mix_two_colours(truth[0], truth[1]))]

    orange, blue = (f"rgb({', '.join(str(round(255 * part)) for part in colour)})" for colour in (ORANGE, BLUE))
    content = {
        "swatches": [Swatch(orange, "first"), Swatch(blue, "second")],
        "summary": "Decoded as labelled, each object differs from the true one by a squared error of "
        f"{format_number(error, 4)} per pixel on average over {count_nouns(len(answers.right), 'image')}{compared}.",
    }
    title = "Two objects told apart"
    return _make_section(given, "segmentation", title, "activations", panels, content, numbers)


def _make_section(
    given: GivenImages,
    name: str,
    title: str,
    score: str,
    panels: Panels,
    content: Mapping[str, Any],
    numbers: Mapping[str, Any] | None = None,
) -> Section:
    answers, groups, pictures = given.answers, [], []
    listed: dict[str, list[dict[str, Any]]] = {}
    for kind, cases, mask in zip(("right", "wrong"), given.cases(), (answers.right, ~answers.right), strict=True):
        shown = []
        for number, index in enumerate(cases):
            case = _show_case(given, f"{name}-{kind}-{number + 1:02d}", index, panels(index), score)
            shown.append(case)
            pictures.append(case["picture"])
        of_all = count_nouns(len(mask), "image")
        groups.append({"kind": kind, "cases": shown, "count": int(mask.sum()), "of_all": of_all})
        listed[kind] = [case_numbers(answers, index) for index in cases]
    whole = {**content, "name": name, "groups": groups, "bars": describe_bars(answers)}
    known = {**(numbers or {}), "images_with_bars": answers.ground.barred, "cases": listed}
    return Section(name, title, "cases.html", whole, pictures, known)


def describe_bars(answers: ImageAnswers) -> str:
    """How many images were brought to their shape by black bars; empty if none was."""
    barred, count = answers.ground.barred, len(answers.right)
    if not barred:
        return ""
    which = f"{barred:,} of the {count:,} images have" if barred < count else f"All {count:,} images have"
    return (
        f"{'The only image has' if count == 1 else which} black bars on two opposite sides, which brought the picture "
        "to the shape that the model sees. The model sees them, too, but they count in no error: only the picture "
        "between them does."
    )


def _show_case(given: GivenImages, name: str, index: int, panels: Sequence[CasePanel], score: str) -> dict[str, Any]:
    labels, predictions, scores = describe_answer(given.answers, index)
    images = [show_channels(panel.image) for panel in panels]
    channels = max(len(image) for image in images)
    row = torch.stack([image.expand(channels, -1, -1) for image in images])
    seen = ", ".join(panel.said for panel in panels if panel.said)
    alt = f"Test image with label {labels}, prediction {predictions} ({score} {scores})."
    picture: Picture = make_sheet(name, [row], f"{alt} From left: {seen}." if seen else alt, gap=4)
    below = [panel.names for panel in panels if panel.names]
    answer = {"labels": labels, "predictions": predictions, "scores": scores}
    return {"picture": picture, "scale": choose_scale(row), "below": below, **answer}
