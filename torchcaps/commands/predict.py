"""``torchcaps predict``."""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from torchcaps.commands.base import Command, CommandError, say, say_json, user_errors
from torchcaps.commands.unread import Unread
from torchcaps.io import make_printable

if TYPE_CHECKING:
    from torchcaps.analysis.relevance import By
    from torchcaps.data.inputs import Tally
    from torchcaps.run import Prediction, Run

EXAMPLES = """  torchcaps predict runs/quickstart-1 three.png
  torchcaps predict runs/quickstart-1 photos/ --csv > found.csv           a folder, with all that is in it
  torchcaps predict runs/quickstart-1 'photos/**/*.jpg' --json            a pattern
  find photos -name '*.jpg' | torchcaps predict runs/quickstart-1 -       a list of files
  torchcaps predict runs/quickstart-1 list.csv --column file              a column of files
  torchcaps predict runs/text-1 --text "a warm and funny film"
  torchcaps predict runs/text-1 --text "a warm and funny film" --words
  torchcaps predict runs/text-1 reviews.csv --column review
  torchcaps predict runs/text-1 reviews.txt --html words.html
  cat reviews.txt | torchcaps predict runs/text-1 - --json

Answers are printed as they come. What cannot be read does not stop the rest: it is listed on stderr at the end.
Exit code: 0 if all was answered, 1 if something could not be read, 2 if nothing could be begun."""
MOST_KINDS = 5
"""Of what was left out."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a weights.safetensors or the name of a pretrained model")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="WHAT",
        help="images (PNG, JPEG, WebP, BMP, TIFF, GIF): files, folders, quoted patterns, tables with a column of "
        "files, or - for a list of files on stdin; of a text model files with a text per line, tables with a "
        "column of texts, or - for stdin",
    )
    parser.add_argument(
        "--text", action="append", default=[], metavar="TEXT", help="a text; may be given several times"
    )
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="of tables (.csv, .tsv, .jsonl, also on stdin): where the files or texts are (default: file, "
        "filename, image, path and the like; of texts that of the training, or text)",
    )
    parser.add_argument("-0", "--null", action="store_true", help="what comes on stdin is separated by NUL, not lines")
    parser.add_argument("--errors", metavar="FILE", help="write all that cannot be read, with the reason, as CSV")
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="read and answer so many together (default: 64 images, 500 texts)"
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
        from torchcaps.data.inputs import Tally
        from torchcaps.run import load

        run = load(arguments.run)
        _check(arguments, run.task.kind)
        with Unread(arguments.errors) as unread:
            tally = Tally(unread.add)
            find = _find_files if run.task.kind == "images" else _find_texts
            items = find(arguments, run, tally)
            if arguments.words or arguments.html:
                answered = _show_words(arguments, run, list(items))
            else:
                answered = _answer(arguments, run, items, unread)
            unread.tell(answered, "files" if run.task.kind == "images" else "inputs")
        _tell(arguments, tally, run.task.kind)
        if not answered and not unread.count:
            what = "no image among what was given" if run.task.kind == "images" else "no text: every line was empty"
            raise CommandError(f"there is {what}.")
    return 1 if unread.count else 0


def _check(arguments: argparse.Namespace, kind: str) -> None:
    """Refuse options that do not go together, or not with this kind of model."""
    texts = arguments.text or arguments.words or arguments.html or arguments.of_class or arguments.by
    if kind == "images" and texts:
        raise CommandError("this model reads images: --text, --words, --html, --class and --by are for text models.")
    if kind == "images" and not arguments.files:
        raise CommandError(
            "which images? torchcaps predict RUN WHAT …: files, folders, patterns, or - for a list of files on stdin."
        )
    if (arguments.words or arguments.html) and (arguments.csv or arguments.json):
        raise CommandError("--words and --html show words, --csv and --json print scores: give one or the other.")
    if not (arguments.words or arguments.html) and (arguments.of_class is not None or arguments.by is not None):
        raise CommandError("--class and --by go with --words or --html, which show the words that decide.")
    if not arguments.files and arguments.text:
        if arguments.column is not None:
            raise CommandError("--column is of tables, and there is none: give a .csv, .tsv or .jsonl file.")
    elif not arguments.files:
        arguments.files = ["-"]
    if "-" in arguments.files and sys.stdin.isatty():
        raise CommandError(
            "which images? - is a list of files on stdin, such as that of find."
            if kind == "images"
            else 'which texts? --text "…", a file with a text per line, or - to read from stdin.'
        )
    if arguments.null and "-" not in arguments.files:
        raise CommandError("--null is about what comes on stdin: give - to read it.")


def _stdin(arguments: argparse.Namespace) -> BinaryIO | None:
    return sys.stdin.buffer if "-" in arguments.files else None


def _find_files(arguments: argparse.Namespace, _: Run, tally: Tally) -> Iterator[str]:
    from torchcaps.data.inputs import find_images

    separator = b"\0" if arguments.null else b"\n"
    return find_images(arguments.files, tally, listed=_stdin(arguments), separator=separator, column=arguments.column)


def _find_texts(arguments: argparse.Namespace, run: Run, tally: Tally) -> Iterator[str]:
    """Those of --text, then those of the files."""
    from torchcaps.data.text.inputs import find_texts

    trained = {} if run.recipe is None else run.recipe.data.options
    columns = {name: trained[name] for name in ("text_column", "label_column") if isinstance(trained.get(name), str)}
    separator = b"\0" if arguments.null else b"\n"
    found = find_texts(
        arguments.files, tally, listed=_stdin(arguments), separator=separator, column=arguments.column, **columns
    )
    return chain(arguments.text, found)


def _answer(arguments: argparse.Namespace, run: Run, items: Iterator[str], unread: Unread) -> int:
    """Print an answer for each input, as they come; gives their number."""
    answered, show = 0, _printer(arguments, run)
    stream = run.predict_stream(items, unread.add, arguments.batch_size)
    with closing(stream) as answers, _count_on_terminal() as tick:
        for answer in answers:
            show(answer)
            answered += 1
            tick()
    return answered


@contextmanager
def _count_on_terminal() -> Iterator[Callable[[], object]]:
    """A number that grows on stderr, for people who do not see the answers themselves."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(desc="predicting", unit="", leave=False, file=sys.stderr, delay=1) as line:
        yield line.update


