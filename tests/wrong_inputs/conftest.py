"""An empty folder to be in, and small runs of images and texts that no refusal may change."""

import numpy as np
import pytest
from refusals import Refused

from torchcaps.commands.keys import read_keys
from torchcaps.training import fit
from torchcaps.training.recipes import recipe_from_file


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return Refused(tmp_path, capsys)


@pytest.fixture(scope="session")
def image_run(tmp_path_factory):
    """A run on 30 images of 12×12."""
    base = tmp_path_factory.mktemp("wrong_images")
    labels = np.arange(30) % 3
    images = np.random.default_rng(0).integers(0, 60, (30, 12, 12), dtype=np.uint8)
    np.savez(base / "tiny.npz", x=images, y=labels)
    keys = ["--data.name", str(base / "tiny.npz"), "--epochs", "1", "--training.batch_size", "6"]
    (base / "run").mkdir()
    fit.train(recipe_from_file("quickstart", read_keys([*keys, "--model.options.decoder", "false"])), base / "run")
    return base / "run"


@pytest.fixture(scope="session")
def text_run(tmp_path_factory):
    """A run on 40 texts."""
    base = tmp_path_factory.mktemp("wrong_texts")
    lines = [f"{'good fine' if i % 2 else 'bad poor'} film {i},{'up' if i % 2 else 'down'}" for i in range(40)]
    (base / "tiny.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    keys = ["--data.name", str(base / "tiny.csv"), "--epochs", "1", "--training.batch_size", "8"]
    small = ["--text.vector_size", "8", "--model.name", "text-cnn", "--loss.kind", "cross-entropy"]
    recipe = recipe_from_file("text", read_keys([*keys, *small]))
    recipe.model.options = {}
    (base / "run").mkdir()
    fit.train(recipe, base / "run")
    return base / "run"
