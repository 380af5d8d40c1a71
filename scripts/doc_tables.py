"""Writes the measured tables into the docs: python scripts/doc_tables.py, with --plots the pictures too.

docs/performance.md from results/routing.csv, results/matrix_capsnet.csv, results/convolution.csv,
results/convolution_sweep.csv, results/step.csv and results/step_parts.csv, docs/models.md from results/viewpoints.csv,
docs/text.md from results/text.csv, docs/explorer.md from results/pretrained.csv, results/iterations.csv and
results/explorer.csv, docs/training.md and a line of the README from results/training.csv, results/busy.csv and
results/imbalance.csv,
docs/pytorch.md from results/pytorch.csv, docs/experiments.md from results/reproduce/. The tests compare them.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from pathlib import Path

from torchcaps import list_models
from torchcaps.experiments import get_experiment, list_experiments
from torchcaps.experiments.tables import markdown

ROOT = Path(__file__).parent.parent


def rows(name: str) -> list[dict[str, str]]:
    """A results table."""
    with (ROOT / "results" / name).open() as file:
        return list(csv.DictReader(file))


def put(path: str, name: str, text: str) -> None:
    """Replace what stands between the marks <!-- name --> and <!-- /name -->."""
    file = ROOT / path
    marks = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
    content = file.read_text(encoding="utf-8")
    if not marks.search(content):
        raise SystemExit(f"{path} has no marks for {name}")
    file.write_text(marks.sub(lambda found: found[1] + text + found[2], content), encoding="utf-8")


def bars(name: str) -> str:
    """A table of what was measured against which bar."""
    lines = ["| | bar | measured |", "| --- | --- | --- |"]
    for row in rows(name):
        bar = f"{row['bar']} {row['unit']}".rstrip() if row["bar"] else ""
        measured = f"{float(row['measured']):.3g} {row['unit']}".rstrip()
        lines.append(f"| {row['what']} | {bar} | {measured} |")
    return "\n".join(lines)


def step() -> str:
    """The whole step and inference of every network."""
    lines = ["| model | | batch | bar | measured |", "| --- | --- | --- | --- | --- |"]
    for row in rows("step.csv"):
        bar = f"{row['bar']} {row['unit']}" if row["bar"] else ""
        cells = (f"`{row['model']}`", row["what"], row["batch"], bar, f"{float(row['measured']):.3g} {row['unit']}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def step_parts() -> str:
    """Where the time of a step goes."""
    lines = ["| part | torch's convolutions, ms | ours, ms |", "| --- | --- | --- |"]
    found = rows("step_parts.csv")
    lines += [f"| {row['part']} | {row['before_ms']} | {row['after_ms']} |" for row in found]
    total = [sum(float(row[key]) for row in found) for key in ("before_ms", "after_ms")]
    return "\n".join([*lines, f"| together | {total[0]:.0f} | {total[1]:.0f} |"])


def sweep() -> str:
    """What was chosen for random sizes, and whether rightly."""
    found = rows("convolution_sweep.csv")
    ours = [row for row in found if any(row[name] != "torch" for name in ("forward", "images", "weight"))]
    columns = {"forward": "forward_ratio", "training": "training_ratio"}
    lines = ["| | sizes | least ratio | below 0.95 | median |", "| --- | --- | --- | --- | --- |"]
    for name, some in (("a pass by ours", ours), ("all by torch", [row for row in found if row not in ours])):
        for what, column in columns.items():
            ratios = [float(row[column]) for row in some]
            slow = sum(ratio < 0.95 for ratio in ratios)
            cells = (f"{name}, {what}", len(some), f"{min(ratios):.2f}", slow, f"{statistics.median(ratios):.2f}")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    worst = max(float(row["worst_error_ratio"]) for row in found)
    return "\n".join([*lines, "", f"The largest error against float64 is {worst:.2f} times torch's."])


def soak() -> str:
    """Long runs: how many cases, how many failed."""
    lines = ["| what | cases | failed | | command |", "| --- | --- | --- | --- | --- |"]
    for row in rows("soak.csv"):
        lines.append(
            f"| {row['what']} | {int(row['cases']):,} | {row['failures']} | {row['detail']} | `{row['command']}` |"
        )
    return "\n".join(lines)


def busy() -> str:
    """What another program costs a training."""
    lines = ["| | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {row['what']} | {float(row['measured']):.2f}× |" for row in rows("busy.csv"))])


def imbalance() -> str:
    """A rare digit among common ones: how much of it is found, by what is done about it."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows("imbalance.csv"):
        found.setdefault(tuple(row[key] for key in ("classes", "common", "rare", "epochs", "remedy")), []).append(row)
    lines = [
        "| digits | images of each, of the 8 | epochs | remedy | seeds | recall of the 8, % | precision, % "
        "| accuracy, % | balanced accuracy, % | told |",
        "| --- |" + " --- |" * 9,
    ]
    columns = ("recall_of_rare", "precision_of_rare", "accuracy", "balanced_accuracy")
    for (classes, common, rare, epochs, remedy), runs in found.items():
        numbers = [spread([float(row[f"{column}_percent"]) for row in runs]) for column in columns]
        told = [when for when in ("before", "after") if all(row[f"told_{when}"] == "True" for row in runs)]
        cells = (classes, f"{int(common):,}, {rare}", epochs, remedy, str(len(runs)), *numbers, ", ".join(told))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Mean ± standard deviation."""
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def viewpoints() -> str:
    """Errors on familiar and novel views, mean and deviation over seeds."""
    keys = ("matched_familiar", "matched_novel", "familiar", "novel")
    lines = [
        "| views | model | seeds | matched: familiar, % | matched: novel, % | last: familiar, % | last: novel, % "
        "| training, s |",
        "| --- |" + " --- |" * 7,
    ]
    found = rows("viewpoints.csv")
    for protocol, model in dict.fromkeys((row["protocol"], row["model"]) for row in found):
        own = [row for row in found if (row["protocol"], row["model"]) == (protocol, model)]
        cells = [spread([float(row[f"{key}_error_percent"]) for row in own]) for key in keys]
        times = sorted(int(row["training_seconds"]) for row in own)
        lines.append(f"| {protocol} | `{model}` | {len(own)} | {' | '.join(cells)} | {times[0]}–{times[-1]} |")
    return "\n".join(lines)


def by_angle() -> str:
    """Errors by how far an azimuth is from the nearest one of the training views."""
    found = [row for row in rows("viewpoints_by_angle.csv") if row["protocol"] == "azimuth"]
    known = {int(row["degrees"]) for row in found if row["familiar"] == "True"}
    models = list(dict.fromkeys(row["model"] for row in found))
    errors: dict[int, dict[str, list[float]]] = {}
    for row in found:
        away = min(min((int(row["degrees"]) - k) % 360, (k - int(row["degrees"])) % 360) for k in known)
        errors.setdefault(away, {}).setdefault(row["model"], []).append(float(row["error_percent"]))
    lines = ["| from the nearest familiar azimuth | " + " | ".join(f"`{m}`, %" for m in models) + " |"]
    lines.append("| --- |" + " --- |" * len(models))
    for away, of in sorted(errors.items()):
        lines.append(f"| {away}° | " + " | ".join(f"{statistics.mean(of[m]):.1f}" for m in models) + " |")
    return "\n".join(lines)


TEXT_SETS = ("mr", "subj", "cr", "trec", "sst2")
TEXT_MODELS = ("text-capsnet-b", "text-capsnet-a", "text-cnn", "text-cnn static", "text-lstm", "text-bilstm")


def text_cell(experiment: str, data: str, model: str, variant: str = "", key: str = "accuracy") -> str:
    """Mean ± deviation of the runs of one kind."""
    wanted = {"experiment": experiment, "data": data, "model": model, "variant": variant}
    found = [row for row in rows("text.csv") if all(row[name] == value for name, value in wanted.items())]
    return spread([float(row[f"{key}_percent"]) for row in found]) if len(found) > 1 else "–"


def text_comparison() -> str:
    """Test accuracy of every model on every set."""
    lines = ["| | " + " | ".join(TEXT_SETS) + " |", "| --- |" + " --- |" * len(TEXT_SETS)]
    for model in TEXT_MODELS:
        cells = [text_cell("comparison", data, model) for data in TEXT_SETS]
        lines.append(f"| `{model.split()[0]}`{' static' * model.endswith('static')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text_reuters() -> str:
    """Several labels."""
    keys = ("exact_match", "precision", "recall", "f1")
    lines = ["| | exact match, % | precision, % | recall, % | F1, % |", "| --- |" + " --- |" * 4]
    for model, variant in (
        ("text-capsnet-b", ""),
        ("text-capsnet-a", ""),
        ("text-cnn", ""),
        ("text-cnn", "margin loss"),
    ):
        cells = [text_cell("reuters", "reuters8", model, variant, key) for key in keys]
        lines.append(f"| `{model}`{', ' * bool(variant)}{variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text_ablation() -> str:
    """The stabilisers, with the runs of the comparison as those with all that are on by default."""
    variants = [row["variant"] for row in rows("text.csv") if row["experiment"] == "ablation"]
    lines = ["| | trec, % | mr, % |", "| --- | --- | --- |"]
    cells = [text_cell("comparison", data, "text-capsnet-a") for data in ("trec", "mr")]
    lines.append("| noise class, leaky softmax, coefficient amendment | " + " | ".join(cells) + " |")
    for variant in dict.fromkeys(variants):
        cells = [text_cell("ablation", data, "text-capsnet-a", variant) for data in ("trec", "mr")]
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text_time() -> str:
    """An epoch of Capsule-A on TREC, measured with nothing beside it."""
    (row,) = [row for row in rows("text.csv") if row["experiment"] == "time"]
    seconds = float(row["training_seconds"])
    what = "One epoch of `text-capsnet-a` on TREC (nine tenths of its questions, batches of 50)"
    return f"{what} takes {seconds:.1f} s on two cores."


def pretrained() -> str:
    """The shipped models."""
    lines = [
        "| | model | parameters | MB | error on the official test images, % | epochs | minutes of one core |",
        "| --- |" + " --- |" * 6,
    ]
    for row in rows("pretrained.csv"):
        model = f"`{row['name']}` | `{row['model']}` | {int(row['parameters']):,} | {int(row['bytes']) / 1e6:.2f}"
        minutes = f"{float(row['training_minutes']):.0f}"
        lines.append(f"| {model} | {row['test_error_percent']} | {row['epochs']} | {minutes} |")
    return "\n".join([*lines, "", "For two digits an answer counts only if both are right."])


def iterations() -> str:
    """The shipped models with other numbers of iterations."""
    head = "| | iterations | error, % | other answers, % | entropy | length, present classes | length, absent classes |"
    lines = [head, "| --- |" + " --- |" * 6]
    for row in rows("iterations.csv"):
        trained = ", as trained" * (row["iterations"] == row["trained"])
        keys = ("error_percent", "other_answers_percent", "entropy", "present", "absent")
        cells = " | ".join(row[key] for key in keys)
        lines.append(f"| `{row['model']}` | {row['iterations']}{trained} | {cells} |")
    return "\n".join(lines)


def pretrained_line() -> str:
    """The shipped models in a sentence."""
    names = {"mnist": "digits", "fashion-mnist": "clothes", "multi-mnist": "two digits over each other (both right)"}
    errors = {row["name"]: row["test_error_percent"] for row in rows("pretrained.csv")}
    found = ", ".join(f"{errors[name]} % on {what}" for name, what in names.items())
    return f"The networks that come with it have a test error of {found}."


def transforms() -> str:
    """What torch's transforms do on layers and models: a column per kind, exceptions below."""
    found = rows("pytorch.csv")
    texts = set(list_models("words"))
    kinds: dict[str, list[str]] = {}
    for name in dict.fromkeys(row["subject"] for row in found):
        kind = f"`{name.split('-')[0]}`" if name[0].isupper() else f"models for {'text' if name in texts else 'images'}"
        kinds.setdefault(kind, []).append(name)
    notes: dict[str, int] = {}
    lines = ["| | " + " | ".join(f"{kind}, {len(names)}" for kind, names in kinds.items()) + " |"]
    lines.append("| --- |" + " --- |" * len(kinds))
    for transform in dict.fromkeys(row["transform"] for row in found):
        of = {row["subject"]: row for row in found if row["transform"] == transform}
        cells = [transform_cell([of[name] for name in names if name in of], notes) for names in kinds.values()]
        lines.append(f"| {transform} | " + " | ".join(cells) + " |")
    counts = [f"{sum(row['outcome'] == outcome for row in found)} {outcome}" for outcome in OUTCOMES]
    total = f"{len(found)} cells: {', '.join(counts)}. torch {', '.join(sorted({row['torch'] for row in found}))}."
    return "\n".join([*lines, "", total, "", *(f"{number}. {note}" for note, number in notes.items())])


