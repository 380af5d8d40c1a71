"""The command line: thin. Parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence

from torchcaps.commands import COMMANDS, CommandError
from torchcaps.extras import missing_extra
from torchcaps.io import make_printable
from torchcaps.version import __version__


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show tracebacks")
    parser = argparse.ArgumentParser(
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
            allow_abbrev=False,
        )
        command.add_arguments(sub)
    return parser


def _run(arguments: Sequence[str]) -> int:
    name = next((word for word in arguments if not word.startswith("-")), "")
    command = COMMANDS.get(name)
    if command is not None and command.parse is not None and not {"-h", "--help"} & set(arguments):
        words = list(arguments)
        words.remove(name)
        return command.run(command.parse([word for word in words if word != "--debug"]))
    parsed = make_parser().parse_args(arguments)
    return COMMANDS[parsed.command].run(parsed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchcaps`` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
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
            print(f"torchcaps: {make_printable(str(error))}", file=sys.stderr)
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
