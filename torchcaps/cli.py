"""The command line: thin. Parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from torchcaps.commands import COMMANDS, CommandError
from torchcaps.extras import missing_extra
from torchcaps.io import printable
from torchcaps.version import __version__


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, list[str]]]:
    """The parser of all commands, and the options that each command has."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show tracebacks")
    parser = argparse.ArgumentParser(
        prog="torchcaps",
        description="Capsule networks for PyTorch.",
        epilog="First steps:  torchcaps train        then  torchcaps evaluate runs/quickstart-1",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=f"torchcaps {__version__}")
    options: dict[str, list[str]] = {}
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
        options[name] = list(sub._option_string_actions)
    return parser, options


def split_overrides(arguments: Sequence[str], known: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments of the command itself, and the keys of a recipe with their values, which are looked at later."""
    own: list[str] = []
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument.partition("=")[0] in known:
            own.append(argument)
            continue
        overrides.append(argument)
        if "=" not in argument and rest and not rest[0].startswith("--"):
            overrides.append(rest.pop(0))
    return own, overrides


def _run(arguments: Sequence[str]) -> int:
    parser, options = make_parser()
    name = next((word for word in arguments if not word.startswith("-")), None)
    command = COMMANDS.get(name or "")
    overrides: list[str] = []
    if command and command.takes_overrides:
        arguments, overrides = split_overrides(arguments, options[str(name)])
    parsed = parser.parse_args(arguments)
    parsed.overrides = overrides
    return COMMANDS[parsed.command].run(parsed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchcaps`` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    sys.exit(guarded(lambda: _run(given), "--debug" in given))


def guarded(run: Callable[[], int], debug: bool) -> int:
    """Run, and turn what users can do something about into a line or two on stderr and exit code 2."""
    if debug:
        return run()
    try:
        return run()
    except CommandError as error:
        if str(error):
            print(f"torchcaps: {printable(str(error))}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("torchcaps: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, such as `head`, has left
        return 0
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "torchcaps":
            raise
        print(f"torchcaps: this command {missing_extra(error)}", file=sys.stderr)
        return 2
