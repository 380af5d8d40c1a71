"""How a model routes: the flow of parts to wholes on the image, couplings per iteration, and gradients per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchcaps.analysis import pages
from torchcaps.analysis.charts import Curve, LineChart, bar_png, line_legend, line_png, line_svg, log_share
from torchcaps.analysis.couplings import DEAD, LayerRouting, routing_by_layer, routing_flow
from torchcaps.analysis.explain.cases import answer_in_words, case_numbers, shown_cases
from torchcaps.analysis.explain.flow import Drawing, colour_of, drawn_wholes, flow_png, lay_out, panel_svgs
from torchcaps.analysis.explain.subject import Subject
from torchcaps.analysis.gradients import LayerGradient, gradient_norms
from torchcaps.analysis.iterations import Iterated, iterated
from torchcaps.analysis.pages import Section, text
from torchcaps.analysis.pictures import Picture
from torchcaps.losses import CapsuleLoss
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.matrix_capsnet import MatrixCapsNet

MOST_IMAGES = 200
"""Couplings are measured on so many images, gradients on a batch of the recipe's size."""
SHOWN_ITERATIONS = (1, 2, 3, 5, 10, 20)


def section_of_routing(subject: Subject) -> Section:
    """Flow pictures, then numbers per iteration and layer."""
    flows, pictures, flow_numbers = _flows(subject)
    chosen = subject.spread_over_classes(MOST_IMAGES)
    layers = routing_by_layer(subject.model, subject.batch.inputs[chosen])
    iterates = _iterates(subject)
    measured, charts = _couplings(layers, len(chosen), iterates)
    other = iterated(subject.model, subject.batch.inputs[chosen], subject.labels[chosen])
    if other is not None:
        measured += _iterations(other, len(chosen))
    gradients, bars, gradient_numbers = _gradients(subject)
    numbers = {
        "flows": flow_numbers,
        "images": len(chosen),
        "layers": [{**_layer_numbers(layer), "iterates": iterates} for layer in layers],
        "gradients": gradient_numbers,
        **({} if other is None else {"other_iterations": _iterations_numbers(other)}),
    }
    return Section("routing", "Routing", flows + measured + gradients, [*pictures, *charts, bars], numbers)


def _iterates(subject: Subject) -> bool:
    """Whether the routing has iterations: uniform, random and frozen couplings are there at once."""
    assert isinstance(subject.model, CapsNet | MatrixCapsNet)
    return hasattr(subject.model.class_capsules.routing, "iterations")


def _flows(subject: Subject) -> tuple[str, list[Picture], list[dict[str, Any]]]:
    right, wrong = shown_cases(subject)
    chosen = [*right[:2], *wrong[:1]] if wrong else right[:3]
    body, pictures, numbers = "", [], []
    drawings: list[Drawing] = []
    for place, index in enumerate(chosen or wrong[:1]):
        flow = routing_flow(subject.model, subject.batch.inputs[index])
        drawing = lay_out(flow, subject.pictures[index], subject.spec.class_names)
        drawings.append(drawing)
        labels, found, _ = answer_in_words(subject, index)
        kind = "right" if subject.right[index] else "wrong"
        alt = f"Flow from parts to wholes for an image of {labels}, answered {found} ({kind}), iteration by iteration."
        pictures.append(flow_png(f"routing-flow-{place + 1}", drawing, alt))
        caption = f"Label {text(labels)}, prediction {text(found)} <small>{kind}</small>"
        body += f'<h3>{caption}</h3><div class="flows">{"".join(panel_svgs(drawing))}</div>'
        numbers.append(
            {
                **case_numbers(subject, index),
                "parts": math.prod(flow.child_activation.shape),
                "activation_by_iteration": flow.parent_activation.tolist(),
            }
        )
    intro = pages.paragraph(
        "Every dot is a part, a capsule of the layer below the classes, at the middle of what it sees of the image; "
        "several types at a place form a small square. Its colour is the whole that it sends most to, grey while it "
        "sends equally much to all; its size is its activation times that coupling. The lines, of the most active "
        "parts, get stronger with activation times coupling. At the right are the wholes, by size and number as active "
        "as they are after the iteration."
    )
    names = subject.spec.class_names
    swatches = "".join(pages.swatch(colour_of(n), names[n]) for n in drawn_wholes(drawings))
    legend = pages.paragraph(swatches + pages.swatch(colour_of(None), "undecided"), "legend")
    return intro + legend + body, pictures, numbers


