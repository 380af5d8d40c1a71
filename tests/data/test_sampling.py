"""Draws in which all classes are equally frequent, and validation that has every class."""

from types import SimpleNamespace

import pytest
import torch

from torchcaps.data.batches import TrainingBatches
from torchcaps.data.images import Batch, Images, ImageSet
from torchcaps.data.memory import make_memory_dataset
from torchcaps.data.options import DataOptions
from torchcaps.data.sampling import count_classes, draw_balanced, find_strata, read_labels
from torchcaps.data.sources import training_sources
from torchcaps.errors import DataError

SIZES = (60, 30, 4)
LABELS = torch.cat([torch.full((size,), label) for label, size in enumerate(SIZES)])


def images(labels=LABELS, shift=0):
    pixels = torch.arange(len(labels) * 64).remainder(251).view(-1, 1, 8, 8).to(torch.uint8)
    return Images(ImageSet(pixels, labels, ("a", "b", "c")), shift)


def test_every_class_comes_equally_often_and_items_take_turns():
    batches = TrainingBatches(images(), 9, seed=1, sampling="balanced")
    drawn = batches.indices(0)
    assert drawn.shape == (10, 9)
    assert LABELS[drawn.flatten()].bincount().tolist() == [30, 30, 30]
    times = drawn.flatten().bincount(minlength=94)
    assert int(times[:60].max()) == 1
    assert set(times[60:90].tolist()) == {1}
    assert set(times[90:].tolist()) <= {7, 8}  # 30 draws of 4
    assert not torch.equal(drawn, batches.indices(1))
    assert torch.equal(drawn, TrainingBatches(images(), 9, seed=1, sampling="balanced").indices(0))


def test_a_remainder_goes_to_some_classes():
    drawn = draw_balanced(LABELS, 20, torch.Generator().manual_seed(0))
    assert sorted(LABELS[drawn].bincount().tolist()) == [6, 7, 7]
    assert len(draw_balanced(LABELS, 2, torch.Generator().manual_seed(0))) == 2


def test_processes_share_the_same_global_batches():
    whole = list(TrainingBatches(images(shift=2), 8, 3, sampling="balanced"))
    parts = [list(TrainingBatches(images(shift=2), 8, 3, rank, 2, "balanced")) for rank in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):
        assert torch.equal(batch.inputs[0::2], first.inputs)
        assert torch.equal(batch.inputs[1::2], second.inputs)


def test_an_epoch_is_taken_up_anywhere_and_a_repeated_item_is_moved_anew():
    batches = TrainingBatches(images(shift=2), 9, 1, sampling="balanced")
    whole = list(batches)
    again = TrainingBatches(images(shift=2), 9, 1, sampling="balanced")
    again.load_state_dict({"epoch": 0, "position": 4})
    for left, right in zip(whole[4:], again, strict=True):
        assert torch.equal(left.inputs, right.inputs)
    order = batches.indices(0)
    seen = {tuple(b.inputs[at].flatten().tolist()) for b, row in zip(whole, order, strict=True)
            for at in (row == 90).nonzero()[:, 0].tolist()}  # fmt: skip
    assert len(seen) > 2


def test_of_several_labels_the_rarest_counts():
    flags = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]]).bool()
    assert count_classes(flags, 3).tolist() == [4, 3, 3]
    assert find_strata(flags).tolist() == [1, 0, 2, 1, 3, 1]
    assert find_strata(LABELS) is LABELS


def test_labels_of_a_source_without_data():
    def batch(indices, seed):
        return Batch(indices, torch.stack([indices % 3, indices % 2], dim=1), indices)

    class Made(SimpleNamespace):
        def __len__(self):
            return 7

    assert read_labels(Made(batch=batch)).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert torch.equal(read_labels(images()), LABELS)


def test_another_sampling():
    with pytest.raises(DataError, match="data.sampling must be shuffled or balanced, got 'fair'"):
        DataOptions(sampling="fair")


def test_validation_has_every_class_that_has_two_items():
    generator = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.zeros(100).long(), torch.ones(2).long(), torch.full((3,), 2), torch.tensor([3])])
    pixels = torch.randint(0, 255, (len(labels), 8, 8), dtype=torch.uint8, generator=generator)
    for seed in range(5):
        dataset = make_memory_dataset((pixels, labels), (pixels, labels))
        train, validation = training_sources(dataset, DataOptions(validation=0.1, shift=0), seed)
        assert read_labels(validation).bincount(minlength=4).tolist() == [10, 1, 1, 0]
        assert read_labels(train).bincount().tolist() == [90, 1, 2, 1]
