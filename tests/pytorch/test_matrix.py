"""Every transform of torch on every layer with every routing, and on every model: right, or refused with a sentence.

``make test`` runs each transform on a few subjects, ``make matrix`` all cells, and writes what docs/pytorch.md shows.
"""

import contextlib
import csv
import os
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from comparing import WrongValueError
from sharding import require_sharded, shard_all
from subjects import SUBJECTS
from transforms import FSDP2, TRANSFORMS

NO_FORWARD_LSTM = "Trying to use forward AD with mkldnn_rnn_layer that does not support it"
REFUSALS = {
    # All are torch's own, of its LSTM; none may be of an op of torchcaps.
    ("jvp", "text-*lstm"): NO_FORWARD_LSTM,
    ("jacfwd", "text-*lstm"): NO_FORWARD_LSTM,
    ("dual numbers", "text-*lstm"): NO_FORWARD_LSTM,
    ("jacobian(vectorize)", "text-*lstm"): NO_FORWARD_LSTM,
    ("vmap", "text-*lstm"): "Batching rule not implemented for aten::lstm.input",
    ("vmap(grad)", "text-*lstm"): "doesn't match the broadcast shape",
}
"""(transform, pattern of subjects): a sentence that the error contains."""

SHOWN = (
    "CapsuleLinear-dynamic", "CapsuleLinear-em", "CapsuleConv2d-dynamic", "CapsuleConv2d-em", "capsnet-small",
    "matrix-capsnet-small", "text-capsnet-a",
)  # fmt: skip
"""The subjects of ``make test``."""
FEWER = {
    "AOTInductor": SHOWN[:1],
    "compile": ("CapsuleLinear-dynamic", "capsnet-small"),
    "export": ("CapsuleLinear-dynamic", "CapsuleConv2d-dynamic"),
    "export strict": SHOWN[:1],
    "hessian": SHOWN[:5],
    "jacfwd": SHOWN[:3],
    "jacobian(vectorize)": SHOWN[:3],
    "trace": SHOWN[:5],
}
"""Of transforms that take seconds."""


def _cells():
    for transform in (*TRANSFORMS, FSDP2):
        for name in SUBJECTS:
            long = name not in FEWER.get(transform, SHOWN)
            yield pytest.param(transform, name, marks=[pytest.mark.long] if long else [], id=f"{transform}-{name}")


def refusal(transform, name):
    """The sentence with which a cell is refused, None if it is not."""
    found = [sentence for (what, of), sentence in REFUSALS.items() if what == transform and fnmatch(name, of)]
    return found[0] if found else None


@pytest.fixture(scope="session")
def sharded(request, tmp_path_factory):
    """What became of all subjects that are asked for under FSDP2, in one pair of processes however many tests run."""
    names = [item.callspec.params["name"] for item in request.session.items if _is_sharded(item)]
    folder = tmp_path_factory.getbasetemp()
    return shard_all(names, folder.parent if hasattr(request.config, "workerinput") else folder)


def _is_sharded(item):
    return hasattr(item, "callspec") and item.callspec.params.get("transform") == FSDP2


@pytest.mark.parametrize(("transform", "name"), [*_cells()])
def test_cell(transform, name, request, record_property):
    if transform == "AOTInductor" and shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("AOTInductor needs a C++ compiler")
    if transform == FSDP2 and not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("this version of torch has FSDP2 on GPUs only")
    sentence = refusal(transform, name)
    for key, value in (("transform", transform), ("subject", name), ("sentence", sentence or "")):
        record_property(key, value)
    expectation = contextlib.nullcontext() if sentence is None else pytest.raises(Exception, match=re.escape(sentence))
    try:
        with expectation:
            if transform == FSDP2:
                require_sharded(name, request.getfixturevalue("sharded"))
            else:
                TRANSFORMS[transform](SUBJECTS[name])
    except WrongValueError:
        record_property("outcome", "wrong value")
        raise
    record_property("outcome", "passes" if sentence is None else "refuses")


@pytest.mark.skipif("TORCHCAPS_MATRIX" in os.environ, reason="the results are about to be written")
def test_the_results_have_every_cell_and_none_is_wrong():
    with (Path(__file__).parents[2] / "results" / "pytorch.csv").open(encoding="utf-8") as file:
        found = {(row["transform"], row["subject"]): row["outcome"] for row in csv.DictReader(file)}
    cells = {(transform, name) for transform in (*TRANSFORMS, FSDP2) for name in SUBJECTS}
    assert set(found) == cells, "make matrix writes the results of all cells"
    assert {cell: outcome for cell, outcome in found.items() if outcome not in ("passes", "refuses")} == {}


def test_refusals_are_of_cells_that_exist():
    for transform, pattern in REFUSALS:
        assert transform in TRANSFORMS
        assert any(fnmatch(name, pattern) for name in SUBJECTS)
