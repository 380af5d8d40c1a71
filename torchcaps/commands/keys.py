"""The keys of a recipe on the command line: ``--data.name mnist --model.options.routing.iterations 2``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchcaps.commands.base import CommandError

if TYPE_CHECKING:
    from jsonargparse import Namespace

SHORT = {
    "--data-dir": "--data.dir",
    "--devices": "--training.devices",
    "--epochs": "--training.epochs",
    "--precision": "--training.precision",
    "--seed": "--training.seed",
}


def parse_with_keys(
    words: Sequence[str], add_own: Callable[[argparse.ArgumentParser], None]
) -> tuple[Namespace, dict[str, Any]]:
    """A command's own options, and the keys of a recipe that are given with them, by one typed parser.

    Args:
        words: of the command line, without the command.
        add_own: adds the command's own options to a parser.

    Returns:
        The options, absent if not given, and values by key; see
        :func:`~torchcaps.training.recipes.recipe_from_values`.
    """
    from torchcaps.training.recipes import (
        RENAMED,
        SECTIONS,
        is_free,
        list_known_keys,
        make_parser,
        make_unknown_key_error,
        parse_value,
    )

    parser = make_parser()
    parser.add_argument("--description", type=str, default="", help="what the experiment is")
    add_own(parser)
    own = set(parser._option_string_actions) - {f"--{key}" for key in list_known_keys()}
    words = [_spell_in_full(word, own) for word in words]
    # What the data set and the model take is not known here: an argument for each that comes, of any plain value.
    names = [word.partition("=")[0] for word in words]
    free = list(dict.fromkeys(name for name in names if is_free(name[2:]) or name[2:] in RENAMED))
    for number, name in enumerate(free):
        parser.add_argument(name, dest=f"free.{number}", type=str, help=argparse.SUPPRESS)
    try:
        parsed = parser.parse_args(words, defaults=False)
    except argparse.ArgumentError as error:
        stranger = re.match(r"unrecognized arguments: (\S+)", str(error))
        if stranger is None:
            raise CommandError(str(error).replace('Parser key "', "the recipe's key \"").strip()) from None
        if not stranger[1].startswith("--"):
            raise CommandError(
                f"what is {stranger[1]!r} for? One recipe can be trained, and options have names."
            ) from None
        name = stranger[1].partition("=")[0]
        raise CommandError(make_unknown_key_error(name[2:], (option[2:] for option in own))) from None
    given: dict[str, Any] = {}
    for section in SECTIONS:
        if section in parsed:
            given |= {f"{section}.{key}": value for key, value in vars(parsed.pop(section)).items()}
    if "description" in parsed:
        given["description"] = parsed.pop("description")
    texts = vars(parsed.pop("free")) if "free" in parsed else {}
    order = sorted(range(len(free)), key=lambda number: free[number].count("."))  # a whole before its parts
    for number in order:
        name = free[number]
        given[name[2:]] = parse_value(texts[str(number)], name)
    return parsed, given


def read_keys(words: Sequence[str]) -> dict[str, Any]:
    """The keys of a recipe, and nothing else, on a command line."""
    return parse_with_keys(words, lambda _: None)[1]


def _spell_in_full(word: str, own: set[str]) -> str:
    """A short name written out, and dashes within a key as the underscores that it has."""
    name, equals, value = word.partition("=")
    if not name.startswith("--"):
        return word
    name = SHORT.get(name, name)
    return word if name in own else f"--{name[2:].replace('-', '_')}{equals}{value}"


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
