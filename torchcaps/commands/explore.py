"""``torchcaps explore``."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import NoReturn

from torchcaps.commands.base import Command, say, user_errors

EXAMPLES = """  torchcaps explore                       models that come with the package: digits, clothes, two digits
  torchcaps explore runs/quickstart-1     your own model beside them
  torchcaps explore --port 8000 --no-browser
  torchcaps explore --host 0.0.0.0 --allow-host lecture.example"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders or weights files of image models")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that it answers to beside this machine's own; may be given several times",
    )
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on (default: the first free from 8650)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets, for test images of the runs")


def _run(arguments: argparse.Namespace) -> int:
    with user_errors():
        from torchcaps.explorer.server import serve

        try:
            serve(
                arguments.runs,
                host=arguments.host,
                port=arguments.port,
                data_dir=arguments.data_dir,
                browser=not arguments.no_browser,
                allow_hosts=arguments.allow_host,
                say=say,
            )
        except KeyboardInterrupt:
            _end_at_once()
    return 0


def _end_at_once() -> NoReturn:
    """End without Python's own clearing up.

    It would tear threads out of the torch call they are in, at which C++ now and then aborts the process; and it would
    look for garbage among a million objects for half a second. Nothing here is left to save.
    """
    with suppress(OSError):
        print("torchcaps: stopped.", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(130)


EXPLORE = Command("meet a trained capsule network in the browser", EXAMPLES, _add_arguments, _run)
