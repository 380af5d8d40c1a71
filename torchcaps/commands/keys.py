"""The keys of a recipe on the command line: ``--data.name mnist --model.options.routing.iterations 2``."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from torchcaps.commands.parsing import Parser

SHORT = {
    "--data-dir": "--data.dir",
    "--devices": "--training.devices",
    "--epochs": "--training.epochs",
    "--precision": "--training.precision",
    "--seed": "--training.seed",
}


class KeyParser(Parser):
    """A command's own options and every key of a recipe, all of them texts."""

    def __init__(self, add_own: Callable[[argparse.ArgumentParser], None], command: str = "train") -> None:
        from torchcaps.training import recipes

        super().__init__(prog=f"torchcaps {command}", add_help=False)
        add_own(self)
        self.own = set(self.list_options())
        self.meant = recipes.MEANT
        for key in recipes.list_known_keys():
            self.add_key(key)

    def add_key(self, key: str) -> None:
        """Take the value of a key, as ``dest`` of its own name."""
        self.add_argument(f"--{key}", default=argparse.SUPPRESS, help=describe_key(key))

    def _point_to_help(self) -> str:
        return f"`{self.prog} --help` and `torchcaps train --keys` list all."


def parse_with_keys(
    words: Sequence[str], add_own: Callable[[argparse.ArgumentParser], None], command: str = "train"
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """A command's own options, and the keys of a recipe that are given with them.

    Args:
        words: of the command line, without the command.
        add_own: adds the command's own options to a parser.
        command: its name, for messages.

    Returns:
        The options, and values by key; see :func:`~torchcaps.training.recipes.recipe_from_values`.
    """
    from torchcaps.training.recipes import FREE, RENAMED, is_free, list_known_keys, parse_value, read_key

    parser = KeyParser(add_own, command)
    words = [_spell_in_full(word, parser.own) for word in words]
    # What the data set and the model take is not known here: an option for each that comes, of any plain value.
    names = dict.fromkeys(word.partition("=")[0][2:] for word in words if word.startswith("--"))
    free = [name for name in names if (is_free(name) and name not in FREE) or name in RENAMED]
    for name in free:
        parser.add_key(name)
    parsed = vars(parser.read(words))
    given = {key: read_key(key, parsed.pop(key)) for key in list_known_keys() if key in parsed and key not in FREE}
    for key in sorted((key for key in (*FREE, *free) if key in parsed), key=lambda key: key.count(".")):
        given[key] = parse_value(parsed.pop(key), f"--{key}")  # a whole before its parts
    return argparse.Namespace(**parsed), given


def read_keys(words: Sequence[str]) -> dict[str, Any]:
    """The keys of a recipe, and nothing else, on a command line."""
    return parse_with_keys(words, lambda _: None)[1]


def format_keys(epilog: str) -> str:
    """All keys of a recipe, with what they are for, their types and their defaults."""
    from torchcaps.training.recipes import SECTIONS
    from torchcaps.typed import describe_type, field_types, show_value

    parser = argparse.ArgumentParser(
        "torchcaps train", "torchcaps train [RECIPE] [--KEY VALUE …]", epilog=epilog, add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    for section, cls in SECTIONS.items():
        group = parser.add_argument_group((inspect.getdoc(cls) or section).split("\n")[0].rstrip("."))
        made = cls()
        for name, wanted in field_types(cls).items():
            default = getattr(made, name)
            kind = f"{describe_type(wanted)}; default: {default if isinstance(default, str) else show_value(default)}"
            text = describe_key(f"{section}.{name}") or ""
            group.add_argument(f"--{section}.{name}", metavar="VALUE", help=f"{text} ({kind})".replace("%", "%%"))
    return parser.format_help()


@functools.cache
def describe_key(key: str) -> str | None:
    """What a key is for, as the docstring of its section says it."""
    from torchcaps.training.recipes import SECTIONS

    section, _, name = key.rpartition(".")
    if section not in SECTIONS or name not in {field.name for field in dataclasses.fields(SECTIONS[section])}:
        return argparse.SUPPRESS if section else "what the experiment is"
    entry = re.search(rf"^    {name}: (.+(?:\n {{8}}.+)*)", inspect.getdoc(SECTIONS[section]) or "", re.MULTILINE)
    return " ".join(entry[1].split()).rstrip(".") if entry else None


def _spell_in_full(word: str, own: set[str]) -> str:
    """A short name written out, and dashes within a key as the underscores that it has."""
    name, equals, value = word.partition("=")
    if not name.startswith("--"):
        return word
    name = SHORT.get(name, name)
    return word if name in own or "." not in name else f"--{name[2:].replace('-', '_')}{equals}{value}"


def spell_keys(error: Exception) -> str:
    """An error's message with all keys of a recipe spelled as on the command line."""
    from torchcaps.training.recipes import FREE, list_known_keys

    keys = [*(key for key in list_known_keys() if "." in key), *FREE]
    message = re.sub(rf"(?<![\w.-])(?=({'|'.join(map(re.escape, keys))})\b)", "--", str(error))
    option: str | None = getattr(error, "option", None)
    if option is None:
        return message
    full = option if "." in option else next((key for key in keys if key.endswith(f".{option}")), option)
    return message if f"--{full}" in message else f"{message} (--{full})"
