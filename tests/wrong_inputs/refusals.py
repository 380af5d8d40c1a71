"""What every refusal must be: one line, few sentences, not Python's words, options that exist, nothing left behind."""

from __future__ import annotations

import functools
import os
import re
import shlex
from pathlib import Path

import pytest

from torchcaps.cli import main, make_command_parser
from torchcaps.commands import COMMANDS
from torchcaps.commands.keys import KeyParser

MOST_LETTERS = 450
MOST_SENTENCES = 4
OF_PYTHON = re.compile(
    r"Traceback|typing\.|Literal\[|Union\[|Optional\[|NoneType|<class|Expected a <|subtypes|jsonargparse|object at 0x|"
    r"Errno|\b\w*(Value|Type|Key|Index|Attribute|Runtime|Assertion|Unicode\w*|OS|Zip\w*)Error\b|not a valid|"
    r"invalid \w+ value|invalid choice|unrecognized arguments|positional argument|keyword argument|__\w+__|"
    r"\b(int|str|dict|float|tuple|bool) object\b|\bNone\b|\bTrue\b|\bFalse\b|got an unexpected|must be real number|"
    r"PytorchStreamReader|zip archive|pickle\.|Unpickl|weights_only|CUDA error|\[enforce fail|site-packages|\.py\b"
)
TO_PYTHON = re.compile(re.sub(r"NoneType\||\|\\bNone\\b\|\\bTrue\\b\|\\bFalse\\b", "", OF_PYTHON.pattern))
"""The same where somebody who writes Python is spoken to."""
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w.-]*[\w]")
FREE = ("--data.options.", "--model.options.")


@functools.cache
def list_options(command: str) -> set[str]:
    """All options that a command has."""
    if COMMANDS[command].parse is not None:
        return {*KeyParser(COMMANDS[command].add_arguments).list_options(), "--help", "--debug"}
    return {*make_command_parser(command).list_options(), "--help", "--debug"}


def list_unknown_options(message: str, command: str | None) -> list[str]:
    """Options in a message, and in commands that it quotes, that there are not."""
    strange = []
    for quoted in re.findall(r"`torchcaps ([^`]+)`|(?:with|type|:) torchcaps (\w+ [^.;]*)", message):
        words = shlex.split((quoted[0] or quoted[1]).replace("'", ""))
        if words and words[0] in COMMANDS:
            strange += [word for word in words[1:] if word.startswith("--") and word not in list_options(words[0])]
    if command is not None:
        rest = re.sub(
            r"`[^`]+`|torchcaps \w+ [^.;]*|has no option \S+|takes no value, got .*|got .*|'[^']*'", "", message
        )
        known = list_options(command)
        strange += [name for name in OPTION.findall(rest) if name not in known and not name.startswith(FREE)]
    return strange


def assert_refusal(message: str, command: str | None = None, words: re.Pattern[str] = OF_PYTHON) -> None:
    """A refusal as somebody is to read it; without the name of the program."""
    assert message.strip() == message, repr(message)
    assert message, "nothing was said"
    assert "\n" not in message, message
    assert len(message) <= MOST_LETTERS, f"{len(message)} letters: {message}"
    assert message.endswith((".", "?", ")", "…")), message
    assert len(re.findall(r"[.?!](?= [A-Z`]|$)", message)) <= MOST_SENTENCES, message
    assert not words.search(message), f"{words.search(message)[0]!r} in: {message}"
    assert not any(ord(letter) < 32 or ord(letter) == 127 for letter in message), repr(message)
    assert list_unknown_options(message, command) == [], message


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, with sizes and times of writing."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            status = path.lstat()
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns) if name in files else (0, 0)
    return found


class Refused:
    """``refused("train", "--epochs", "ten")``: the command ends with one sentence and leaves all as it was."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *words: object, code: int = 2) -> str:
        """The sentence."""
        before = list_files(self.folder)
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        assert end.value.code == code, (end.value.code, out, err)
        lines = [line for line in err.splitlines() if line]
        assert len(lines) == 1, err
        assert lines[0].startswith("torchcaps: "), err
        message = lines[0].removeprefix("torchcaps: ")
        command = next((str(word) for word in words if str(word) in COMMANDS), None)
        assert_refusal(message.replace(str(self.folder), "folder"), command)  # which is as long as pytest likes
        assert list_files(self.folder) == before
        return message

    def unread(self, *words: object) -> list[str]:
        """What ``predict`` says of inputs that cannot be read, a line each: the rest would have been answered."""
        before = list_files(self.folder)
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        assert end.value.code == 1, (end.value.code, out, err)
        first, *reasons = err.splitlines()
        assert first.startswith("torchcaps: "), err
        assert reasons, err
        for line in reasons:
            assert not OF_PYTHON.search(line.replace(str(self.folder), "folder")), line
            assert len(line) <= MOST_LETTERS + 300, line
        assert list_files(self.folder) == before
        return reasons