def _show_words(arguments: argparse.Namespace, run: Run, texts: list[str]) -> int:
    """Print the words that decide in colour, write a page of them, or both; gives the number of texts."""
    if not texts:
        return 0
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
    return len(texts)


def _printer(arguments: argparse.Namespace, run: Run) -> Callable[[Prediction], None]:
    """What prints an answer, as CSV after its header, as JSON, or for people."""
    from torchcaps.data.labels import SEPARATOR

    kind, several, names = run.task.item_name, run.task.multi_label, sorted(run.classes)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if arguments.csv:
        writer.writerow([kind, "label", *names])

    def show(answer: Prediction) -> None:
        scores = dict(zip(answer.labels, answer.scores, strict=True))
        labels = run.task.choose(answer.labels, answer.scores)
        if arguments.csv:
            numbers = [f"{scores[name]:.6f}" for name in names]
            said = SEPARATOR.join(labels) if several else answer.label
            writer.writerow([make_printable(answer.item), said, *numbers])
            sys.stdout.flush()
        elif arguments.json:
            line = {kind: answer.item, "label": list(labels) if several else answer.label, "scores": scores}
            say_json(line, indent=None)
        else:
            best = ", ".join(f"{name} {score:.3f}" for name, score in list(scores.items())[:3])
            say(f"{_shorten(answer.item) if kind == 'text' else answer.item}: {best}")

    return show


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def _tell(arguments: argparse.Namespace, tally: Tally, kind: str) -> None:
    """Say on stderr what was left out, and what may not have been meant."""
    from torchcaps.data.columns import TABLE_ENDINGS

    counted = [f"{kind} {number:,}" for kind, number in tally.left_out.most_common() if number]
    if counted:
        rest = [f"and {len(counted) - MOST_KINDS} other kinds"] if len(counted) > MOST_KINDS else []
        say(f"torchcaps: left out: {', '.join([*counted[:MOST_KINDS], *rest])}.", sys.stderr)
    for name in tally.tables[:MOST_KINDS]:
        say(
            f"torchcaps: {name} looks like a table, and every line of it was read as a text: give --column NAME to "
            "read a column of it.",
            sys.stderr,
        )
    tables = [name for name in tally.labelled if name.lower().endswith(TABLE_ENDINGS)]
    if kind == "texts" and tables and arguments.column is None:
        command = shlex.join(["torchcaps", "evaluate", arguments.run, "--data", tables[0]])
        say(f"torchcaps: {tables[0]} has labels, too: {command} measures how many are found.", sys.stderr)


PREDICT = Command("classify image files or texts", EXAMPLES, _add_arguments, _run)
