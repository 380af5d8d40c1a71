"""Tiny data and recipes that train in a second."""

import numpy as np
import pytest

from torchcaps.commands.keys import read_keys
from torchcaps.training.recipes import recipe_from_file

CLASSES = 3


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory):
    """90 images of 12×12 in three classes that a blind man could tell apart, as .npz."""
    generator = np.random.default_rng(0)
    labels = np.arange(90) % CLASSES
    images = generator.integers(0, 60, (90, 12, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    np.savez(path, x=images, y=labels)
    return path


@pytest.fixture
def tiny_recipe(tiny_data):
    """Makes a recipe on the tiny data: recipe(*overrides)."""

    def make(*overrides):
        base = (
            "--data.name",
            str(tiny_data),
            "--data.validation",
            "0.25",
            "--epochs",
            "3",
            "--training.batch_size",
            "6",
        )
        return recipe_from_file("quickstart", read_keys([*base, "--training.checkpoint_every", "3", *overrides]))

    return make
