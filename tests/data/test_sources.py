"""Batches from sources: what is random belongs to seed and index, nothing else."""

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.data.batches import EvaluationBatches, TrainingBatches
from torchcaps.data.datasets.mnist import MNISTMini
from torchcaps.data.images import Images, ImageSet, place
from torchcaps.data.options import DataOptions
from torchcaps.data.randomness import Stream, random_bits, random_integers, random_uniform, sub_seed
from torchcaps.data.registry import make_image_dataset
from torchcaps.data.sources import evaluation_source, training_sources
from torchcaps.data.splits import cut_validation
from torchcaps.data.synthetic.composed import AffineDigits, MultiDigits, ShiftedDigits
from torchcaps.errors import DataError


def some_images(count=60, side=9, classes=3, channels=1):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (count, channels, side, side), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % classes, tuple(f"c{k}" for k in range(classes)))


def sources_of(options, seed):
    return training_sources(make_image_dataset(options), options, seed)


SOURCES = {
    "images": lambda: Images(some_images()),
    "shifted": lambda: Images(some_images(), shift=2),
    "mirrored": lambda: Images(some_images(), shift=1, mirror=True),
    "multi": lambda: MultiDigits(some_images(), shift=2, canvas=14),
    "canvas": lambda: ShiftedDigits(some_images(), canvas=14),
    "affine": lambda: AffineDigits(some_images(), canvas=14),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_batch_depends_on_indices_and_seed_alone(name):
    source = SOURCES[name]()
    indices = torch.tensor([5, 17, 3, 40])
    together = source.batch(indices, 7)
    assert together.inputs.shape == (4, *source.input_shape)
    assert together.inputs.dtype == torch.float32
    assert 0 <= float(together.inputs.min()) <= float(together.inputs.max()) <= 1
    for row, index in enumerate(indices):
        alone = source.batch(index[None], 7)
        for a, b in zip(alone, together, strict=True):
            assert torch.allclose(a[0], b[row], atol=1e-6)
    if name != "images":
        assert not torch.equal(source.batch(indices, 8).inputs, together.inputs)


def test_placed_is_a_shift_with_black_border():
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)
    down_right = place(image, torch.tensor([[1, 1]]), (3, 3))
    assert down_right[0, 0].tolist() == [[0, 0, 0], [0, 1, 2], [0, 4, 5]]
    up = place(image, torch.tensor([[-2, 0]]), (3, 3))
    assert up[0, 0].tolist() == [[7, 8, 9], [0, 0, 0], [0, 0, 0]]
    far = place(image, torch.tensor([[9, 0]]), (3, 3))
    assert not far.any()
    canvas = place(image, torch.tensor([[0, 0]]), (5, 7))
    assert torch.equal(canvas[0, 0, 1:4, 2:5], image[0, 0])
    assert int(canvas.sum()) == int(image.sum())


def test_half_of_the_images_are_mirrored_whatever_their_shift():
    data = some_images()
    indices = torch.arange(len(data))
    seen = Images(data, mirror=True).batch(indices, 3).inputs
    plain = Images(data).batch(indices, 3).inputs
    turned = (seen == plain.flip(-1)).flatten(1).all(dim=1)
    straight = (seen == plain).flatten(1).all(dim=1)
    assert bool((turned | straight).all())
    many = torch.arange(4000)
    shifts = random_integers(3, many, 2, 5)
    turns = random_integers(3, many, 6, 2)[:, 5]
    assert 0.47 < turns.double().mean() < 0.53
    for shift in range(5):  # a mirror image is as likely at every shift
        assert 0.4 < turns[shifts[:, 1] == shift].double().mean() < 0.6


def test_shifts_reach_every_offset_evenly():
    offsets = random_integers(0, torch.arange(5000), 2, 5)
    counts = torch.stack([offsets[:, k].bincount(minlength=5) for k in (0, 1)])
    assert int(counts.min()) > 900
    assert int(counts.max()) < 1100


@given(st.integers(0, 2**62), st.integers(0, 2**40))
def test_random_numbers_are_in_range_and_repeatable(seed, index):
    indices = torch.tensor([index, index + 1])
    bits = random_bits(seed, indices, 4)
    assert torch.equal(bits, random_bits(seed, indices, 4))
    assert int(bits.min()) >= 0
    assert len(set(bits.flatten().tolist())) == 8
    uniform = random_uniform(seed, indices, 4)
    assert 0 <= float(uniform.min()) <= float(uniform.max()) < 1
    assert len({sub_seed(seed, stream) for stream in Stream}) == len(Stream)
    assert sub_seed(seed, Stream.ORDER, 1) != sub_seed(seed, Stream.ORDER, 2)


