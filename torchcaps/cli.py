"""The command line: thin. Parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence

from torchcaps.commands import COMMANDS, CommandError
from torchcaps.commands.base import spelling
from torchcaps.commands.parsing import Parser
from torchcaps.extras import missing_extra
from torchcaps.io import make_printable
from torchcaps.plain import shorten
from torchcaps.processors import wait_gently
from torchcaps.version import __version__

COMPUTING = {"train", "evaluate", "predict", "explain", "explore", "reproduce"}
"""Commands that keep several processors busy."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    shared = Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show tracebacks")
    parser = Parser(
        prog="torchcaps",
        description="Capsule networks for PyTorch.",
        epilog="First steps:  torchcaps train        then  torchcaps evaluate runs/quickstart-1",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=f"torchcaps {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=f"Examples:\n{command.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[shared],
        )
        command.add_arguments(sub)
    return parser


def _run(arguments: Sequence[str]) -> int:
    if any("\0" in word for word in arguments):
        raise CommandError("the command line holds a NUL, which no name and no text has.")
    name = next((word for word in arguments if not word.startswith("-")), "")
    if {"-h", "--help"} & set(arguments) or list(arguments[:1]) == ["--version"]:
        make_parser().parse_args(arguments)  # which prints, and ends
    if name not in COMMANDS:
        raise CommandError(_describe_missing_command(name, arguments))
    command, words = COMMANDS[name], [word for word in arguments if word != "--debug"]
    words.remove(name)
    if command.parse is not None:
        return command.run(command.parse(words))
    parser = make_command_parser(name)
    with spelling(parser.list_options()):
        return command.run(parser.read(words))


def make_command_parser(name: str) -> Parser:
    """The parser of one command's words."""
    parser = Parser(prog=f"torchcaps {name}", add_help=False)
    COMMANDS[name].add_arguments(parser)
    return parser


def _describe_missing_command(name: str, arguments: Sequence[str]) -> str:
    if name:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        problem = f"there is no command {shorten(name)}.{f' Did you mean {near[0]!r}?' if near else ''}"
    else:
        problem = f"what is {shorten(arguments[0])} for?" if arguments else "which command?"
    return f"{problem} Commands: {', '.join(COMMANDS)}. `torchcaps --help` says what they do."


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchcaps`` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if COMPUTING & set(given) and "torch" not in sys.modules:
        wait_gently()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal's letters cannot spell
    sys.exit(run_guarded(lambda: _run(given), "--debug" in given))


def run_guarded(run: Callable[[], int], debug: bool) -> int:
    """Run, and turn what users can do something about into a line or two on stderr and exit code 2."""
    try:
        try:
            return run() if debug else _tell_errors(run)
        finally:
            if sys.stdout is not None:  # as it is where it was closed
                sys.stdout.flush()  # here, where an error can still be answered, also for what argparse prints
    except BrokenPipeError:  # the reader, such as `head`, has left
        _leave_broken_streams()
        return 0
    except OSError as error:
        if debug or error.errno != errno.ENOSPC:
            raise
        _leave_broken_streams()
        print(f"torchcaps: what is printed cannot be written: {error.strerror}.", file=sys.stderr)
        return 2


def _tell_errors(run: Callable[[], int]) -> int:
    try:
        return run()
    except CommandError as error:
        if str(error):
            print(f"torchcaps: {make_printable(' '.join(str(error).split()))}", file=sys.stderr)  # one line
        return error.code
    except KeyboardInterrupt:
        print("torchcaps: stopped.", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "torchcaps":
            raise
        print(f"torchcaps: this command {missing_extra(error)}", file=sys.stderr)
        return 2


def _leave_broken_streams() -> None:
    """What is still to be written to a stream that cannot take it goes nowhere, and Python ends in silence."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
