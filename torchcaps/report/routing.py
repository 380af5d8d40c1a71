"""How a model routes: the flow of parts to wholes on the image, couplings per iteration, and gradients per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchcaps.analysis.answers import spread_over_classes
from torchcaps.analysis.couplings import (
    DEAD,
    LayerRouting,
    class_layer,
    require_capsule_model,
    routing_by_layer,
    routing_flow,
)
from torchcaps.analysis.gradients import LayerGradient, gradient_norms
from torchcaps.analysis.iterations import OtherIterations, vary_iterations
from torchcaps.data.images import Batch
from torchcaps.report.charts import Curve, LineChart, draw_bars, draw_lines
from torchcaps.report.flow import FlowLayout, choose_colour, draw_flow, lay_out, list_drawn_parents
from torchcaps.report.formats import (
    count_nouns,
    format_number,
    format_percent,
    format_scientific,
    format_significant,
)
from torchcaps.report.given import GivenImages, case_numbers, describe_answer
from torchcaps.report.pictures import Picture, join_pictures
from torchcaps.report.rendering import Section, Swatch, Table, TableCell

MOST_IMAGES = 200
"""Couplings are measured on so many images, gradients on a batch of the recipe's size."""
SHOWN_ITERATIONS = (1, 2, 3, 5, 10, 20)


def show_routing(given: GivenImages) -> Section:
    """Flow pictures, then numbers per iteration and layer."""
    flows, swatches, pictures = _show_flows(given)
    chosen = spread_over_classes(given.answers, MOST_IMAGES)
    inputs, labels = given.answers.batch.inputs[chosen], given.answers.batch.labels[chosen]
    layers = routing_by_layer(given.model, inputs)
    # Uniform, random and frozen couplings are there at once, without iterations.
    iterates = hasattr(class_layer(require_capsule_model(given.model)).routing, "iterations")
    charts, chart_files = _show_charts(layers)
    other = vary_iterations(given.model, inputs, labels)
    gradients = _measure_gradients(given)
    content: dict[str, Any] = {
        "swatches": swatches,
        "flows": flows,
        "images": len(chosen),
        "counted_images": count_nouns(len(chosen), "image"),
        "counted_test_images": count_nouns(len(chosen), "test image"),
        "summary": _describe_couplings(layers[-1], iterates),
        "charts": charts,
        "iteration_table": _make_iteration_table(layers),
        "dead": f"{DEAD:g}",
        "dead_table": _make_dead_table(layers),
        "other": None if other is None else _show_other_iterations(other),
        "gradients": None if gradients is None else _show_gradients(given, gradients),
    }
    if content["gradients"] is not None:
        chart_files.append(content["gradients"]["file"])
    numbers: dict[str, Any] = {
        "flows": [flow["numbers"] for flow in flows],
        "images": len(chosen),
        "layers": [{**_list_layer(layer), "iterates": iterates} for layer in layers],
    }
    if gradients is not None:
        numbers["gradients"] = [dict(zip(LayerGradient._fields, layer, strict=True)) for layer in gradients]
    if other is not None:
        numbers["other_iterations"] = _list_iterations(other)
    return Section("routing", "Routing", "routing.html", content, [*pictures, *chart_files], numbers)


def _show_flows(given: GivenImages) -> tuple[list[dict[str, Any]], list[Swatch], list[Picture]]:
    """Two right cases and a wrong one if there is any, each iteration by iteration."""
    answers = given.answers
    right, wrong = given.cases()
    chosen = [*right[:2], *wrong[:1]] if wrong else right[:3]
    flows, layouts, pictures = [], list[FlowLayout](), []
    for place, index in enumerate(chosen or wrong[:1]):
        flow = routing_flow(given.model, answers.batch.inputs[index])
        layout = lay_out(flow, answers.pictures[index], answers.class_names)
        labels, predictions, _ = describe_answer(answers, index)
        kind = "right" if answers.right[index] else "wrong"
        alt = f"Flow from parts to wholes for an image of {labels}, answered {predictions} ({kind}), iteration by "
        panels, picture = draw_flow(f"routing-flow-{place + 1}", layout, f"{alt}iteration.")
        layouts.append(layout)
        pictures.append(picture)
        numbers = {
            **case_numbers(answers, index),
            "parts": math.prod(flow.child_activation.shape),
            "activation_by_iteration": flow.parent_activation.tolist(),
        }
        answer = {"labels": labels, "predictions": predictions, "kind": kind}
        flows.append({**answer, "panels": panels, "numbers": numbers})
    swatches = [Swatch(choose_colour(n), answers.class_names[n]) for n in list_drawn_parents(layouts)]
    return flows, [*swatches, Swatch(choose_colour(None), "undecided")], pictures


def _show_charts(layers: Sequence[LayerRouting]) -> tuple[list[Picture], list[Picture]]:
    """For the page, and as files; nothing for a routing without iterations."""
    shown: list[Picture] = []
    files: list[Picture] = []
    for layer in layers if len(layers[-1].entropy) > 1 else ():
        charts = [draw_lines(chart) for chart in _make_charts(layer)]
        shown += [chart.svg for chart in charts]
        name = f"routing-{layer.name.replace('_', '-').replace('.', '-')}"
        files.append(join_pictures(name, [c.png for c in charts], " ".join(c.png.alt for c in charts)))
    return shown, files


