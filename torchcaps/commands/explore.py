"""``torchcaps explore``."""

from __future__ import annotations

import argparse

from torchcaps.commands.base import Command, say, user_errors

EXAMPLES = """  torchcaps explore                       models that come with the package: digits, clothes, two digits
  torchcaps explore runs/quickstart-1     your own model beside them
  torchcaps explore --port 8000 --no-browser"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders or weights files of image models")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on (default: the first free from 8650)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with data sets, for test images of the runs")


def _run(arguments: argparse.Namespace) -> int:
    with user_errors():
        from torchcaps.explorer.server import serve

        serve(
            arguments.runs,
            host=arguments.host,
            port=arguments.port,
            data_dir=arguments.data_dir,
            browser=not arguments.no_browser,
            say=say,
        )
    return 0


EXPLORE = Command("meet a trained capsule network in the browser", EXAMPLES, _add_arguments, _run)
