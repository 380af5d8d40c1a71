"""A range test for the learning rate."""

import json
import math

import pytest
import torch

from torchcaps.cli import main
from torchcaps.training.errors import RunError
from torchcaps.training.learning_rates import find_lr, suggest_rate


def test_the_middle_of_the_fall_is_suggested():
    rates = [10.0**power for power in range(-6, 1)]
    assert suggest_rate(rates, [1, 1, 1, 0.5, 0.3, 0.2, 3]) == pytest.approx(math.sqrt(1e-4 * 1e-1), rel=0.05)
    assert suggest_rate(rates, [1, 0.5, 0.2, 0.1, 0.4]) == pytest.approx(math.sqrt(1e-6 * 1e-3), rel=0.05)
    for flat in ([1.0] * 7, [1, 1.1, 1.2], [1.0], [1, 0.99, 1.5]):
        with pytest.raises(RunError, match="falls at no learning rate") as caught:
            suggest_rate(rates, flat)
        assert caught.value.option == "optimizer.lr"


def test_the_same_recipe_gives_the_same_answer_and_nothing_is_left(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = (find_lr(tiny_recipe(), steps=40) for _ in range(2))
    assert first == second
    assert torch.get_rng_state().equal(before)
    assert 1e-4 < first.suggestion < 1e-1
    assert len(first.rates) == len(first.losses) <= 40
    assert all(math.isfinite(loss) for loss in first.losses)
    assert not list(tmp_path.iterdir())
    assert find_lr(tiny_recipe("--optimizer.clip", "0.5", "--training.batch_size", "1000"), steps=10).rates
    with pytest.raises(RunError, match="at least 10"):
        find_lr(tiny_recipe(), steps=3)


def test_the_command_shows_a_table_or_json(tiny_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = []
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as end:
            main(["train", "--data.name", str(tiny_data), "--training.batch_size", "6", "--find-lr", *more])
        assert end.value.code == 0
        found.append(capsys.readouterr().out)
    values = json.loads(found[1])
    assert set(values) == {"suggestion", "rates", "losses"}
    assert found[0].splitlines()[-1].endswith(f"--optimizer.lr {values['suggestion']:g}")
    assert 10 < len(found[0].splitlines()) < 20
    assert not list(tmp_path.iterdir())
