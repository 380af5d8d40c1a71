import os
import subprocess
import sys

import pytest

from torchcaps.cli import main
from torchcaps.ops import routed_path


def test_info_says_which_path_and_why(capsys):
    with pytest.raises(SystemExit) as end:
        main(["info"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert routed_path() in out
    assert "capsnet-small" in out


def test_info_without_the_kernel_says_so():
    out = subprocess.check_output(
        [sys.executable, "-m", "torchcaps", "info"], text=True, env={"TORCHCAPS_NATIVE": "0", "PATH": ""}
    )
    assert "not used: torch was asked for), else torch, in chunks of children (every device)" in out


def test_unknown_commands_exit_with_two(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["inform"])
    assert stop.value.code == 2
    assert "Did you mean 'info'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["data", "list"], ["info"], ["train", "--list"]])
def test_a_reader_that_has_left_is_no_error(words):
    """As `torchcaps data list | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "torchcaps", *words], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
