"""A small run to spoil, a module that must never be imported, and the command line as a call."""

import shutil
import sys

import numpy as np
import pytest
from watching import CANARY, assert_sentence, watched

from torchcaps.cli import main
from torchcaps.commands.keys import read_keys
from torchcaps.training import fit
from torchcaps.training.recipes import recipe_from_file


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """A run on 30 images of 12×12, with everything that a run folder can hold. Only to be copied."""
    base = tmp_path_factory.mktemp("whole")
    labels = np.arange(30) % 3
    images = np.random.default_rng(0).integers(0, 60, (30, 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    np.savez(base / "tiny.npz", x=images, y=labels)
    keys = ["--data.name", str(base / "tiny.npz"), "--epochs", "1", "--training.batch_size", "6"]
    (base / "run").mkdir()
    fit.train(recipe_from_file("quickstart", read_keys([*keys, "--model.options.decoder", "false"])), base / "run")
    return base / "run"


@pytest.fixture(scope="session")
def whole_text_run(tmp_path_factory):
    """The same of texts."""
    base = tmp_path_factory.mktemp("whole_text")
    lines = [f"{'good fine' if i % 2 else 'bad poor'} film {i},{'up' if i % 2 else 'down'}" for i in range(40)]
    (base / "tiny.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    keys = ["--data.name", str(base / "tiny.csv"), "--epochs", "1", "--training.batch_size", "8"]
    small = ["--text.vector_size", "8", "--model.name", "text-cnn", "--loss.kind", "cross-entropy"]
    (base / "run").mkdir()
    recipe = recipe_from_file("text", read_keys([*keys, *small]))
    recipe.model.options = {}
    fit.train(recipe, base / "run")
    return base / "run"


@pytest.fixture
def run(whole_run, tmp_path):
    """A copy of the run, to be spoiled."""
    return shutil.copytree(whole_run, tmp_path / "run")


@pytest.fixture
def text_run(whole_text_run, tmp_path):
    return shutil.copytree(whole_text_run, tmp_path / "run")


@pytest.fixture
def canary(tmp_path_factory, monkeypatch):
    """On the path lies a module that leaves a file behind when it is imported or called."""
    folder = tmp_path_factory.mktemp("canary")
    sign = folder / "sung"
    lines = [f"open({str(sign)!r}, 'w').close()", f"def sing(*a, **k): open({str(sign)!r}, 'w').close()"]
    (folder / f"{CANARY}.py").write_text("\n".join([*lines, "class Bird:", "    __init__ = sing"]) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    yield sign
    assert not sign.exists()
    assert CANARY not in sys.modules


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch, canary):
    """refused("train", …): the command ends with one sentence, in time, and writes nothing outside of tmp_path."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with watched(tmp_path), pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert end.value.code == 2, (out, err)
        assert err.startswith("torchcaps: ")
        assert_sentence(err.removeprefix("torchcaps: "))
        return err

    return call


@pytest.fixture
def harmless(capsys, tmp_path, monkeypatch, canary):
    """harmless("evaluate", …): whatever it says, it is said in time, and nothing else happens."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        with watched(tmp_path), pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert end.value.code in (0, 2), (out, err)
        assert "Traceback" not in err
        if end.value.code == 2:
            assert_sentence(err.removeprefix("torchcaps: "))
        return out

    return call