OUTCOMES = ("passes", "refuses", "fails", "wrong value")


def transform_cell(found: list[dict[str, str]], notes: dict[str, int]) -> str:
    """✓ if all pass; the others, by what became of them, are notes with a number."""
    others: dict[str, list[str]] = {}
    for row in found:
        if row["outcome"] != "passes":
            says = f"“{row['sentence']}”" if row["outcome"] == "refuses" else f"**{row['outcome']}**"
            others.setdefault(says, []).append(f"`{row['subject']}`")
    numbers = [notes.setdefault(f"{', '.join(names)}: {says}", len(notes) + 1) for says, names in others.items()]
    some = sum(map(len, others.values())) < len(found)
    return " ".join(["✓"] * some + [f"({number})" for number in numbers])


def experiments(plots: bool) -> None:
    """The tables of `torchcaps reproduce`, and their pictures."""
    for name in list_experiments():
        found = rows(f"reproduce/{name}.csv")
        put("docs/experiments.md", name, markdown(get_experiment(name), found).strip())
        if plots and name != "clustering":  # which is shown as a film
            from torchcaps.experiments.plots import plot

            folder = ROOT / "docs" / "images" / "reproduce"
            folder.mkdir(exist_ok=True)
            plot(get_experiment(name), found, folder / f"{name}.png")


