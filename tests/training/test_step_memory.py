"""Memory: what a step needs is known before it begins, what would fit is told, and nothing that fits is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from torchcaps import machine
from torchcaps.data.batches import EvaluationBatches
from torchcaps.data.images import Batch, Images, ImageSet
from torchcaps.losses import CapsuleLoss
from torchcaps.models import create_model
from torchcaps.training import memory
from torchcaps.training.errors import RunError
from torchcaps.training.fit import train
from torchcaps.training.memory import Need, StepBudget, answer_out_of_memory, measure_need, measure_without_memory
from torchcaps.training.recipe import Recipe
from torchcaps.training.sizes import choose_side, settle_size
from torchcaps.training.specs import ModelSpec
from torchcaps.training.tasks import ImageTask


def source_of(shape=(1, 28, 28), count=8):
    images = torch.zeros(count, *shape, dtype=torch.uint8)
    return Images(ImageSet(images, torch.arange(count) % 10, tuple("abcdefghij")))


def budget_of(free, shape=(1, 28, 28), name="capsnet-small", **training):
    recipe = Recipe()
    recipe = replace(recipe, training=replace(recipe.training, accelerator="cpu", **training))
    source = source_of(shape)
    budget = StepBudget(ModelSpec(name, ImageTask(source.class_names, shape), {}), recipe, source)
    budget.free = free
    return budget


def test_what_is_kept_grows_with_the_batch_and_weights_do_not_count():
    layer = torch.nn.Linear(10, 20)
    items = Batch(torch.rand(2, 10), torch.arange(2), torch.rand(2, 1))
    need = measure_need(_Plain(layer), _Sum(), items)
    assert need == Need(220, 4 * (10 + 20), 0.0)  # the input and the sigmoid's output


class _Plain(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, inputs, labels):
        return torch.sigmoid(self.layer(inputs))


class _Sum(torch.nn.Module):
    def forward(self, output, labels, targets):
        return type("Parts", (), {"total": output.sum()})


def test_measuring_changes_nothing():
    model, batch = create_model("capsnet-small"), source_of().batch(torch.arange(2), 0)
    model.train()
    before, state = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    measure_need(model, CapsuleLoss(), batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_memory_it_is_the_same():
    budget = budget_of(None)
    real = measure_need(create_model("capsnet-small"), CapsuleLoss(), budget.batch)
    unreal = measure_without_memory(budget.spec, budget.recipe, budget.batch)
    assert unreal.weights == real.weights
    assert 0.5 < unreal.per_item / real.per_item < 2  # another backend may keep other things


def test_what_fits_is_never_refused_and_what_cannot_fit_is():
    told = []
    for free, outcome in ((None, ""), (10**9, ""), (11_000_000, "may"), (2_000_000, "refused")):
        budget = budget_of(free, batch_size=128)
        model = create_model("capsnet-small")
        if outcome == "refused":
            with pytest.raises(RunError) as caught:
                budget.check(model, CapsuleLoss(), told.append)
            assert caught.value.option == "training.batch_size"
            continue
        budget.check(model, CapsuleLoss(), told.append)
    assert len(told) == 1
    assert told[0].startswith("This may be too much for this machine: a training step needs at least 12 MB")


def test_the_sentence_has_numbers_and_what_would_fit():
    budget = budget_of(80_000_000, (3, 96, 96), batch_size=64)
    sentence = budget.describe()
    assert "a training step needs at least" in sentence
    assert "for a batch of 64, and 80 MB are free. What would fit: images of 48×48 with 1," in sentence
    budget.free = 250_000_000
    assert "What would fit: a batch of 16 (training.batch_size), or images of 64×64 with " in budget.describe()
    assert "(data.resize 64)." in budget.describe()


def test_processes_of_one_machine_share_its_memory():
    need = Need(1000, 10.0, 0.0)
    one, two = (budget_of(None, devices=devices) for devices in (1, 2))
    assert one.count_bytes(need, 100) == 17_000
    assert two.count_bytes(need, 100) == 33_000
    averaged = budget_of(None)
    averaged.recipe = replace(averaged.recipe, optimizer=replace(averaged.recipe.optimizer, ema=0.9))
    assert averaged.count_bytes(need, 0) == 20_000


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.cuda.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to"),
    ],
)
def test_memory_that_runs_out_is_answered(error):
    with (
        pytest.raises(RunError, match="the memory ran out: a training step needs at least"),
        answer_out_of_memory(budget_of(10**9)),
    ):
        raise error


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="something else"), answer_out_of_memory(budget_of(10**9)):
        raise RuntimeError("something else")


def test_a_training_that_cannot_fit_is_refused_before_anything_is_written(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1_000_000)
    with pytest.raises(RunError, match="needs at least .* of memory"):
        train(tiny_recipe(), tmp_path)
    assert not (tmp_path / "recipe.yaml").exists()


def test_memory_of_a_container(tmp_path):
    root, member = tmp_path / "cgroup", tmp_path / "self"
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    member.write_text("0::/a/b\n")
    assert machine._free_of_group(root, member) is None
    for folder, most, used in ((inner, "max", 0), (root / "a", "1000", 700)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text("anon 400\ninactive_file 200\nactive_file 50\n")
    assert machine._free_of_group(root, member) == 550  # the outer group's; files can be given back
    member.write_text("7:cpu:/\n5:memory:/x\n")
    old = root / "memory" / "x"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("5000")
    (old / "memory.usage_in_bytes").write_text("1000")
    (old / "memory.stat").write_text("cache 7\n")
    assert machine._free_of_group(root, member) == 4000
    (old / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert machine._free_of_group(root, member) is None
    member.write_text("nonsense")
    assert machine._free_of_group(root, member) is None


def test_large_images_are_tested_in_smaller_batches():
    assert len(EvaluationBatches(source_of(count=600))) == 2
    assert len(EvaluationBatches(source_of((3, 256, 256), 62))) == 2  # 31 at a time


# ---------------------------------------------------------------- sizes that nobody chose


def save(path, shape, count=30):
    images = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    np.savez(path, x=images, y=np.arange(count) % 3)
    return str(path)


@pytest.mark.parametrize(
    ("model", "side"),
    [("capsnet-small", 32), ("cnn-small", 32), ("capsnet-deep", 64), ("capsnet", 32), ("cnn-baseline", 32)],
)
def test_a_size_for_every_model(model, side):
    assert choose_side(model, {}, (3, 480, 640), 10) == side


def test_large_arrays_get_a_size_that_is_told_and_written(tmp_path, tiny_recipe):
    told = []
    recipe = tiny_recipe("--data.name", save(tmp_path.parent / "big.npz", (70, 90, 3)), "--epochs", "1")
    train(recipe, tmp_path, say=told.append)
    assert told[0] == (
        "The images of 70×90 are brought to 32×41 (data.resize 32), a size for capsnet-small. Choose another with "
        "data.resize; 70 leaves them as they are."
    )
    from torchcaps.training.runs import read_run_recipe

    assert read_run_recipe(tmp_path).data.resize == 32


@pytest.mark.parametrize(
    ("shape", "changes"),
    [((64, 64), {}), ((30, 90), {}), ((90, 90), {"resize": 80}), ((90, 90), {"crop": 40, "shift": 0})],
)
def test_other_sizes_stay(shape, changes, tmp_path, tiny_recipe):
    from torchcaps.data.registry import make_dataset

    recipe = tiny_recipe("--data.name", save(tmp_path.parent / "own.npz", shape))
    recipe = replace(recipe, data=replace(recipe.data, **changes))
    assert settle_size(recipe, make_dataset(recipe.data)) is recipe


def test_registered_data_stays(tiny_recipe):
    from torchcaps.data.registry import make_dataset

    recipe = tiny_recipe("--data.name", "viewpoints")
    assert settle_size(recipe, make_dataset(recipe.data)) is recipe


def test_nobody_gets_a_hundred_million_weights_unasked(tmp_path, tiny_recipe):
    keys = ("--data.name", save(tmp_path.parent / "own.npz", (64, 64, 3)), "--model.name", "cnn-baseline")
    with pytest.raises(RunError) as caught:
        train(tiny_recipe(*keys, "--loss.kind", "cross-entropy"), tmp_path)
    assert str(caught.value) == (
        "cnn-baseline would have 174,507,979 weights for images of 3×64×64. Bring them to fewer pixels (data.resize 32 "
        "gives 45,533,131), choose a smaller model (model.name), or give data.resize 64 to train it as it is."
    )
