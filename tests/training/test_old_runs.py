"""Run folders that an earlier version has made (0.1.0): they open, measure the same and go on where they were.

Both were stopped in their second epoch of two; ``*-finished`` is what the same training, not stopped, came to there.
The weights are compared with some room: other processors round differently.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from torchcaps.cli import main

OLD = Path(__file__).parents[1] / "fixtures" / "old_runs"
SLACK = 0.005  # of accuracy: a few of 1,000 answers that lie on the border


def call(*words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert end.value.code == 0


@pytest.fixture(params=["images", "text"])
def old_run(request, tmp_path):
    shutil.copytree(OLD / request.param, tmp_path / request.param)
    return tmp_path / request.param


def evaluated(run, capsys):
    call("evaluate", str(run), "--json")
    return json.loads(capsys.readouterr().out)


def test_an_old_run_measures_the_same(old_run, capsys):
    then = json.loads((OLD / old_run.name / "evaluation.json").read_text())
    now = evaluated(old_run, capsys)
    for kind in ("images", "texts"):
        assert now.get(kind) == then.get(kind)
    assert now["accuracy"] == pytest.approx(then["accuracy"], abs=SLACK)
    assert now["accuracy_per_class"] == pytest.approx(then["accuracy_per_class"], abs=0.03)


def test_an_old_run_goes_on_to_the_same_end(old_run, capsys):
    call("train", "--resume", str(old_run))
    capsys.readouterr()
    then, now = (
        load_file(path) for path in (OLD / f"{old_run.name}-finished.safetensors", old_run / "weights.safetensors")
    )
    assert then.keys() == now.keys()
    for name, tensor in then.items():
        torch.testing.assert_close(now[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
    assert [line.split(",")[0] for line in (old_run / "metrics.csv").read_text().splitlines()] == ["epoch", "0", "1"]
    finished = json.loads((OLD / f"{old_run.name}-finished.json").read_text())
    assert evaluated(old_run, capsys)["accuracy"] == pytest.approx(finished["accuracy"], abs=SLACK)
