"""Writes what became of every cell: ``TORCHCAPS_MATRIX=results/pytorch.csv``, as ``make matrix`` does."""

import csv
import os

import torch

COLUMNS = ("transform", "subject", "outcome", "sentence", "torch", "command")
_cells = []


def pytest_runtest_logreport(report):
    """One cell has been run, here or by another process; of a cell that fails in its set-up only that is reported."""
    found = dict(report.user_properties)
    if "transform" in found and (report.when == "call" or report.failed):
        found.setdefault("outcome", "fails")
        _cells.append({**found, "torch": torch.__version__.split("+")[0], "command": "make matrix"})


def pytest_sessionfinish(session):
    """Only the process that has all reports writes."""
    path = os.environ.get("TORCHCAPS_MATRIX")
    if not path or hasattr(session.config, "workerinput"):
        return
    from subjects import SUBJECTS
    from transforms import FSDP2, TRANSFORMS

    order = {pair: at for at, pair in enumerate((t, s) for t in (*TRANSFORMS, FSDP2) for s in SUBJECTS)}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(_cells, key=lambda cell: order[cell["transform"], cell["subject"]]))
