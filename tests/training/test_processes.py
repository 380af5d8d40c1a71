"""Real processes: killed at random, interrupted, and two at a time."""

import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from torchcaps.training import runs

TORCHCAPS = [sys.executable, "-m", "torchcaps"]


def arguments(tiny_data, *more):
    base = ["train", "--data.name", str(tiny_data), "--data.validation", "0.25", "--training.batch_size", "6"]
    return [*base, "--training.threads", "1", *more]


def environment():
    return {**os.environ, "PYTHONWARNINGS": "ignore"}


def rows(folder):
    with (folder / runs.METRICS).open() as file:
        return [{key: float(value) for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def run(*words, check=True, **options):
    done = subprocess.run(
        [*TORCHCAPS, *words], capture_output=True, text=True, env=environment(), timeout=240, **options
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def wait_for(path, process, seconds=120):
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def test_killed_at_random_moments_it_ends_with_the_same_weights(tiny_data, tmp_path):
    """SIGKILL three times at random, then Ctrl-C once; a checkpoint is written every step, so some hit its writing."""
    options = ("--epochs", "20", "--training.checkpoint_every", "1")
    run(*arguments(tiny_data, *options, "--output", str(tmp_path / "whole")))
    folder = tmp_path / "broken"
    command = [*TORCHCAPS, *arguments(tiny_data, *options, "--output", str(folder))]
    chance = random.Random()
    kills = [signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT]
    for number in kills:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        wait_for(folder / runs.CHECKPOINT, process)
        before = (folder / runs.CHECKPOINT).stat().st_mtime_ns
        while process.poll() is None and (folder / runs.CHECKPOINT).stat().st_mtime_ns == before:
            time.sleep(0.01)  # until it trains
        time.sleep(chance.uniform(0, 0.7))
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        command = [*TORCHCAPS, "train", "--resume", str(folder)]
        if number == signal.SIGINT and process.returncode != 0:
            assert process.returncode == 130
            assert f"torchcaps train --resume {folder}" in errors
            assert "Traceback" not in errors
    run("train", "--resume", str(folder))
    assert (folder / runs.WEIGHTS).read_bytes() == (tmp_path / "whole" / runs.WEIGHTS).read_bytes()
    assert rows(folder) == rows(tmp_path / "whole")


@pytest.mark.parametrize("launcher", ["devices", "torchrun"])
def test_two_processes_follow_the_same_curve_as_one(tiny_data, tmp_path, launcher):
    common = arguments(tiny_data, "--epochs", "3", "--seed", "5")
    run(*common, "--output", str(tmp_path / "one"))
    two = [*common, "--devices", "2", "--training.accelerator", "cpu", "--output", str(tmp_path / "two")]
    if launcher == "devices":
        done = run(*two)
    else:
        torchrun = shutil.which("torchrun", path=os.path.dirname(sys.executable))
        if torchrun is None:
            pytest.skip("torchrun is not installed beside this Python")
        done = subprocess.run(
            [torchrun, "--nproc_per_node=2", "--master_port=29531", "-m", "torchcaps", *two],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.count("Run folder:") == 1  # one process speaks and writes
    one, both = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(one) == len(both) == 3
    for a, b in zip(one, both, strict=True):
        assert a["step"] == b["step"]
        for key in ("train_loss", "val_loss", "lr"):
            assert a[key] == pytest.approx(b[key], rel=2e-3, abs=1e-5), key
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in (tmp_path / "one").iterdir()}