def test_uniform_numbers_are_uniform_and_uncorrelated():
    u = random_uniform(3, torch.arange(20_000), 2).double()
    assert abs(float(u.mean()) - 0.5) < 0.01
    assert abs(float(u.var()) - 1 / 12) < 0.003
    assert abs(float(torch.corrcoef(u.T)[0, 1])) < 0.03
    assert abs(float(torch.corrcoef(torch.stack([u[:-1, 0], u[1:, 0]]))[0, 1])) < 0.03


def test_two_digits_are_of_different_classes_and_sum_to_the_image():
    source = MultiDigits(MNISTMini().load("test"))
    batch = source.batch(torch.arange(1000), 3)
    assert batch.inputs.shape == (1000, 1, 36, 36)
    assert batch.targets.shape == (1000, 2, 1, 36, 36)
    assert (batch.labels[:, 0] != batch.labels[:, 1]).all()
    assert torch.allclose(batch.targets.sum(dim=1).clamp_max(1), batch.inputs)
    partners = source.data.labels[source.partners(torch.arange(1000), 3)]
    assert int((partners.bincount(minlength=10) > 50).sum()) == 10  # every class is paired with


def test_two_digits_need_two_classes():
    one = ImageSet(torch.ones(4, 1, 9, 9, dtype=torch.uint8), torch.zeros(4, dtype=torch.long), ("a", "b"))
    with pytest.raises(DataError, match="at least two classes"):
        MultiDigits(one)


def test_affine_without_any_transformation_is_the_centred_digit():
    data = some_images()
    still = AffineDigits(data, canvas=15, shift=0, rotation=0, shear=0, scale=(1, 1))
    expected = place(data.images[:5], torch.zeros(5, 2, dtype=torch.long), (15, 15)).float() / 255
    assert torch.allclose(still.batch(torch.arange(5), 1).inputs, expected, atol=1e-5)


def test_affine_rotation_is_a_rotation():
    data = some_images(side=9)
    source = AffineDigits(data, canvas=15, shift=0, rotation=0, shear=0, scale=(1, 1))
    quarter = torch.tensor([[[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]])
    source.matrices = lambda indices, seed: quarter.expand(len(indices), -1, -1)  # type: ignore[method-assign]
    turned = source.batch(torch.arange(1), 0).inputs[0, 0]
    upright = place(data.images[:1], torch.zeros(1, 2, dtype=torch.long), (15, 15))[0, 0].float() / 255
    assert any(torch.allclose(turned, upright.rot90(k), atol=1e-4) for k in (1, 3))


def test_an_epoch_shows_every_image_once_and_epochs_differ():
    batches = TrainingBatches(Images(some_images(60)), 8, seed=1)
    assert len(batches) == 7
    first, second = batches.indices(0).flatten().tolist(), batches.indices(1).flatten().tolist()
    assert len(set(first)) == 56
    assert first != second
    assert first == TrainingBatches(Images(some_images(60)), 8, seed=1).indices(0).flatten().tolist()
    assert first != TrainingBatches(Images(some_images(60)), 8, seed=2).indices(0).flatten().tolist()


def test_processes_share_the_same_batches_without_repeats():
    whole = TrainingBatches(Images(some_images(60), shift=1), 8, seed=1)
    parts = [TrainingBatches(Images(some_images(60), shift=1), 8, seed=1, rank=rank, world=2) for rank in (0, 1)]
    for together, one, two in zip(whole, *parts, strict=True):
        assert torch.equal(together.inputs[0::2], one.inputs)
        assert torch.equal(together.inputs[1::2], two.inputs)
    tests = [EvaluationBatches(Images(some_images(61)), 7, rank=rank, world=2) for rank in (0, 1)]
    assert sum(len(batch.labels) for part in tests for batch in part) == 61


def test_batches_resume_anywhere():
    expected = TrainingBatches(Images(some_images(40), shift=2), 10, seed=4)
    sequence = [batch.inputs for _ in range(3) for batch in expected]
    for stop in range(1, 12):
        first = TrainingBatches(Images(some_images(40), shift=2), 10, seed=4)
        seen = []
        while len(seen) < stop:
            for batch in first:
                seen.append(batch.inputs)
                if len(seen) == stop:
                    break
        again = TrainingBatches(Images(some_images(40), shift=2), 10, seed=4)
        again.load_state_dict(first.state_dict())
        while len(seen) < 12:
            seen += [batch.inputs for batch in again]
        assert all(torch.equal(a, b) for a, b in zip(seen, sequence, strict=True))


@pytest.mark.parametrize(
    ("size", "world", "words"), [(61, 1, "larger than the 60"), (0, 1, "positive"), (9, 2, "multiple of")]
)
def test_impossible_batch_sizes_are_refused(size, world, words):
    with pytest.raises(DataError, match=words):
        TrainingBatches(Images(some_images(60)), size, 0, 0, world)


def test_validation_is_cut_by_seed_from_every_class():
    labels = torch.arange(200) % 4
    train, aside = cut_validation(labels, 0.1, seed=0)
    assert sorted([*train.tolist(), *aside.tolist()]) == list(range(200))
    assert labels[aside].bincount().tolist() == [5, 5, 5, 5]
    assert torch.equal(cut_validation(labels, 0.1, seed=0)[1], aside)
    assert not torch.equal(cut_validation(labels, 0.1, seed=1)[1], aside)
    assert len(cut_validation(labels, 0.0, seed=0)[1]) == 0
    with pytest.raises(DataError, match="in \\[0, 1\\)"):
        cut_validation(labels, 1.0, 0)


@pytest.mark.parametrize("name", ["mnist-mini", "multi-mnist", "affine-mnist"])
def test_training_never_reads_the_test_images(name, monkeypatch):
    asked = []
    original = MNISTMini.load
    monkeypatch.setattr(MNISTMini, "load", lambda self, split, *rest: asked.append(split) or original(self, split))
    train, validation = sources_of(DataOptions(name=name), seed=0)
    next(iter(TrainingBatches(train, 4, 0)))
    assert validation is not None
    next(iter(EvaluationBatches(validation)))
    assert set(asked) == {"train"}


def test_validation_and_test_images_are_not_augmented():
    _, validation = sources_of(DataOptions(), seed=0)
    test = evaluation_source(MNISTMini())
    for source in (validation, test):
        assert isinstance(source, Images)
        assert source.shift == 0
    assert torch.equal(
        (test.batch(torch.arange(5), 1).inputs * 255).round().byte(), MNISTMini().load("test").images[:5]
    )


def test_the_embedded_digits():
    train, test = MNISTMini().load("train"), MNISTMini().load("test")
    assert (len(train), len(test)) == (5000, 1000)
    assert train.image_shape == (1, 28, 28)
    assert int(train.labels.bincount().min()) > 440
    assert int(test.labels.bincount().min()) > 85
    known = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in known for image in test.images)


