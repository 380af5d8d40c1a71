"""Numbers in the docs are those of the results."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def rows(name):
    with (ROOT / "results" / name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["routing.csv", "matrix_capsnet.csv", "convolution.csv", "step.csv"])
def test_performance_tables_are_those_of_the_results(name):
    text = (ROOT / "docs" / "performance.md").read_text()
    for row in rows(name):
        assert f"| {row['what']} |" in text
        assert f"| {float(row['measured']):.3g} {row['unit']} |" in text, row


def test_table_of_small_models_is_that_of_the_results():
    text = (ROOT / "docs" / "models.md").read_text()
    for row in rows("capsnet_small.csv"):
        if row["epochs"] == "15":
            assert f"| {row['candidate']} | {int(row['parameters']):,} |" in text
            assert f"| {row['held_out_accuracy_percent']} | {row['training_seconds']} |" in text


def quickstart():
    found = [float(row["test_accuracy_percent"]) for row in rows("training.csv") if row["recipe"] == "quickstart"]
    mean = sum(found) / len(found)
    spread = (sum((x - mean) ** 2 for x in found) / (len(found) - 1)) ** 0.5
    return f"{mean:.2f} ± {spread:.2f} %"


def test_training_table_is_that_of_the_results():
    text = (ROOT / "docs" / "training.md").read_text()
    for row in rows("training.csv"):
        line = f"| `{row['recipe']}` | `{row['model']}` | {row['seed']} | {row['epochs']} |"
        numbers = ("test_accuracy_percent", "images_per_second", "training_seconds", "peak_memory_gb")
        assert f"{line} {' | '.join(row[number] for number in numbers)} |" in text
    assert quickstart() in text
    assert quickstart() in (ROOT / "README.md").read_text()


def test_tables_are_up_to_date(tmp_path):
    """Writing them again changes nothing."""
    for part in ("docs", "results", "scripts"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "README.md", tmp_path)
    subprocess.run([sys.executable, tmp_path / "scripts" / "doc_tables.py"], check=True)
    for page in (
        "README.md",
        "docs/performance.md",
        "docs/models.md",
        "docs/training.md",
        "docs/text.md",
        "docs/experiments.md",
        "docs/explorer.md",
        "docs/pytorch.md",
    ):
        assert (tmp_path / page).read_text() == (ROOT / page).read_text(), f"run python scripts/doc_tables.py: {page}"
