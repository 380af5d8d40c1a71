"""The parts of benchmarks that decide what is compared."""

import pytest
import torch

from benchmarks import matrix_capsnet, shared_computer
from benchmarks.viewpoints import matched_epochs


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
