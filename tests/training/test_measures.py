"""What is measured of answers, against scikit-learn, torchmetrics and numbers by hand."""

import json
import math

import pytest
import torch
from sklearn import metrics as sklearn
from torchmetrics.functional.classification import multiclass_calibration_error

from torchcaps.training.tasks.metrics import find_unanswered, measure_answers

NAMES = tuple("abcdefg")


@pytest.fixture(scope="module")
def answers():
    """Scores of 400 items that are right more often than not, one class rare and one never there."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 6, (400,), generator=generator)
    labels[:390][labels[:390] == 5] = 0
    scores = torch.rand(400, 7, generator=generator)
    scores[torch.arange(400), labels] += 0.4
    return scores / 1.5, labels


def test_measures_agree_with_scikit_learn(answers):
    scores, labels = answers
    measures, said = measure_answers(scores, labels, NAMES), scores.argmax(dim=1)
    assert measures["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, said))
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        assert measures["balanced_accuracy"] == pytest.approx(sklearn.balanced_accuracy_score(labels, said))
    macro = sklearn.precision_recall_fscore_support(labels, said, average="macro", zero_division=0)
    assert [measures[f"macro_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(list(macro[:3]))
    for k in (3, 5):
        expected = sklearn.top_k_accuracy_score(labels, scores, k=k, labels=range(7))
        assert measures[f"top_{k}_accuracy"] == pytest.approx(expected)
    assert measures["confusion_matrix"] == sklearn.confusion_matrix(labels, said, labels=range(7)).tolist()
    assert [row["answered"] for row in measures["per_class"].values()] == said.bincount(minlength=7).tolist()
    json.dumps(measures, allow_nan=False)


def test_calibration_agrees_with_torchmetrics_and_its_bins(answers):
    scores, labels = answers
    measures = measure_answers(scores, labels, NAMES)
    expected = float(multiclass_calibration_error(scores, labels, 7, n_bins=15))
    assert measures["calibration_error"] == pytest.approx(expected, abs=1e-6)
    bins = measures["reliability"]
    assert all((row["count"] == 0) == (row["accuracy"] is None) for row in bins)
    assert sum(row["count"] for row in bins) == 400
    gaps = sum(row["count"] * abs(row["accuracy"] - row["confidence"]) for row in bins if row["count"])
    assert measures["calibration_error"] == pytest.approx(gaps / 400, abs=1e-6)
    assert all(row["low"] <= row["confidence"] <= row["high"] for row in bins if row["count"])


def test_calibration_by_hand():
    scores = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [1.0, 0.0]])
    measures = measure_answers(scores, torch.tensor([0, 1, 1, 0]), ("a", "b"))
    # 0.9 twice, half of them right; 0.7 once, right; 1 once, right: in the last bin
    assert measures["calibration_error"] == pytest.approx((2 * 0.4 + 0.3 + 0) / 4, abs=1e-6)
    assert measures["reliability"][-1]["count"] == 1
    assert measures["reliability"][13] == {
        "low": 13 / 15, "high": 14 / 15, "count": 2, "confidence": pytest.approx(0.9), "accuracy": 0.5
    }  # fmt: skip


def test_lengths_beyond_one_count_as_one():
    scores = torch.tensor([[1.4, 0.2], [0.1, 1.2]])
    measures = measure_answers(scores, torch.tensor([0, 1]), ("a", "b"))
    assert measures["calibration_error"] == pytest.approx(0, abs=1e-6)


def test_few_classes_have_no_top():
    measures = measure_answers(torch.rand(5, 3), torch.tensor([0, 1, 2, 0, 1]), ("a", "b", "c"))
    assert not any(key.startswith("top_") for key in measures)
    assert "top_3_accuracy" in measure_answers(torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1]), tuple("abcd"))


def test_classes_that_are_never_answered():
    scores = torch.tensor([[0.9, 0.1, 0.2]] * 4)
    measures = measure_answers(scores, torch.tensor([0, 0, 0, 1]), ("a", "b", "c"))
    assert find_unanswered(measures) == {"b": 1}  # nothing is of class c, so nobody can answer it
    assert measures["accuracy"] == 0.75
    assert measures["balanced_accuracy"] == 0.5


def test_several_labels_have_macro_averages_and_calibration():
    labels = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]]).bool()
    scores = torch.tensor([[0.8, 0.7, 0.1], [0.2, 0.9, 0.3], [0.4, 0.6, 0.1], [0.1, 0.2, 0.4]])
    measures = measure_answers(scores, labels, ("a", "b", "c"))
    macro = sklearn.precision_recall_fscore_support(labels, scores > 0.5, average="macro", zero_division=0)
    assert [measures[f"macro_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(list(macro[:3]))
    assert measures["balanced_accuracy"] == pytest.approx(measures["macro_recall"])
    assert sum(row["count"] for row in measures["reliability"]) == 12
    assert find_unanswered(measures) == {"c": 2}
    assert "confusion_matrix" not in measures


def test_several_objects():
    scores = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8]])
    measures = measure_answers(scores, torch.tensor([[0, 1], [1, 0]]), ("a", "b", "c"))
    assert measures["share_of_objects_found"] == 0.75
    assert measures["balanced_accuracy"] == 0.75
    assert math.isfinite(measures["calibration_error"])


def test_one_class_alone():
    flags = torch.tensor([[True], [False]])
    measures = measure_answers(torch.tensor([[0.8], [0.3]]), flags, ("a",))
    assert measures["per_class"]["a"] == {"precision": 1, "recall": 1, "f1": 1, "count": 1, "answered": 1}
