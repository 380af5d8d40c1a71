"""Text capsules against a CNN and LSTMs: the same word vectors, splits, epochs and batches.

    python -m benchmarks.text --data-dir DIR --vectors FILE [--only comparison|ablation|reuters|time] [--jobs 2]

DIR holds the folder text/ with the data sets, FILE the word vectors (GloVe 6B, 100 numbers). Every row of
results/text.csv is one training run and its test; runs that are in the file already are not repeated. mr, subj and cr
are measured on the first three of ten folds, trec and sst2 on their own test with three seeds. All hyperparameters were
chosen on validation texts cut from training (fold 0, seed 0); the tests are looked at once, after the last epoch.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps import __version__
from torchcaps.commands.keys import read_keys

RESULTS = Path(__file__).parent.parent / "results" / "text.csv"
COLUMNS = (
    "experiment", "data", "model", "variant", "fold", "seed", "accuracy_percent", "exact_match_percent",
    "precision_percent", "recall_percent", "f1_percent", "parameters", "epochs", "training_seconds", "version",
    "command",
)  # fmt: skip
FOLDED = ("mr", "subj", "cr")
EPOCHS = {"trec": 6, "cr": 4, "reuters8": 3, "sst2": 2, "mr": 2, "subj": 2}
"""More passes over the smaller sets: the whole should fit into an hour on two cores."""
LOGITS = ["--loss.kind=cross-entropy", "--optimizer.lr=0.002"]
MODELS: dict[str, list[str]] = {
    "text-capsnet-b": ["--model.name=text-capsnet-b", "--model.options.ngrams=[2,3,4]"],
    "text-capsnet-a": ["--model.name=text-capsnet-a"],
    "text-cnn": ["--model.name=text-cnn", *LOGITS],
    "text-cnn static": ["--model.name=text-cnn", "--model.options.static=true", *LOGITS],
    "text-lstm": ["--model.name=text-lstm", *LOGITS],
    "text-bilstm": ["--model.name=text-bilstm", *LOGITS],
}
STABILISERS = {
    "no noise class": ["--model.options.noise_class=false"],
    "no leaky softmax": ["--model.options.leaky=false"],
    "no coefficient amendment": ["--model.options.amend=false"],
    "with partial sampling": ["--model.options.partial_sampling=0.75"],
}
LONG = ["--text.max_length=60", "--model.options.stride=2"]
"""For Reuters: at most 60 words; capsules for every second n-gram, as in the code of Zhao et al. 2018."""


class Job(NamedTuple):
    """One training run."""

    experiment: str
    data: str
    model: str
    variant: str
    fold: int
    seed: int
    overrides: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """What tells its row from others."""
        return tuple(map(str, self[:6]))


def jobs(repeats: int = 3) -> Iterator[Job]:
    """Everything that is measured."""
    yield from _comparison("trec", repeats)
    for model in ("text-cnn", "text-capsnet-a", "text-capsnet-b"):
        long = LONG if "capsnet" in model else LONG[:1]
        for n in range(repeats):
            yield Job("reuters", "reuters8", model, "", 0, n, (*MODELS[model], *long))
    for n in range(repeats):  # as the CNN of Zhao et al. is trained
        words = (*MODELS["text-cnn"], "--loss.kind=margin", *LONG[:1])
        yield Job("reuters", "reuters8", "text-cnn", "margin loss", 0, n, words)
    for data in ("cr", "sst2", "mr", "subj"):
        yield from _comparison(data, repeats)
    for data in ("trec", "mr"):
        for variant, words in STABILISERS.items():
            for n in range(repeats):
                yield Job("ablation", data, "text-capsnet-a", variant, n if data in FOLDED else 0, n, tuple(words))
    yield Job("time", "trec", "text-capsnet-a", "one epoch on two cores", 0, 0, ("--epochs=1", "--training.threads=2"))


def _comparison(data: str, repeats: int) -> Iterator[Job]:
    for model, words in reversed(MODELS.items()):
        for n in range(repeats):
            yield Job("comparison", data, model, "", n if data in FOLDED else 0, n, tuple(words))


def run(job: Job, data_dir: str, vectors: str) -> dict[str, Any]:
    """Train and test, in a folder that is thrown away."""
    from torchcaps.training.evaluation import evaluate
    from torchcaps.training.fit import train
    from torchcaps.training.recipes import recipe_from_file

    words = [
        f"--data.name={job.data}",
        *([f"--data.options.fold={job.fold}"] if job.data in FOLDED else []),
        f"--training.seed={job.seed}",
        f"--epochs={EPOCHS[job.data]}",
        *job.overrides,
    ]
    recipe = recipe_from_file(
        "text-benchmark", read_keys([*words, f"--data.dir={data_dir}", f"--text.vectors={vectors}"])
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        summary = train(recipe, folder)
        result = evaluate(folder)
    row = {name: value for name, value in job._asdict().items() if name != "overrides"}
    for key in ("accuracy", "exact_match", "precision", "recall", "f1"):
        row[f"{key}_percent"] = f"{100 * result[key]:.2f}" if key in result else ""
    return row | {
        "parameters": summary["parameters"],
        "epochs": summary["epochs"],
        "training_seconds": summary["training_seconds"],
        "version": __version__,
        "command": " ".join(["torchcaps train text-benchmark --data-dir DIR --text.vectors FILE --evaluate", *words]),
    }


def done() -> set[tuple[str, ...]]:
    """The runs that are in the file."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open() as file:
        return {tuple(row[name] for name in COLUMNS[:6]) for row in csv.DictReader(file)}


def append(row: dict[str, Any]) -> None:
    """One more row."""
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def _run(arguments: tuple[Job, str, str]) -> dict[str, Any]:
    started = time.perf_counter()
    row = run(*arguments)
    print(
        f"{' '.join(arguments[0].key)}: {row['accuracy_percent']} % ({time.perf_counter() - started:.0f} s)", flush=True
    )
    return row


def main(words: Sequence[str] | None = None) -> None:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--only", nargs="*", help="experiments")
    parser.add_argument("--models", nargs="*", help="models")
    parser.add_argument("--data", nargs="*", help="data sets")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    arguments = parser.parse_args(words)
    os.environ["OMP_NUM_THREADS"] = "2" if arguments.only == ["time"] else "1"
    there = done()
    todo = [
        (job, arguments.data_dir, arguments.vectors)
        for job in jobs()
        if job.key not in there
        and (job.experiment in arguments.only if arguments.only else job.experiment != "time")
        and (not arguments.models or job.model in arguments.models)
        and (not arguments.data or job.data in arguments.data)
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for row in pool.imap_unordered(_run, todo):
            append(row)


if __name__ == "__main__":
    main()
