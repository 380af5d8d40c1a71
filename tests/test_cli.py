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
    assert "torch, in chunks of children (switched off by TORCHCAPS_NATIVE=0)" in out


def test_unknown_commands_exit_with_two(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["inform"])
    assert stop.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "5000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_sleep_soon_unless_told(given, expected):
    """Set before torch is there, as libgomp reads it when it is loaded."""
    code = (
        "import os, sys; sys.argv = ['torchcaps', '--version']\n"
        "from torchcaps.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    out = subprocess.check_output([sys.executable, "-c", code], text=True, env={**kept, **given})
    assert out.splitlines()[-1] == f"{expected} False"
