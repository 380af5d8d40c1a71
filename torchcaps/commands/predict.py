"""``torchcaps predict``."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.commands.base import Command, CommandError, say, user_errors
from torchcaps.io import printable

if TYPE_CHECKING:
    from torchcaps.training.evaluation import Prediction

EXAMPLES = """  torchcaps predict runs/quickstart-1 three.png
  torchcaps predict runs/quickstart-1 *.png --csv > found.csv
  torchcaps predict runs/text-1 --text "a warm and funny film"
  torchcaps predict runs/text-1 --text "a warm and funny film" --words
  torchcaps predict runs/text-1 reviews.txt --html words.html
  cat reviews.txt | torchcaps predict runs/text-1 - --json"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder or a weights.safetensors")
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="image files (PNG, JPEG); of a text model files with a text per line"
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
        from torchcaps.training.evaluation import predict, predict_texts
        from torchcaps.training.runs import TextSpec, load_model

        _, spec = load_model(arguments.run)
        if not isinstance(spec, TextSpec):
            _refuse_text_options(arguments)
            _print(arguments, predict(arguments.run, arguments.files, bars()), "file")
            return 0
        texts = _texts(arguments)
        if (arguments.words or arguments.html) and (arguments.csv or arguments.json):
            raise CommandError("--words and --html show words, --csv and --json print scores: give one or the other.")
        if arguments.words or arguments.html:
            from torchcaps.commands.words import show_words

            return show_words(
                arguments.run, texts, arguments.of_class, arguments.by or "couplings", arguments.words, arguments.html
            )
        if arguments.of_class is not None or arguments.by is not None:
            raise CommandError("--class and --by go with --words or --html, which show the words that decide.")
        _print(arguments, predict_texts(arguments.run, texts, bars()), "text", spec.multi_label)
    return 0


def _refuse_text_options(arguments: argparse.Namespace) -> None:
    if arguments.text or arguments.words or arguments.html or arguments.of_class or arguments.by:
        raise CommandError("this model reads images: --text, --words, --html, --class and --by are for text models.")
    if not arguments.files:
        raise CommandError("which images? torchcaps predict RUN FILE …")


def _texts(arguments: argparse.Namespace) -> list[str]:
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


def _print(arguments: argparse.Namespace, found: list[Prediction], kind: str, multi_label: bool = False) -> None:
    if arguments.csv:
        names = sorted(found[0].labels)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([kind, "label", *names])
        for prediction in found:
            scores = dict(zip(prediction.labels, prediction.scores, strict=True))
            numbers = [f"{scores[name]:.6f}" for name in names]
            writer.writerow([printable(prediction.item), _answer(prediction, multi_label), *numbers])
        return
    for prediction in found:
        scores = dict(zip(prediction.labels, prediction.scores, strict=True))
        if arguments.json:
            answer = _present(prediction) if multi_label else prediction.labels[0]
            line = {kind: prediction.item, "label": answer, "scores": scores}
            say(json.dumps(line, ensure_ascii=False))
        else:
            best = ", ".join(f"{n} {s:.3f}" for n, s in list(scores.items())[:3])
            say(f"{_short(prediction.item) if kind == 'text' else prediction.item}: {best}")


def _present(prediction: Prediction) -> list[str]:
    """The labels of a text that may have any number of them."""
    from torchcaps.training.metrics import PRESENT

    pairs = zip(prediction.labels, prediction.scores, strict=True)
    return [label for label, score in pairs if score > PRESENT]


def _answer(prediction: Prediction, multi_label: bool) -> str:
    return " ".join(_present(prediction)) if multi_label else prediction.labels[0]


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


PREDICT = Command("classify image files or texts", EXAMPLES, _add_arguments, _run)
