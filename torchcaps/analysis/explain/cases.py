"""Right and wrong answers: the images, what is drawn from the capsules, and two digits told apart by colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis import pages
from torchcaps.analysis.explain.subject import Subject
from torchcaps.analysis.pages import Section, text
from torchcaps.analysis.pictures import BLUE, ORANGE, Picture, as_colours, enlargement, sheet, two_colours

RIGHT, WRONG = 10, 8
"""So many cases are shown."""
HARDLY_BETTER = 0.8
"""Of the mean image's error: a decoder with more has not learned to draw."""


class Panel(NamedTuple):
    """One of the images that are seen beside each other.

    Attributes:
        said: what stands below it, plain text.
        image: ``[C, H, W]``.
        html: the same words with colours, if they have some.
    """

    said: str
    image: Tensor
    html: str = ""

    @property
    def below(self) -> str:
        """The words as HTML."""
        return self.html or text(self.said)


def section_of_cases(subject: Subject) -> Section:
    """Right and wrong cases, in the way that the model allows."""
    if subject.decoder is None:
        return _predictions(subject)
    return _reconstructions(subject) if subject.objects == 1 else _segmentation(subject)


def shown_cases(subject: Subject) -> tuple[list[int], list[int]]:
    """Which images are shown, right ones of different classes and the first wrong ones: nothing is picked by looks."""
    wrong = (~subject.right).nonzero()[:WRONG, 0].tolist()
    return subject.spread_over_classes(RIGHT, subject.right).tolist(), wrong


def _predictions(subject: Subject) -> Section:
    why = (
        "This model has no capsules: it gives one number per class and no pose, so there is nothing to decode, to "
        "perturb or to route, and the other sections, which need capsules, are left out."
        if subject.capsules is None
        else "This model has no decoder, so nothing can be drawn from its capsules: reconstructions and the meaning of "
        "single pose numbers are left out."
    )
    score = "probability" if subject.capsules is None else "activation"

    def panels(index: int) -> list[Panel]:
        return [Panel("", subject.pictures[index])]

    return _section(subject, "predictions", "Predictions", pages.paragraph(why), score, panels)


def _reconstructions(subject: Subject) -> Section:
    names = subject.spec.class_names
    label, found = subject.labels[:, 0], subject.predictions[:, 0]
    every = torch.arange(len(label))
    errors = {
        "as_predicted": _error(subject.drawn(every, found), subject.batch.targets),
        "as_labelled": _error(subject.drawn(every, label), subject.batch.targets),
    }

    def panels(index: int) -> list[Panel]:
        classes = [found[index]] if subject.right[index] else [found[index], label[index]]
        drawn = subject.drawn(torch.tensor([index] * len(classes)), torch.stack(classes))
        decoded = [Panel(f"r = {names[int(c)]}", image) for c, image in zip(classes, drawn, strict=True)]
        return [Panel("input", subject.pictures[index]), *decoded]

    numbers: dict[str, Any] = {"error_per_pixel": float(errors["as_predicted"].mean())}
    numbers |= _baseline(subject.batch.targets)
    if not subject.right.all():
        wrong = {name: float(error[~subject.right].mean()) for name, error in errors.items()}
        numbers["error_per_pixel_of_wrong_cases"] = wrong
    intro = pages.paragraph(
        "Each image beside what the decoder draws from a single class capsule, all others set to zero: l is the label, "
        "p the prediction and r the class that is decoded. The number is the activation of the predicted class's "
        "capsule. (After figure 3 of Sabour et al. 2017.)"
    )
    intro += pages.paragraph(_errors_in_words(subject, numbers), "says") + pages.paragraph(
        "Each wrong case is decoded both as predicted and as labelled."
    )
    return _section(subject, "reconstructions", "Reconstructions", intro, "activation", panels, numbers)


