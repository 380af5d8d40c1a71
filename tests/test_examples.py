"""The examples run, and show what they say."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def toy():
    spec = importlib.util.spec_from_file_location("house_and_boat", ROOT / "examples" / "house_and_boat.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_votes_of_a_wholes_own_parts_agree_exactly(toy):
    for whole in toy.WHOLES:
        parts = toy.parts_of(whole, 0.4, -0.7)
        layer = toy.build_layer([kind for kind, _ in parts], [whole], 1)
        poses = torch.stack([toy.pose(*place) for _, place in parts])[None]
        votes = layer.votes(toy.Capsules.from_pose(poses))[0, :, 0]
        torch.testing.assert_close(votes[0], votes[1])


def test_routing_picks_the_boat(toy):
    out = toy.see(toy.boat(), ["house", "boat"])
    house, boat = out.activation[0]
    assert boat > 0.85
    assert house < 0.05
    assert (out.coupling[0, :, 1] > 0.95).all()
    assert (out.trace.activation[1:, 0, 1] >= out.trace.activation[:-1, 0, 1]).all()


def test_a_house_on_its_head_loses(toy):
    out = toy.see(toy.house_above_boat(), ["house", "boat", "house on its head"])
    house, boat, headstand = out.activation[0]
    assert min(house, boat) > 0.85
    assert headstand < 0.05
    hull, sail, wall, roof = out.coupling[0].argmax(dim=1).tolist()
    assert (hull, sail, wall, roof) == (1, 1, 0, 0)
    assert (out.trace.activation[0, 0, 2] / out.trace.activation[0, 0]).min() > 0.9  # at first all look alike


def test_the_headstand_is_what_wall_and_sail_alone_would_be(toy):
    sail, wall = toy.house_above_boat()[1:3]
    out = toy.see([sail, wall], ["house", "boat", "house on its head"])
    assert out.activation[0].argmax() == 2


def test_the_example_runs_as_the_readme_says():
    result = subprocess.run(
        [sys.executable, "examples/house_and_boat.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "A house above a boat" in result.stdout
    assert not result.stderr


def test_a_model_of_ones_own_in_one_file_is_trained_explained_and_explored(tmp_path):
    """By the command line of its own file, and by Python that imports it."""
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = generator.integers(0, 60, (60, 16, 16), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[5 * label : 5 * label + 5] += 150
    np.savez(tmp_path / "bars.npz", x=images, y=labels)
    example = ROOT / "examples" / "own_model.py"

    def call(*words):
        done = subprocess.run([sys.executable, example, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    quick = ["--training.batch_size=6", "--data.validation=0", "--epochs=3", "--model.options.width=8"]
    said = call("train", "--model.name=pooled", "--data.name=bars.npz", "--output=run", "--evaluate", *quick)
    assert "pooled, " in said
    assert "Test accuracy: " in said
    assert "Report: " in call("explain", "run", "--images", "6")
    page = (tmp_path / "run" / "explain" / "report.html").read_text()
    assert 'id="routing"' in page
    code = "import own_model; from torchcaps.explorer import create_app; print(*create_app(['run']).state.subjects)"
    listed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(example.parent)},
    )
    assert "run-run" in listed.stdout, listed.stderr
    other = subprocess.run(
        [sys.executable, "-m", "torchcaps", "evaluate", "run"], capture_output=True, text=True, cwd=tmp_path
    )
    assert other.returncode == 2, "nothing in a run is imported"
    assert "pooled" in other.stderr


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


PAGES = ("README.md", "docs/python.md", "docs/explain.md", "docs/pytorch.md")
BLOCKS = [(page, number) for page in PAGES for number in range(len(blocks(page)))]


def test_the_pages_have_code():
    assert {page for page, _ in BLOCKS} == set(PAGES)
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_code_on_a_page_runs(page, number, tmp_path, monkeypatch):
    from torchcaps import list_routings
    from torchcaps.routing import unregister_routing

    (tmp_path / "docs").symlink_to(ROOT / "docs")  # for pictures that a page opens
    monkeypatch.chdir(tmp_path)  # for runs that it makes
    before = set(list_routings())
    try:
        exec(compile(blocks(page)[number], f"{page} block {number + 1}", "exec"), {})
    finally:
        for name in set(list_routings()) - before:
            unregister_routing(name)
