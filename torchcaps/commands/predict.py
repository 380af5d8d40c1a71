"""``torchcaps predict``."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from torchcaps.commands.base import Command, CommandError, say, user_errors
from torchcaps.io import make_printable

if TYPE_CHECKING:
    from torchcaps.analysis.relevance import By
    from torchcaps.run import Prediction, Run

EXAMPLES = """  torchcaps predict runs/quickstart-1 three.png
  torchcaps predict runs/quickstart-1 *.png --csv > found.csv
  torchcaps predict runs/text-1 --text "a warm and funny film"
  torchcaps predict runs/text-1 --text "a warm and funny film" --words
  torchcaps predict runs/text-1 reviews.txt --html words.html
  cat reviews.txt | torchcaps predict runs/text-1 - --json"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder or a weights.safetensors")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="image files (PNG, JPEG, WebP, BMP, TIFF, GIF); of a text model files with a text per line",
    )
    parser.add_argument(
        "--text", action="append", default=[], metavar="TEXT", help="a text; may be given several times"
    )
    parser.add_argument("--words", action="store_true", help="show the words that decide, coloured (text capsules)")
    parser.add_argument("--html", metavar="FILE", help="write the words that decide as a page (text capsules)")
    parser.add_argument("--class", dest="of_class", metavar="NAME", help="words for this class, not for the one found")
    parser.add_argument(
        "--by",
        choices=("couplings", "leaving-out"),
        help="trace the couplings back to words (default), or measure what the score loses without each word",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print label and score of every class as CSV")
    shape.add_argument("--json", action="store_true", help="print a line of JSON for every image or text")


def _run(arguments: argparse.Namespace) -> int:
    with user_errors():
        from torchcaps.progress import bars
        from torchcaps.run import load

        run = load(arguments.run)
        if run.task.kind == "images":
            _refuse_text_options(arguments)
            items: list[str] = arguments.files
        else:
            items = _read_texts(arguments)
        if arguments.words or arguments.html:
            if arguments.csv or arguments.json:
                raise CommandError(
                    "--words and --html show words, --csv and --json print scores: give one or the other."
                )
            return _show_words(arguments, run, items)
        if arguments.of_class is not None or arguments.by is not None:
            raise CommandError("--class and --by go with --words or --html, which show the words that decide.")
        _print(arguments, run, run.predict(items, bars()))
    return 0


def _show_words(arguments: argparse.Namespace, run: Run, texts: Sequence[str]) -> int:
    """Print the words that decide in colour, write a page of them, or both."""
    from rich.console import Console

    from torchcaps.analysis.relevance import find_deciding_words
    from torchcaps.io import write_text
    from torchcaps.progress import bars
    from torchcaps.report.colouring import colour_terminal, render_words
    from torchcaps.training.tasks import TextTask

    by: By = arguments.by or "couplings"
    decided = find_deciding_words(run.model, cast(TextTask, run.task), texts, arguments.of_class, by, bars())
    console = Console(highlight=False)
    if arguments.words:
        for words in decided:
            console.print(colour_terminal(words), soft_wrap=True)
    if arguments.html:
        write_text(Path(arguments.html), render_words(decided, "Which words decide", by))
        console.print(f"Page: {arguments.html}", soft_wrap=True, markup=False)
    return 0


def _refuse_text_options(arguments: argparse.Namespace) -> None:
    if arguments.text or arguments.words or arguments.html or arguments.of_class or arguments.by:
        raise CommandError("this model reads images: --text, --words, --html, --class and --by are for text models.")
    if not arguments.files:
        raise CommandError("which images? torchcaps predict RUN FILE …")


def _read_texts(arguments: argparse.Namespace) -> list[str]:
    """Those of --text, then every line of the files; - is stdin. Lines without any character are left out."""
    texts = list(arguments.text)
    for name in arguments.files or ([] if texts else ["-"]):
        if name == "-" and sys.stdin.isatty():
            raise CommandError('which texts? --text "…", a file with a text per line, or - to read from stdin.')
        try:
            content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            lines = content.decode("utf-8-sig").split("\n")  # other line ends of Python's are inside of texts
        except UnicodeDecodeError as error:
            where = "stdin" if name == "-" else name
            raise CommandError(f"{where} is not UTF-8 text: {error.reason} at byte {error.start}.") from error
        texts += [line.strip() for line in lines if line.strip()]
    if not texts:
        raise CommandError("there is no text: every line was empty.")
    return texts


def _print(arguments: argparse.Namespace, run: Run, answers: list[Prediction]) -> None:
    kind, several = run.task.item_name, run.task.multi_label
    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = sorted(run.classes)
    if arguments.csv:
        writer.writerow([kind, "label", *names])
    for answer in answers:
        scores = dict(zip(answer.labels, answer.scores, strict=True))
        labels = run.task.choose(answer.labels, answer.scores)
        if arguments.csv:
            numbers = [f"{scores[name]:.6f}" for name in names]
            writer.writerow([make_printable(answer.item), " ".join(labels) if several else answer.label, *numbers])
        elif arguments.json:
            line = {kind: answer.item, "label": list(labels) if several else answer.label, "scores": scores}
            say(json.dumps(line, ensure_ascii=False))
        else:
            best = ", ".join(f"{name} {score:.3f}" for name, score in list(scores.items())[:3])
            say(f"{_shorten(answer.item) if kind == 'text' else answer.item}: {best}")


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


PREDICT = Command("classify image files or texts", EXAMPLES, _add_arguments, _run)