def _couplings(layers: Sequence[LayerRouting], images: int, iterates: bool) -> tuple[str, list[Picture]]:
    last = layers[-1]
    body = "<h3>Couplings per iteration</h3>" + pages.paragraph(
        f"Measured on {pages.counted(images, 'test image')}. The entropy of a part's couplings is largest when it "
        "sends equally much to every whole and 0 when it sends all to one; polarisation is 0 and 1 in these cases. "
        "Agreement is the mean cosine between a vote and the whole that it is for; a vote counts by its length times "
        "its coupling, and wholes that are not there count, too. A flip is an "
        "image whose predicted class changes from one iteration to the next. The objective is each algorithm's own "
        "(see docs/routing.md), so that its size cannot be compared between them. It is proven never to rise only for "
        "optimised routing and k-means routing, while their sharpness is constant; with dynamic and EM routing it can "
        "rise, and uniform, random and frozen couplings descend nothing."
    )
    body += pages.paragraph(_in_words(last, iterates), "says")
    pictures = []
    if len(last.entropy) > 1:
        figures = ""
        for layer in layers:
            charts = _charts(layer)
            pictures.append(line_png(f"routing-{layer.name.replace('_', '-').replace('.', '-')}", charts))
            figures += "".join(pages.figure(line_svg(chart), line_legend(chart)) for chart in charts)
        body += f'<div class="charts">{figures}</div>'
    return body + _iteration_table(layers) + _dead_table(layers), pictures


def _charts(layer: LayerRouting) -> list[LineChart]:
    steps = [float(n + 1) for n in range(len(layer.entropy))]
    share = (layer.entropy / max(layer.largest_entropy, 1e-12)).tolist()
    decided = [Curve("polarisation", layer.polarisation.tolist()), Curve("entropy / largest", share)]
    return [
        LineChart(f"{layer.name}: how decided", "iteration", steps, decided, 0.0, 1.0),
        LineChart(f"{layer.name}: agreement", "iteration", steps, [Curve("agreement", layer.agreement.tolist())]),
    ]


def _in_words(last: LayerRouting, iterates: bool) -> str:
    first, end = float(last.entropy[0]), float(last.entropy[-1])
    words = (
        f"In {text(last.name)} the entropy goes from {pages.number(first)} to {pages.number(end)} nats "
        f"(the largest possible is {pages.number(last.largest_entropy)}) and polarisation from "
        f"{pages.number(float(last.polarisation[0]))} to {pages.number(float(last.polarisation[-1]))}."
    )
    if len(last.entropy) == 1:
        how = "has one iteration" if iterates else "decides without iterations"
        words = (
            f"This routing {how}: in {text(last.name)} the entropy is {pages.number(end)} of at most "
            f"{pages.number(last.largest_entropy)} nats, polarisation {pages.number(float(last.polarisation[-1]))}."
        )
    if last.flips is not None and len(last.flips):
        words += f" The answer changes for {pages.percent(float(last.flips[-1]))} of the images in the last iteration."
    return words


def _iteration_table(layers: Sequence[LayerRouting]) -> str:
    rows = []
    for layer in layers:
        for step in range(len(layer.entropy)):
            flips = "–" if layer.flips is None or not step else pages.percent(float(layer.flips[step - 1]))
            values = (layer.entropy, layer.polarisation, layer.agreement)
            cells = [pages.number(float(value[step])) for value in values]
            cells.append(pages.significant(float(layer.objective[step])))
            rows.append([f"{text(layer.name)} <small>{step + 1}</small>", *cells, flips])
    head = ["layer <small>iteration</small>", "entropy", "polarisation", "agreement", "objective", "flips"]
    return pages.table(head, rows, "Couplings of every layer, iteration by iteration")


