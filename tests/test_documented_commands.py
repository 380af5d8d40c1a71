"""Every command line in the README, the docs and the help is one that its command understands."""

import re
import shlex
from pathlib import Path

import pytest

from torchcaps.cli import make_command_parser
from torchcaps.commands import COMMANDS
from torchcaps.commands.keys import KeyParser, parse_with_keys
from torchcaps.training.recipes import list_known_keys

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENDS = {"|", ">", ">>", "<", "&&", "||", ";", "&", "#"}


def split_line(line):
    """The words of the first ``torchcaps`` command of a line, without what a shell or a reader does with them."""
    words = shlex.split(re.sub(r"(^|\s)#.*", "", line).replace("…", "x").replace("[", "").replace("]", ""), posix=True)
    words = words[words.index("torchcaps") + 1 :]
    end = next((at for at, word in enumerate(words) if word in ENDS or word.startswith((">", "2>"))), len(words))
    return words[:end]


def list_lines():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"```(?:sh|bash|console|shell)\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if re.search(r"(^|[\s|])torchcaps [a-z-]", line):
                    yield pytest.param(line, id=f"{page.name}: {line.strip()[:60]}")
        for line in re.findall(r"`(torchcaps [a-z][^`]*)`", text):
            if not re.search(r"[|*…]", line):
                yield pytest.param(line, id=f"{page.name}: {line.strip()[:60]}")


def list_examples():
    for name, command in COMMANDS.items():
        for line in command.examples.splitlines():
            if re.search(r"(^|\s)torchcaps [a-z]", line):
                example = re.split(r"   +", line.strip())[0]
                yield pytest.param(example, id=f"help of {name}: {example}")


@pytest.mark.parametrize("line", [*list_lines(), *list_examples()])
def test_it_is_understood(line):
    words = split_line(line)
    if not words or words[0].startswith("-"):
        return
    name, *rest = words
    assert name in COMMANDS, f"there is no command {name}"
    known = [*list_known_keys(), "--help"]
    if COMMANDS[name].parse is None:
        options = {*make_command_parser(name).list_options(), "--help", "--debug"}
    else:
        options = {*KeyParser(COMMANDS[name].add_arguments).list_options(), "--help", "--debug"}
    given = [word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"]
    for option in given:
        plain = option[2:].replace("-", "_")
        free = plain.startswith(("data.options.", "model.options.")) and "--data.name" in options
        assert option in options or free or plain in known, f"{name} has no option {option}"
    if "--help" in rest:
        return
    if COMMANDS[name].parse is not None and not re.search(r"[A-Z]{2,}|\bN\b", line):
        parse_with_keys(rest, COMMANDS[name].add_arguments)


def test_there_are_some():
    assert len(list(list_lines())) > 50
