"""Python's parser of command lines, with refusals of one sentence: what was expected, what came, what is near."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from torchcaps.commands.base import CommandError
from torchcaps.plain import shorten
from torchcaps.typed import guess_name, join_choices

MEANT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("output_dir", "out", "out_dir", "save_dir", "log_dir", "save", "o"), ("output", "html")),
    **dict.fromkeys(("dataset", "data_path"), ("data",)),
    **dict.fromkeys(("root", "datadir", "data_root"), ("data-dir",)),
    **dict.fromkeys(("eval", "test"), ("evaluate",)),
    **dict.fromkeys(("continue", "restart"), ("resume",)),
    **dict.fromkeys(("checkpoint", "ckpt", "weights", "folder"), ("resume", "run", "runs")),
    **dict.fromkeys(("model", "model_path"), ("run", "runs")),
    **dict.fromkeys(("config", "yaml"), ("recipe",)),
    **dict.fromkeys(("image", "input", "file", "path"), ("files", "name")),
    **dict.fromkeys(("n", "num_images", "samples"), ("images",)),
    **dict.fromkeys(("random_seed", "trials"), ("seeds", "seed")),
    **dict.fromkeys(("address", "bind"), ("host",)),
    **dict.fromkeys(("experiment", "dataset_name"), ("name",)),
    "epoch": ("epochs",), "label": ("class",), "sentence": ("text",), "format": ("json",), "gpus": ("devices",),
    "part": ("split",), "subset": ("split",),
}  # fmt: skip
"""What others call an option of ours, for advice only."""
_NUMBER = re.compile(r"-(\d|\.\d|\.?inf\b|\.?nan\b)", re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """A parser of one command's words, options and others in any order.

    What it refuses is a :class:`CommandError`.
    """

    meant: Mapping[str, str] = {}
    """What others call its options, beside :data:`MEANT`."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **named})

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The options that these words give."""
        parsed, strangers = self.parse_known_intermixed_args(_join_numbers(words))
        if strangers:
            raise CommandError(self._describe_stranger(strangers[0]))
        for action in self._actions:
            given = vars(parsed).get(action.dest)
            if any(isinstance(text, str) and not text.strip() for text in (given if type(given) is list else [given])):
                name = action.option_strings[-1] if action.option_strings else action.dest.upper()
                if given != action.default:
                    raise CommandError(f"{name} is empty. It is: {self._describe(action)}.")
        return parsed

    def list_options(self) -> list[str]:
        """All options with two dashes."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def guess_option(self, name: str) -> str | None:
        """What was probably meant by an option that there is not, in a sentence."""
        known = {option[2:]: option for option in self.list_options()}
        places = {action.dest: action for action in self._actions if not action.option_strings}
        own = {word: guess for word, guesses in MEANT.items() for guess in guesses[::-1] if guess in (*known, *places)}
        guess = guess_name(name.lstrip("-"), [*known, *places], {**self.meant, **own})
        if guess in places:
            return f"{places[guess].metavar or guess.upper()} is given without an option's name."
        return None if guess is None else f"Did you mean {known.get(guess, f'--{guess}')}?"

    def error(self, message: str) -> NoReturn:
        """Python's words, said in ours."""
        raise CommandError(self._translate(message))

    def _describe_stranger(self, word: str) -> str:
        if not word.startswith("-") or word == "-":
            return f"what is {shorten(word)} for? {self._point_to_help()}"
        name = word.partition("=")[0]
        guess = self.guess_option(name)
        said = f"{self.prog.split()[-1]} has no option {_cut(name)}."
        return f"{said} {guess}" if guess else f"{said} {self._point_to_help()}"

    def _point_to_help(self) -> str:
        return f"`{self.prog} --help` lists all options."

    def _translate(self, message: str) -> str:
        missing = re.match(r"the following arguments are required: ([^,]+)", message)
        if missing:
            action = self._find(missing[1])
            needed = f"{self.prog.split()[-1]} needs {missing[1].upper()}"
            return f"{needed}: {action.help}. {self._point_to_help()}" if action else f"{needed}."
        parts = re.match(r"argument (.+?): (.*)", message, re.DOTALL)
        if parts is None:
            return message
        name, problem = parts[1].rpartition("/")[2], parts[2]
        action = self._find(name)
        value = re.match(r"invalid (?:(\w+) value|choice): (.*?)(?: \(choose from .*)?$", problem, re.DOTALL)
        if value is not None and action is not None:
            return f"{name} must be {_describe_kind(action)}, got {_cut(value[2])}.{_guess_choice(action, value[2])}"
        if problem.startswith("expected") and action is not None:
            return f"{name} needs a value: {self._describe(action)}."
        if problem.startswith("not allowed with"):
            return f"{name} and {problem.split()[-1]} cannot be given together: choose one."
        if problem.startswith("ignored explicit argument"):
            return f"{name} takes no value, got {_cut(problem.removeprefix('ignored explicit argument '))}."
        return f"{name}: {problem}."

    def _describe(self, action: argparse.Action) -> str:
        return "any value" if action.help in (None, argparse.SUPPRESS) else str(action.help).replace("%%", "%")

    def _find(self, name: str) -> argparse.Action | None:
        for action in self._actions:
            if name in (*action.option_strings, action.dest, action.metavar):
                return action
        return None


def _join_numbers(words: Sequence[str]) -> list[str]:
    """``--x -1e-3`` as ``--x=-1e-3``: Python takes most negative numbers for options."""
    joined: list[str] = []
    for word in words:
        before = joined[-1] if joined else ""
        if _NUMBER.match(word) and before.startswith("--") and "=" not in before and before != "--":
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _describe_kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return join_choices(action.choices)
    return {"int": "a whole number", "float": "a number"}.get(getattr(action.type, "__name__", ""), "something else")


def _guess_choice(action: argparse.Action, value: str) -> str:
    near = difflib.get_close_matches(value.strip("'\"").lower(), list(map(str, action.choices or ())), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
