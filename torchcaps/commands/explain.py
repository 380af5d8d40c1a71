"""``torchcaps explain``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchcaps.commands.base import Command, say, say_json, user_errors

if TYPE_CHECKING:
    from torchcaps.report.reports import StepProgress

EXAMPLES = """  torchcaps explain runs/quickstart-1                 then open runs/quickstart-1/explain/report.html
  torchcaps explain runs/quickstart-1 --output talk/ --images 1000
  torchcaps explain runs/quickstart-1 --json > numbers.json
  torchcaps explain runs/text-1                       the words that decide in test texts"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--output", metavar="DIR", help="where to write the report (default: RUN/explain)")
    parser.add_argument("--data", metavar="NAME", help="other data of the same kind: a name, a folder or a file")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets")
    parser.add_argument(
        "--images", type=int, default=500, metavar="N", help="test images or texts to measure on (default: 500)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides which of them (default: 0)")
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with user_errors():
        from torchcaps.run import load

        run = load(arguments.run)
        with _show_progress() as progress:
            report = run.explain(
                arguments.output,
                arguments.data,
                data_dir=arguments.data_dir,
                images=arguments.images,
                seed=arguments.seed,
                command=_format_command(arguments),
                progress=progress,
            )
    if arguments.json:
        say_json(report.numbers)
        return 0
    for line in summarise(report.numbers):
        say(line)
    say(f"Report: {report.page}")
    return 0


def _format_command(arguments: argparse.Namespace) -> str:
    """The call in full, so that it can be made again."""
    words = ["torchcaps", "explain", arguments.run]
    for name in ("output", "data", "data_dir"):
        if getattr(arguments, name) is not None:
            words += [f"--{name.replace('_', '-')}", getattr(arguments, name)]
    return shlex.join([*words, "--images", str(arguments.images), "--seed", str(arguments.seed)])


@contextmanager
def _show_progress() -> Iterator[StepProgress | None]:
    """A bar on stderr, for people only."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(bar_format="{desc:<16}{bar} {n_fmt}/{total_fmt}", leave=False, file=sys.stderr) as bar:

        def tell(name: str, done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.set_description(name)

        yield tell


def summarise(numbers: dict[str, Any]) -> list[str]:
    """The most important numbers, a line each."""
    from torchcaps.analysis.reconstruction import compare_errors

    kind = "texts" if "texts" in numbers else "images"
    lines = [
        f"{numbers['model']}, {numbers['parameters']:,} parameters: accuracy {numbers['accuracy']:.2%} on "
        f"{numbers[kind]:,} test {kind if numbers[kind] != 1 else kind[:-1]} of {numbers['data']}"
    ]
    if "patches_per_image" in numbers:
        lines[0] += ", one central patch per image"
    if "share_of_objects_found" in numbers:
        lines.append(f"objects found: {numbers['share_of_objects_found']:.2%}")
    for name, key in (("reconstructions", "error_per_pixel"), ("segmentation", "error_per_pixel_of_each_object")):
        if name in numbers:
            part = numbers[name]
            others = part.get("error_of_mean_image")
            kinds = "images" if name == "reconstructions" else "objects"
            compared = ""
            if others is not None:
                compared = f", of the mean of all other {kinds} {others:.4f}: {compare_errors(part[key], others)}"
            lines.append(f"drawn: squared error {part[key]:.4f} per pixel{compared}")
            if part["images_with_bars"]:
                lines.append(f"black bars: on {part['images_with_bars']:,} of these images; no error counts them")
    if "routing" in numbers:
        last = numbers["routing"]["layers"][-1]
        dead = sum(layer["dead_children"][0] for layer in numbers["routing"]["layers"])
        first, end = last["entropy"][0], last["entropy"][-1]
        lines.append(
            f"routing: entropy {first:.2f} → {end:.2f} of at most {last['largest_entropy']:.2f} nats, polarisation "
            f"{last['polarisation'][-1]:.2f}, {dead} dead parts"
        )
    for movement in numbers.get("movements", {}).get("kinds", []):
        probe, shuffled = (_format_r2(movement[name]) for name in ("probe_r2", "shuffled_r2"))
        lines.append(f"{movement['kind']}: R² of a linear probe {probe}, with shuffled amounts {shuffled}")
    return lines


def _format_r2(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


EXPLAIN = Command("show what a trained model sees and how it decides", EXAMPLES, _add_arguments, _run)