def _make_charts(layer: LayerRouting) -> list[LineChart]:
    steps = [float(n + 1) for n in range(len(layer.entropy))]
    share = (layer.entropy / max(layer.largest_entropy, 1e-12)).tolist()
    decided = [Curve("polarisation", layer.polarisation.tolist()), Curve("entropy / largest", share)]
    return [
        LineChart(f"{layer.name}: how decided", "iteration", steps, decided, 0.0, 1.0),
        LineChart(f"{layer.name}: agreement", "iteration", steps, [Curve("agreement", layer.agreement.tolist())]),
    ]


def _describe_couplings(last: LayerRouting, iterates: bool) -> str:
    entropy, polarisation = ([format_number(float(v)) for v in part] for part in (last.entropy, last.polarisation))
    largest = format_number(last.largest_entropy)
    if len(entropy) == 1:
        how = "has one iteration" if iterates else "decides without iterations"
        return (
            f"This routing {how}: in {last.name} the entropy is {entropy[-1]} of at most {largest} nats, polarisation "
            f"{polarisation[-1]}."
        )
    words = (
        f"In {last.name} the entropy goes from {entropy[0]} to {entropy[-1]} nats (the largest possible is {largest}) "
        f"and polarisation from {polarisation[0]} to {polarisation[-1]}."
    )
    if last.flips is not None and len(last.flips):
        words += f" The answer changes for {format_percent(float(last.flips[-1]))} of the images in the last iteration."
    return words


def _make_iteration_table(layers: Sequence[LayerRouting]) -> Table:
    rows: list[list[TableCell | str]] = []
    for layer in layers:
        for step in range(len(layer.entropy)):
            flips = "–" if layer.flips is None or not step else format_percent(float(layer.flips[step - 1]))
            values = (layer.entropy, layer.polarisation, layer.agreement)
            cells = [format_number(float(value[step])) for value in values]
            objective = format_significant(float(layer.objective[step]))
            rows.append([TableCell(layer.name, str(step + 1)), *cells, objective, flips])
    head: list[TableCell | str] = [
        TableCell("layer", "iteration"),
        "entropy",
        "polarisation",
        "agreement",
        "objective",
        "flips",
    ]
    return Table("Couplings of every layer, iteration by iteration", head, rows)


def _make_dead_table(layers: Sequence[LayerRouting]) -> Table:
    rows = []
    for layer in layers:
        pairs = [(int(dead.sum()), dead.numel()) for dead in (layer.dead_children, layer.dead_parents)]
        least, most = (format_number(float(value), 2) for value in (layer.received.min(), layer.received.max()))
        rows.append([layer.name, *(f"{dead:,} of {count:,}" for dead, count in pairs), f"{least} … {most}"])
    head = ["layer", "dead parts", "dead wholes", "received, least … most"]
    return Table("Dead capsules, and what wholes receive", head, rows)


def _show_other_iterations(other: OtherIterations) -> dict[str, Any]:
    """What the class layer would do with fewer and with more iterations."""
    shown = sorted({*SHOWN_ITERATIONS, other.trained})
    rows: list[list[TableCell | str]] = []
    for count in shown:
        at = count - 1
        shares = [format_percent(float(values[at])) for values in (other.accuracy, other.changed)]
        values = (other.entropy, other.polarisation, other.present, other.absent)
        note = "as trained" if count == other.trained else ""
        rows.append([TableCell(str(count), note), *shares, *(format_number(float(value[at])) for value in values)])
    trained, last = other.trained - 1, shown[-1] - 1
    summary = (
        f"After {shown[-1]} iterations in place of {other.trained} the entropy is "
        f"{format_number(float(other.entropy[last]))} in place of {format_number(float(other.entropy[trained]))} nats, "
        f"{format_percent(float(other.changed[last]))} of the answers are others, and the classes that are not in an "
        f"image have a mean activation of {format_number(float(other.absent[last]))} in place of "
        f"{format_number(float(other.absent[trained]))}."
    )
    head = ["iterations", "accuracy", "other answers", "entropy", "polarisation", "present classes", "absent classes"]
    return {"summary": summary, "table": Table("The class layer with other numbers of iterations", head, rows)}


def _list_iterations(other: OtherIterations) -> dict[str, Any]:
    numbers = {name: getattr(other, name).tolist() for name in OtherIterations._fields if name != "trained"}
    return {"trained": other.trained, **numbers}


def _measure_gradients(given: GivenImages) -> list[LayerGradient] | None:
    """Of one batch; None if it is not known by which loss the model was trained."""
    if given.facts.loss is None:
        return None
    chosen = spread_over_classes(given.answers, given.facts.batch_size)
    batch = Batch(*(part[chosen] for part in given.answers.batch))
    return gradient_norms(given.model, batch, given.facts.loss)


def _show_gradients(given: GivenImages, layers: Sequence[LayerGradient]) -> dict[str, Any]:
    count = min(given.facts.batch_size, len(given.answers.indices))
    bars = draw_bars(
        "length of the gradient, on a logarithmic scale",
        [layer.name for layer in layers],
        [layer.gradient for layer in layers],
        "routing-gradients",
    )
    rows = [
        [layer.name, format_scientific(layer.gradient), f"{layer.parameters:,}", format_scientific(layer.ratio)]
        for layer in layers
    ]
    table = Table("Gradients of every layer", ["layer", "gradient", "parameters", "ratio"], rows)
    return {"images": count_nouns(count, "test image"), "chart": bars.svg, "file": bars.png, "table": table}


def _list_layer(layer: LayerRouting) -> dict[str, Any]:
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