def _errors_in_words(subject: Subject, numbers: Mapping[str, Any]) -> str:
    said = (
        "Decoded from the predicted class, the squared error per pixel is "
        f"{pages.number(numbers['error_per_pixel'], 4)} on average over {pages.counted(len(subject.right), 'image')}"
    )
    if "error_of_mean_image" in numbers:
        said += f"; the mean of all other images would have {pages.number(numbers['error_of_mean_image'], 4)}"
    wrong = numbers.get("error_per_pixel_of_wrong_cases")
    if wrong is None:
        return f"{said}."
    count = int((~subject.right).sum())
    cases = "the only wrong case" if count == 1 else f"the {count:,} wrong cases"
    return (
        f"{said}. In {cases} it is {pages.number(wrong['as_predicted'], 4)} decoded as predicted and "
        f"{pages.number(wrong['as_labelled'], 4)} decoded as labelled."
    )


def _segmentation(subject: Subject) -> Section:
    names = subject.spec.class_names
    found = _matched(subject.predictions, subject.labels)
    every = torch.arange(len(found))
    as_labelled = torch.stack([subject.drawn(every, subject.labels[:, n]) for n in range(2)], dim=1)
    numbers = {"error_per_pixel_of_each_object": float(_error(as_labelled, subject.batch.targets).mean())}
    numbers |= _baseline(subject.batch.targets.flatten(0, 1))

    def panels(index: int) -> list[Panel]:
        shown = subject.pictures[index]
        kinds = [found[index]] if subject.right[index] else [found[index], subject.labels[index]]
        parts = [Panel("input", shown)]
        for classes in kinds:
            drawn = subject.drawn(torch.tensor([index, index]), classes)
            pair = [names[k] for k in classes.tolist()]
            parts.append(Panel(" + ".join(pair), two_colours(drawn[0], drawn[1], shown), _in_two_colours(pair)))
        truth = subject.batch.targets[index]
        return [*parts, Panel("true digits", two_colours(truth[0], truth[1]))]

    orange, blue = (f"rgb({', '.join(str(round(255 * part)) for part in colour)})" for colour in (ORANGE, BLUE))
    intro = pages.paragraph(
        "Two objects lie over each other. Each is drawn from its own class capsule, with all others set to zero, one "
        f'in <span style="color:var(--orange)">orange</span> and one in <span style="color:var(--blue)">blue</span>, '
        f"over the dimmed input; what both claim is nearly white. {pages.swatch(orange, 'first')}"
        f"{pages.swatch(blue, 'second')}"
    )
    error, other = (pages.number(value, 4) for value in numbers.values())
    said = (
        f"Decoded as labelled, each object differs from the true one by a squared error of {error} per pixel on "
        f"average over {pages.counted(len(found), 'image')}; the mean of all other objects would have {other}."
    )
    intro += pages.paragraph(said, "says")
    intro += pages.paragraph("Wrong cases are decoded as predicted and as labelled.")
    return _section(subject, "segmentation", "Two objects told apart", intro, "activations", panels, numbers)


def _section(
    subject: Subject,
    name: str,
    title: str,
    intro: str,
    score: str,
    panels: Callable[[int], list[Panel]],
    numbers: dict[str, Any] | None = None,
) -> Section:
    right, wrong = shown_cases(subject)
    pictures: list[Picture] = []
    body = intro
    for kind, cases in (("right", right), ("wrong", wrong)):
        count = int((subject.right if kind == "right" else ~subject.right).sum())
        body += f"<h3>{kind.capitalize()} <small>{len(cases)} of {count:,}</small></h3>"
        if not cases:
            body += pages.paragraph(f"There is no {kind} case among {pages.counted(len(subject.right), 'image')}.")
            continue
        figures = ""
        for number, index in enumerate(cases):
            shown, picture = _case(subject, f"{name}-{kind}-{number + 1:02d}", index, panels(index), score)
            figures += shown
            pictures.append(picture)
        body += f'<div class="cases">{figures}</div>'
    listed = {kind: [case_numbers(subject, index) for index in cases] for kind, cases in
              (("right", right), ("wrong", wrong))}  # fmt: skip
    return Section(name, title, body, pictures, {**(numbers or {}), "cases": listed})


