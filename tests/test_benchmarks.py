"""The parts of benchmarks that decide what is compared."""

import pytest
import torch

from benchmarks import imbalance, matrix_capsnet, shared_computer
from benchmarks.viewpoints import matched_epochs
from torchcaps.data.datasets.mnist import MNISTMini


def test_networks_are_matched_on_familiar_views():
    """The one that ends better goes back to the epoch nearest to the other's last; the other stays at its last."""
    assert matched_epochs([30, 20, 12, 8], [40, 25, 15, 13]) == (2, 3)
    assert matched_epochs([40, 25, 15, 13], [30, 20, 12, 8]) == (3, 2)
    assert matched_epochs([9, 9], [9, 9]) == (1, 1)


def test_plain_em_is_the_same_network():
    """What the kernel is compared with gives the same loss and gradients."""
    assert matrix_capsnet.check_agreement(1) < 1e-9


def test_networks_that_disagree_are_not_compared(monkeypatch):
    original = matrix_capsnet.network

    def network(plain):
        model = original(plain)
        with torch.no_grad():
            model.class_capsules.weight.mul_(1.001 if plain else 1)
        return model

    monkeypatch.setattr(matrix_capsnet, "network", network)
    with pytest.raises(SystemExit, match="disagree"):
        matrix_capsnet.check_agreement(1)


def test_how_much_slower_is_by_medians_of_whole_commands():
    cases = {
        "alone": [10, 8, 9],
        "beside a busy process": [12, 18, 50],
        "beside a busy process that comes later": [27] * 3,
    }
    found = {case: [shared_computer.Training(s, {}) for s in seconds] for case, seconds in cases.items()}
    rows = shared_computer.make_rows(found, "command")
    assert [row[2] for row in rows] == ["9", "2", "3", "0"]


@pytest.fixture
def digits(monkeypatch):
    """Those of the package; none are held out."""
    monkeypatch.setattr(imbalance, "HELD_OUT", 0)
    return MNISTMini().load("train")


def test_one_digit_is_a_hundred_times_rarer(digits):
    for name, problem in imbalance.PROBLEMS.items():
        assert problem.many == 100 * problem.few, name
    problem = imbalance.PROBLEMS["ten-500"]
    chosen = imbalance.choose_digits(digits, problem, seed=1)
    counts = chosen.labels.bincount(minlength=10).tolist()
    assert counts.pop(8) == 5
    assert all(450 < count <= 500 for count in counts)  # the package has hardly more of some digits
    other = imbalance.choose_digits(digits, problem, seed=2)
    assert not torch.equal(chosen.images[chosen.labels == 8], other.images[other.labels == 8])


@pytest.mark.long
def test_class_weights_find_five_among_five_hundred(digits):
    """Without them the rare digit is never answered, and that is told."""
    judges = MNISTMini().load("test")
    without, weighted = (imbalance.run("pair-500", remedy, 0, digits, judges) for remedy in ("none", "class weights"))
    assert float(without["recall_of_rare_percent"]) < 10
    assert without["told_before"]
    assert without["told_after"]
    assert float(weighted["recall_of_rare_percent"]) > 50
    assert float(weighted["precision_of_rare_percent"]) > 80
    assert not weighted["told_before"]