def _iterations(other: Iterated, images: int) -> str:
    """What the class layer would do with fewer and with more iterations."""
    shown = sorted({*SHOWN_ITERATIONS, other.trained})
    rows = []
    for count in shown:
        at = count - 1
        shares = [pages.percent(float(values[at])) for values in (other.accuracy, other.changed)]
        values = (other.entropy, other.polarisation, other.present, other.absent)
        cells = [pages.number(float(value[at])) for value in values]
        rows.append([f"{count}{' <small>as trained</small>' * (count == other.trained)}", *shares, *cells])
    trained, last = other.trained - 1, shown[-1] - 1
    words = (
        f"After {shown[-1]} iterations in place of {other.trained} the entropy is "
        f"{pages.number(float(other.entropy[last]))} in place of {pages.number(float(other.entropy[trained]))} nats, "
        f"{pages.percent(float(other.changed[last]))} of the answers are others, and the classes that are not in an "
        f"image have a mean activation of {pages.number(float(other.absent[last]))} in place of "
        f"{pages.number(float(other.absent[trained]))}."
    )
    head = ["iterations", "accuracy", "other answers", "entropy", "polarisation", "present classes", "absent classes"]
    return (
        "<h3>If routing stopped earlier, or went on</h3>"
        + pages.paragraph(
            "The class layer with another number of iterations than it was trained with, on the same "
            f"{pages.counted(images, 'image')}; all weights stay as they are. Other answers are those that differ "
            "from the trained number's. The last two columns are mean activations."
        )
        + pages.paragraph(words, "says")
        + pages.table(head, rows, "The class layer with other numbers of iterations")
    )


def _iterations_numbers(other: Iterated) -> dict[str, Any]:
    numbers = {name: getattr(other, name).tolist() for name in Iterated._fields if name != "trained"}
    return {"trained": other.trained, **numbers}


def _dead_table(layers: Sequence[LayerRouting]) -> str:
    rows = []
    for layer in layers:
        pairs = [(int(dead.sum()), dead.numel()) for dead in (layer.dead_children, layer.dead_parents)]
        received = layer.received
        even = f"{pages.number(float(received.min()), 2)} … {pages.number(float(received.max()), 2)}"
        rows.append([text(layer.name), *(f"{dead:,} of {count:,}" for dead, count in pairs), even])
    words = pages.paragraph(
        f"A capsule is called dead if it is more active than {DEAD:g} in none of these images. What a whole receives "
        "is given relative to its even share: 1 is what it would get from uniform couplings."
    )
    head = ["layer", "dead parts", "dead wholes", "received, least … most"]
    return words + pages.table(head, rows, "Dead capsules, and what wholes receive")


def _gradients(subject: Subject) -> tuple[str, Picture, list[dict[str, Any]]]:
    recipe = subject.recipe
    loss = CapsuleLoss(recipe.loss.kind, reconstruction_scale=recipe.loss.reconstruction_scale)
    chosen = subject.spread_over_classes(recipe.training.batch_size)
    batch = type(subject.batch)(*(part[chosen] for part in subject.batch))
    layers = gradient_norms(subject.model, batch, loss)
    values = [layer.gradient for layer in layers]
    rows = [_gradient_row(layer, values) for layer in layers]
    body = "<h3>Gradients per layer</h3>" + pages.paragraph(
        "The length of the gradient of the training loss in each layer's parameters, for one batch of "
        f"{pages.counted(len(chosen), 'test image')}, on a logarithmic scale; nothing is trained by it. The ratio "
        "compares it with the length of the parameters. At the end of a training, small gradients are what one hopes "
        "for; what is worth a look is a layer that has none at all."
    )
    head = ["layer", "gradient", "on a logarithmic scale", "parameters", "ratio"]
    body += pages.table(head, rows, "Gradients of every layer")
    names = [layer.name for layer in layers]
    picture = bar_png("routing-gradients", "length of the gradient", names, values)
    numbers = [dict(zip(LayerGradient._fields, layer, strict=True)) for layer in layers]
    return body, picture, numbers


def _gradient_row(layer: LayerGradient, values: Sequence[float]) -> list[str]:
    share = log_share(layer.gradient, values)
    bar = f'<td class="bar"><i style="--s:{share:.1%}"></i></td>'
    ratio = "–" if math.isnan(layer.ratio) else _scientific(layer.ratio)
    return [text(layer.name), _scientific(layer.gradient), bar, f"{layer.parameters:,}", ratio]


def _scientific(value: float) -> str:
    return f"{value:.1e}".replace("-", "−")


def _layer_numbers(layer: LayerRouting) -> dict[str, Any]:
    return {
        "name": layer.name,
        "entropy": layer.entropy.tolist(),
        "largest_entropy": layer.largest_entropy,
        "polarisation": layer.polarisation.tolist(),
        "agreement": layer.agreement.tolist(),
        "objective": layer.objective.tolist(),
        "flips": None if layer.flips is None else layer.flips.tolist(),
        "dead_children": [int(layer.dead_children.sum()), layer.dead_children.numel()],
        "dead_parents": [int(layer.dead_parents.sum()), layer.dead_parents.numel()],
        "received": [float(layer.received.min()), float(layer.received.max())],
    }
