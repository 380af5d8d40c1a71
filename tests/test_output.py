"""What commands print and write: JSON that every program reads, and silence when nobody listens any more."""

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

import torchcaps
from torchcaps.cli import main
from torchcaps.io import dump_json, write_json
from torchcaps.pretrained import weights_path
from torchcaps.training import runs

PACKAGE = Path(torchcaps.__file__).parent
OWN = {
    "io.py": "the one place",
    "ops/plan.py": "the options of a custom op, which nobody sees",
    "training/specs.py": "the header of a weights file, byte by byte as ever",
    "experiments/step_cost.py": "words for a process of its own",
    "experiments/base.py": "a value as one would type it",
    "experiments/trained.py": "what a hash is taken of",
    "data/text/rows.py": "a label",
}
"""Modules that may make JSON by themselves, and what of."""


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def read_strictly(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_made_in_one_place():
    making = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps", "JSONEncoder"):
                making.add(path.relative_to(PACKAGE).as_posix())
    assert making <= set(OWN), "give these torchcaps.io.dump_json or write_json"


def test_json_is_valid_whatever_is_in_it(tmp_path):
    odd = {
        "a": math.nan,
        "b": [math.inf, (-math.inf, 1.5)],
        3: {"c": True},
        "d": os.fsdecode(b"caf\xe9\x9b"),
        "e": "é\x9b",
    }
    expected = {"a": None, "b": [None, [None, 1.5]], "3": {"c": True}, "d": odd["d"], "e": odd["e"]}
    for text in (dump_json(odd), dump_json(odd, indent=2), dump_json(odd, ascii_only=True)):
        assert read_strictly(text) == expected
        assert "\x9b" not in text, "a command to a terminal"
        text.encode("utf-8")
    assert dump_json(odd, ascii_only=True).isascii()
    write_json(tmp_path / "odd.json", odd)
    assert read_strictly((tmp_path / "odd.json").read_text(encoding="utf-8")) == expected


def test_scores_that_are_no_numbers_are_null(monkeypatch, capsys, tmp_path):
    from PIL import Image

    from torchcaps.training.tasks import ImageTask

    score = ImageTask.score
    monkeypatch.setattr(ImageTask, "score", lambda *given: score(*given) * math.nan)
    Image.new("L", (28, 28)).save(tmp_path / "a.png")
    assert call("predict", "mnist", tmp_path / "a.png", "--json") == 0
    assert set(read_strictly(capsys.readouterr().out)["scores"].values()) == {None}


@pytest.mark.parametrize(
    "words", [["data", "list"], ["train", "--help"], ["predict", "mnist", "-", "--json"]], ids=lambda words: words[0]
)
def test_a_reader_that_leaves_is_no_error(words, tmp_path):
    """As `head -1` does; here before the first line, so that it does not depend on how large a pipe is."""
    from PIL import Image

    Image.new("L", (28, 28)).save(tmp_path / "a.png")
    read, write = os.pipe()
    with open(write, "wb") as out:
        done = subprocess.Popen(
            [sys.executable, "-m", "torchcaps", *words], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE
        )
    os.close(read)
    _, err = done.communicate(f"{tmp_path / 'a.png'}\n".encode() * 200)
    assert (done.returncode, err) == (0, b"")


@pytest.mark.parametrize("place", ["weight", "running_mean", "running_var"])
@pytest.mark.parametrize("command", ["evaluate", "explain", "predict"])
def test_weights_that_are_no_numbers_are_refused(command, place, tmp_path, capsys):
    """In a run folder and in a file alone; running means are no weights, but as bad."""
    spec, tensors = runs.load_weights(weights_path("mnist"))
    name = next(name for name in tensors if name.endswith(place))
    tensors[name].flatten()[-1] = math.nan
    alone = tmp_path / "weights.safetensors"
    save_file(tensors, alone, {"torchcaps": spec.to_json()})
    folder = tmp_path / "run"
    folder.mkdir()
    save_file(tensors, folder / runs.WEIGHTS, {"torchcaps": spec.to_json()})
    more = {
        "predict": ["x.png"],
        "explain": ["--data", "mnist-mini", "--output", tmp_path / "page"],
        "evaluate": ["--data", "mnist-mini"],
    }
    for given in (folder, alone):
        assert call(command, given, *more[command]) == 2
        assert "not a number, or infinite" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_weights_too_large_for_the_model_are_refused(tmp_path, capsys):
    spec, tensors = runs.load_weights(weights_path("mnist"))
    name = next(name for name in tensors if name.endswith("weight"))
    tensors[name] = tensors[name].double()
    tensors[name].flatten()[0] = 1e300
    save_file(tensors, tmp_path / "large.safetensors", {"torchcaps": spec.to_json()})
    assert call("predict", tmp_path / "large.safetensors", "x.png") == 2
    assert "not a number, or infinite" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="of Linux")
def test_a_full_disk_is_told_in_a_sentence():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "torchcaps", "info"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"torchcaps: what is printed cannot be written: No space left on device.\n"
