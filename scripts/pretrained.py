"""Make a shipped model of a run: weights with 16 bits, its card, test images, and its row in results/pretrained.csv.

    python scripts/pretrained.py NAME RUN "torchcaps train …" --data-dir DIR

What is measured on the official test images is what is shipped: the weights after rounding.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.randomness import Stream, sub_seed
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.io import write_atomically, write_text
from torchcaps.pretrained import CARD, NAMES, SAMPLES, WEIGHTS
from torchcaps.progress import bars
from torchcaps.run import load
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import load_weights, read_run_recipe

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "torchcaps" / "pretrained"
RESULTS = ROOT / "results" / "pretrained.csv"
PER_CLASS = 6

SOURCES = {
    "mnist": "MNIST (LeCun, Cortes and Burges), 60,000 training and 10,000 test images of handwritten digits.",
    "fashion-mnist": "Fashion-MNIST (Xiao, Rasul and Vollgraf 2017, MIT licence), 60,000 training and 10,000 test "
    "images of ten kinds of clothes.",
    "multi-mnist": "Pairs of MNIST digits of different classes, each shifted by up to 4 pixels, over each other on "
    "36×36 pixels (Sabour et al. 2017, §6); training pairs are made anew in every epoch, the 10,000 test pairs of the "
    "10,000 test digits are always the same.",
}


def main() -> None:
    """Read the arguments and make the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("run", type=Path)
    parser.add_argument("command", help="that trained it")
    parser.add_argument("--data-dir", required=True)
    arguments = parser.parse_args()
    recipe = read_run_recipe(arguments.run)
    recipe = replace(recipe, data=replace(recipe.data, dir=arguments.data_dir))
    FOLDER.mkdir(exist_ok=True)
    weights = FOLDER / f"{arguments.name}{WEIGHTS}"
    shrink(arguments.run, weights)
    card = measured_card(arguments.run, arguments.command, recipe, weights)
    write_text(FOLDER / f"{arguments.name}{CARD}", json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(FOLDER / f"{arguments.name}.md", card_text(arguments.name, card))
    save_samples(FOLDER / f"{arguments.name}{SAMPLES}", recipe)
    add_row(arguments.name, card)
    print(json.dumps(card, indent=2, ensure_ascii=False))


def shrink(run: Path, path: Path) -> None:
    """The weights of a run with 16 bits each; what is counted rather than learned stays as it is."""
    from safetensors.torch import save_file

    spec, tensors = load_weights(run / "weights.safetensors")
    small = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(small, temporary, {"torchcaps": spec.to_json()}))


def measured_card(run: Path, command: str, recipe: Recipe, weights: Path) -> dict[str, Any]:
    """What is known about the model."""
    measured = load(weights).evaluate(recipe.data, progress=bars())
    summary = json.loads((run / "summary.json").read_text())
    versions = json.loads((run / "versions.json").read_text())
    found = measured.get("share_of_objects_found")
    return {
        "data": recipe.data.name,
        "model": recipe.model.name,
        "parameters": summary["parameters"],
        "bytes": weights.stat().st_size,
        "test_images": measured["images"],
        "test_error_percent": round(measured["error_percent"], 2),
        **({} if found is None else {"objects_missed_percent": round(100 * (1 - found), 2)}),
        "validation_error_percent": round(100 * (1 - summary["val_accuracy"]), 2),
        "epochs": summary["epochs"],
        "seed": recipe.training.seed,
        "training_minutes": round(summary["training_seconds"] / 60, 1),
        "threads": recipe.training.threads or versions["threads"],
        "command": command,
        "torchcaps": versions["torchcaps"],
        "torch": versions["torch"],
    }


def card_text(name: str, card: dict[str, Any]) -> str:
    """The model card."""
    pairs = name == "multi-mnist"
    rows = {
        f"error on {card['test_images']:,} {'pairs of the' if pairs else 'images, the'} official test images": (
            f"**{card['test_error_percent']:.2f} %**"
        ),
        "digits missed": f"{card.get('objects_missed_percent', 0):.2f} %",
        "error on validation images, kept aside in training": f"{card['validation_error_percent']:.2f} %",
        "epochs": f"{card['epochs']}, of which the last one's weights are kept",
        "seed": card["seed"],
        "time": f"{card['training_minutes']} minutes on {card['threads']} thread(s) of a CPU",
        "trained with": f"torchcaps {card['torchcaps']}, torch {card['torch']}",
    }
    if not pairs:
        del rows["digits missed"]
    table = "\n".join(f"| {what} | {value} |" for what, value in rows.items())
    found = "two of them" if pairs else "one of them"
    counted = " An answer counts as right only if both digits are found." if pairs else ""
    return f"""# {name}

A {card["model"]} with {card["parameters"]:,} parameters, trained by torchcaps. The weights are kept with 16 bits
({card["bytes"] / 1e6:.2f} MB) and computed with 32; what is measured is what is kept.

| | |
| --- | --- |
{table}

```
{card["command"]}
```

**Data.** {SOURCES[name]}{counted}

**Use.** To look at with `torchcaps explore`, and as a small example of a trained capsule network:
`torchcaps.load("{name}")`. The weights are those of the last
epoch of one run; the test images decided nothing.

**Limits.** It knows its ten classes and finds {found} in every picture, whatever it shows. Drawings and photographs
differ from the training images, and the error on them is larger.
"""


def save_samples(path: Path, recipe: Recipe) -> None:
    """Some test images of every class, taken at random."""
    source = evaluation_source(make_image_dataset(recipe.data), files=Files(recipe.data.dir))
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(sub_seed(0, Stream.SAMPLES)))
    first = source.batch(order, 0).labels.view(len(order), -1)[:, 0]
    chosen = torch.cat([order[first == label][:PER_CLASS] for label in range(len(source.class_names))])
    chosen = chosen.view(-1, PER_CLASS).T.flatten()  # the classes take turns
    batch = source.batch(chosen, 0)
    arrays = {"images": _bytes(batch.inputs), "labels": batch.labels.view(len(chosen), -1).numpy().astype(np.uint8)}
    if source.objects > 1:
        arrays["parts"] = _bytes(batch.targets)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, lambda temporary: _write(temporary, content.getvalue()))


def _bytes(images: torch.Tensor) -> np.ndarray:
    return (images * 255).round().to(torch.uint8).numpy()


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def add_row(name: str, card: dict[str, Any]) -> None:
    """This model's row in the results, in the place of an earlier one."""
    rows = {}
    if RESULTS.is_file():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = {row["name"]: row for row in csv.DictReader(file)}
    columns = ["name", "data", "model", "parameters", "bytes", "test_images", "test_error_percent",
               "objects_missed_percent", "validation_error_percent", "epochs", "seed", "training_minutes", "threads",
               "torchcaps", "torch", "command"]  # fmt: skip
    rows[name] = {column: card.get(column, "") for column in columns} | {"name": name}
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[key] for key in NAMES if key in rows)
    write_text(RESULTS, text.getvalue())


if __name__ == "__main__":
    main()