def main() -> None:
    """Write all of them."""
    experiments("--plots" in sys.argv)
    put("README.md", "pretrained", pretrained_line())
    put("docs/explorer.md", "pretrained", pretrained())
    put("docs/explorer.md", "iterations", iterations())
    put("docs/explorer.md", "explorer", bars("explorer.csv"))
    put("docs/training.md", "busy", busy())
    put("docs/training.md", "imbalance", imbalance())
    put("docs/reliability.md", "soak", soak())
    put("docs/pytorch.md", "matrix", transforms())
    put("docs/text.md", "text-time", text_time())
    put("docs/text.md", "text", text_comparison())
    put("docs/text.md", "text-reuters", text_reuters())
    put("docs/text.md", "text-ablation", text_ablation())
    put("docs/performance.md", "routing", bars("routing.csv"))
    put("docs/performance.md", "matrix_capsnet", bars("matrix_capsnet.csv"))
    put("docs/performance.md", "convolution", bars("convolution.csv"))
    put("docs/performance.md", "sweep", sweep())
    put("docs/performance.md", "step", step())
    put("docs/performance.md", "step_parts", step_parts())
    put("docs/models.md", "viewpoints", viewpoints())
    put("docs/models.md", "by_angle", by_angle())

    keys = ("test_accuracy_percent", "images_per_second", "training_seconds", "peak_memory_gb")
    lines = [
        "| recipe | model | seed | epochs | test accuracy, % | images/s | seconds | peak GB |",
        "| --- |" + " --- |" * 7,
    ]
    for row in rows("training.csv"):
        lines.append(
            f"| `{row['recipe']}` | `{row['model']}` | {row['seed']} | {row['epochs']} | "
            + " | ".join(row[key] for key in keys)
            + " |"
        )
    quick = [row for row in rows("training.csv") if row["recipe"] == "quickstart"]
    accuracy = [float(row["test_accuracy_percent"]) for row in quick]
    seconds = [float(row["training_seconds"]) for row in quick]
    summary = f"{statistics.mean(accuracy):.2f} ± {statistics.stdev(accuracy):.2f} %"
    text = f"`quickstart`: {summary} (mean ± sd over {len(quick)} seeds) of the 1,000 test digits."
    put("docs/training.md", "training", "\n".join(lines) + f"\n\n{text}")
    span = f"{min(seconds):.0f} to {max(seconds):.0f} s"
    put(
        "README.md",
        "quickstart",
        f"The quickstart reaches {summary} on its test digits after {span} of training on two cores (three seeds).",
    )


if __name__ == "__main__":
    main()