def _case(subject: Subject, name: str, index: int, panels: Sequence[Panel], score: str) -> tuple[str, Picture]:
    labels, found, scores = answer_in_words(subject, index)
    images = [as_colours(panel.image) for panel in panels]
    channels = max(len(image) for image in images)
    row = torch.stack([image.expand(channels, -1, -1) for image in images])
    seen = ", ".join(panel.said for panel in panels if panel.said)
    alt = f"Test image with label {labels}, prediction {found} ({score} {scores})."
    picture = sheet(name, [row], f"{alt} From left: {seen}." if seen else alt, gap=4)
    scale = enlargement(row)
    below = "".join(f"<span>{panel.below}</span>" for panel in panels if panel.said)
    below = f'<div class="panels">{below}</div>' if below else ""
    caption = f"l = <b>{text(labels)}</b>, p = <b>{text(found)}</b> · {scores}"
    shown = f'<div style="max-width:{picture.width * scale}px">{pages.image(picture, scale)}{below}</div>'
    return pages.figure(shown, caption), picture


def answer_in_words(subject: Subject, index: int) -> tuple[str, str, str]:
    """Labels, predictions in the labels' order, and their scores."""
    names = subject.spec.class_names
    found = _matched(subject.predictions[index : index + 1], subject.labels[index : index + 1])[0]
    scores = subject.scores[index, found]
    labels = " + ".join(names[k] for k in subject.labels[index].tolist())
    return labels, " + ".join(names[k] for k in found.tolist()), " + ".join(f"{s:.2f}" for s in scores.tolist())


def case_numbers(subject: Subject, index: int) -> dict[str, Any]:
    """A case for ``numbers.json``; ``image`` counts in the test set."""
    names = subject.spec.class_names
    found = _matched(subject.predictions[index : index + 1], subject.labels[index : index + 1])[0]
    return {
        "image": int(subject.indices[index]),
        "labels": [names[k] for k in subject.labels[index].tolist()],
        "predictions": [names[k] for k in found.tolist()],
        "scores": [float(score) for score in subject.scores[index, found]],
    }


def _matched(found: Tensor, labels: Tensor) -> Tensor:
    """The found classes in the order of the labels where they are among them, so that colours mean the same."""
    if labels.shape[1] != 2:
        return found
    swap = (found[:, 0] == labels[:, 1]) | (found[:, 1] == labels[:, 0])
    return torch.where(swap[:, None], found.flip(1), found)


def _in_two_colours(names: Sequence[str]) -> str:
    first, second = (text(name) for name in names)
    return f'<span style="color:var(--orange)">{first}</span> + <span style="color:var(--blue)">{second}</span>'


def drawn_no_better(subject: Subject) -> tuple[float, float] | None:
    """The errors per pixel of what is drawn as labelled and of the mean image, if the first is hardly smaller."""
    every, objects = torch.arange(len(subject.labels)), subject.objects
    drawn = torch.stack([subject.drawn(every, subject.labels[:, n]) for n in range(objects)], dim=1)
    targets = subject.batch.targets.view_as(drawn)
    error, mean = float(_error(drawn, targets).mean()), _baseline(targets.flatten(0, 1)).get("error_of_mean_image")
    return (error, mean) if mean is not None and error > HARDLY_BETTER * mean else None


def _baseline(targets: Tensor) -> dict[str, float]:
    """The error of each image's mean of all others, ``[N, C, H, W]``; nothing for a single one.

    The mean m of all is judged on an image x that is part of it: without x it would be (N m − x)/(N − 1), whose
    distance from x is N/(N − 1) times as large.
    """
    count = len(targets)
    if count < 2:
        return {}
    of_all = float(_error(targets.mean(dim=0, keepdim=True), targets).mean())
    return {"error_of_mean_image": of_all * (count / (count - 1)) ** 2}


def _error(drawn: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error per pixel, for each image."""
    return (drawn - targets).square().flatten(1).mean(dim=1)
