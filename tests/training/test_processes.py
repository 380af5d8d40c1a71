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

from torchcaps.cli import main
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


def run_here(*words):
    """The same in this process, where nothing is to be stopped: a new one takes seconds to begin."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0


def wait_for(path, process, seconds=120):
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def start(command):
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )


def wait_until_it_trains(folder, process):
    wait_for(folder / runs.CHECKPOINT, process)
    before = (folder / runs.CHECKPOINT).stat().st_mtime_ns
    while process.poll() is None and (folder / runs.CHECKPOINT).stat().st_mtime_ns == before:
        time.sleep(0.01)


def test_killed_at_random_moments_it_ends_with_the_same_weights(tiny_data, tmp_path):
    """SIGKILL at random, then SIGTERM and Ctrl-C; a checkpoint is written every step, so some kills hit its writing."""
    options = ("--epochs", "20", "--training.checkpoint_every", "1")
    run_here(*arguments(tiny_data, *options, "--output", str(tmp_path / "whole")))
    folder = tmp_path / "broken"
    command = [*TORCHCAPS, *arguments(tiny_data, *options, "--output", str(folder))]
    seed = time.time_ns()
    chance = random.Random(seed)
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process = start(command)
        wait_until_it_trains(folder, process)
        time.sleep(chance.uniform(0, 0.5))
        assert process.poll() is None, "it finished before it could be stopped"
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        command = [*TORCHCAPS, "train", "--resume", str(folder)]
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 130
            assert f"torchcaps train --resume {folder}" in errors
            assert "Traceback" not in errors
    run_here("train", "--resume", str(folder))
    assert (folder / runs.WEIGHTS).read_bytes() == (tmp_path / "whole" / runs.WEIGHTS).read_bytes()
    assert rows(folder) == rows(tmp_path / "whole")
    assert not list(folder.glob(".*"))


def test_killed_before_its_first_checkpoint_it_begins_again_if_asked(tiny_data, tmp_path, capsys):
    folder = tmp_path / "run"
    process = start([*TORCHCAPS, *arguments(tiny_data, "--epochs", "1", "--output", str(folder))])
    wait_for(folder / runs.RECIPE, process)
    process.kill()
    process.communicate()
    with pytest.raises(SystemExit) as ended:
        main(["train", "--resume", str(folder)])
    assert ended.value.code == 2
    assert "--restart" in capsys.readouterr().err
    run_here("train", "--resume", str(folder), "--restart")
    assert (folder / runs.WEIGHTS).is_file()


def test_files_that_cannot_be_written_are_reported(tiny_data, tmp_path):
    """A limit on the size of files stands for a full disk."""
    resource = pytest.importorskip("resource")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    words = arguments(tiny_data, "--epochs", "1", "--output", str(tmp_path / "run"))
    done = run(*words, check=False, preexec_fn=small_files)
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_processes_are_interrupted_and_resumed(tiny_data, tmp_path):
    """Also with a decoder that has no part in the loss."""
    common = (
        "--epochs",
        "8",
        "--devices",
        "2",
        "--training.checkpoint_every",
        "1",
        "--loss.reconstruction_scale",
        "0",
    )
    run(*arguments(tiny_data, *common, "--output", str(tmp_path / "whole")))
    folder = tmp_path / "broken"
    process = start([*TORCHCAPS, *arguments(tiny_data, *common, "--output", str(folder))])
    wait_until_it_trains(folder, process)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.count("Stopped after step") == 1
    run("train", "--resume", str(folder))
    whole, broken = rows(tmp_path / "whole"), rows(folder)
    for a, b in zip(whole, broken, strict=True):
        assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.parametrize("launcher", ["devices", "torchrun"])
def test_two_processes_follow_the_same_curve_as_one(tiny_data, tmp_path, launcher):
    common = arguments(tiny_data, "--epochs", "3", "--seed", "5")
    run_here(*common, "--output", str(tmp_path / "one"))
    two = [*common, "--training.accelerator", "cpu", "--output", str(tmp_path / "two")]
    if launcher == "devices":
        done = run(*two, "--devices", "2")
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
