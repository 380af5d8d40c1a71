"""Numbers in the docs are those of the results."""

import csv
from pathlib import Path

ROOT = Path(__file__).parent.parent


def rows(name):
    with (ROOT / "results" / name).open() as file:
        return list(csv.DictReader(file))


def test_performance_table_is_that_of_the_results():
    text = (ROOT / "docs" / "performance.md").read_text()
    for row in rows("routing.csv"):
        assert f"| {row['what']} |" in text
        assert f"| {float(row['measured']):.3g} {row['unit']} |" in text, row


def test_table_of_small_models_is_that_of_the_results():
    text = (ROOT / "docs" / "models.md").read_text()
    for row in rows("capsnet_small.csv"):
        if row["epochs"] == "15":
            assert f"| {row['candidate']} | {int(row['parameters']):,} |" in text
            assert f"| {row['held_out_accuracy_percent']} | {row['training_seconds']} |" in text