@pytest.mark.parametrize(
    ("labels", "words"),
    [(torch.tensor([0, 1, 3]), "labels must be in 0 … 2"), (torch.tensor([0, -1, 1]), "labels must be in")],
)
def test_labels_out_of_range_are_refused(labels, words):
    with pytest.raises(DataError, match=words):
        ImageSet(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), labels, ("a", "b", "c"))


def test_sets_that_do_not_fit_together_are_refused():
    with pytest.raises(DataError, match="as many labels"):
        ImageSet(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.long), ("a",))
    with pytest.raises(DataError, match="uint8"):
        ImageSet(torch.zeros(3, 1, 4, 4), torch.zeros(3, dtype=torch.long), ("a",))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (DataOptions(name="mnits"), "Did you mean 'mnist'"),
        (DataOptions(name="no/where"), "no such folder or .npz"),
        (
            DataOptions(name="multi-mnist", options={"base": "cifar10"}),
            "base must be mnist-mini, mnist or fashion-mnist, got 'cifar10'",
        ),
    ],
)
def test_unknown_data_is_refused_with_a_hint(options, words):
    with pytest.raises(DataError, match=words):
        make_image_dataset(options)


def test_the_loader_is_never_the_bottleneck():
    batches = TrainingBatches(Images(MNISTMini().load("train"), shift=2), 128, seed=0)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        count = sum(len(batch.labels) for batch in batches)
        best = max(best, count / (time.perf_counter() - start))
    assert best > 20_000, f"{best:.0f} shifted images a second"


def test_streams_keep_the_numbers_that_runs_were_made_with():
    """Else a resumed run would go on with another order, and a validation set would hold what was trained on."""
    numbers = {
        "ORDER": 3090222187561359524,
        "AUGMENTATION": 71399735282840594,
        "VALIDATION": 1342069598973195404,
        "DROPOUT": 818860838991882577,
        "WORD_VECTORS": 4037843126049277123,
        "EXPLAINED": 3162030933930207758,
        "SAMPLES": 3501238579077305775,
    }
    assert {name: sub_seed(0, Stream[name]) for name in numbers} == numbers
