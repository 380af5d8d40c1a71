"""Images and texts that are in memory: arrays, tensors, a torch Dataset, lists."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from torchcaps.data.image_arrays import read_image_arrays
from torchcaps.data.memory import MemoryImages, MemoryTexts, make_image_set, make_text_set
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.sources import evaluation_source, text_sources, training_sources
from torchcaps.data.text.files import read_text_file
from torchcaps.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 6, 5), dtype=np.uint8)
LABELS = np.arange(30) % 3


class Pairs(TorchDataset):
    """A torch Dataset that makes each image when it is asked for."""

    def __init__(self, make, labels=LABELS, classes=None):
        self.make, self.labels = make, labels
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.make(PIXELS[index]), self.labels[index]


COLOURED = np.stack([PIXELS, PIXELS // 2, PIXELS // 3], axis=-1)
FORMS = {
    "arrays": (PIXELS, LABELS),
    "tensors": (torch.from_numpy(PIXELS), torch.from_numpy(LABELS)),
    "floats": (PIXELS / 255, LABELS.tolist()),
    "channels first": (PIXELS[:, None], LABELS[:, None]),
    "channels last": [PIXELS[..., None], LABELS],
    "a TensorDataset": TensorDataset(torch.from_numpy(PIXELS)[:, None] / 255, torch.from_numpy(LABELS)),
    "a Dataset of tensors": Pairs(lambda image: torch.from_numpy(image)[None].float() / 255),
    "a Dataset of tensors without channels": Pairs(torch.from_numpy),
    "a Dataset of arrays": Pairs(lambda image: image[..., None]),
    "a Dataset of PIL images": Pairs(Image.fromarray, [int(label) for label in LABELS]),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_images(name):
    data = make_image_set(FORMS[name])
    assert torch.equal(data.images, torch.from_numpy(PIXELS)[:, None])
    assert data.labels.tolist() == LABELS.tolist()
    assert data.class_names == ("0", "1", "2")
    assert make_image_set(data) is data


def test_colours_keep_their_channels():
    expected = torch.from_numpy(COLOURED).permute(0, 3, 1, 2)
    narrow = torch.from_numpy(COLOURED[:, :, :3]).permute(
        0, 3, 1, 2
    )  # three pixels wide: a tensor's channels are first
    for make, wanted in (
        (lambda index: Image.fromarray(COLOURED[index]), expected),
        (lambda index: torch.from_numpy(COLOURED[index]).permute(2, 0, 1), expected),
        (lambda index: COLOURED[index].transpose(2, 0, 1), expected),
        (lambda index: torch.from_numpy(COLOURED[index][:, :3]).permute(2, 0, 1), narrow),
    ):
        items = [(make(index), int(LABELS[index])) for index in range(30)]
        assert torch.equal(make_image_set(items).images, wanted)


def test_classes_have_names():
    named = Pairs(Image.fromarray, classes=["ant", "bee", "cat"])
    assert make_image_set(named).class_names == ("ant", "bee", "cat")
    assert make_image_set(named, ["x", "y", "z"]).class_names == ("x", "y", "z")
    strings = np.array(["bee", "ant", "cat"])[LABELS]
    for labels in (strings, strings.tolist()):
        data = make_image_set((PIXELS, labels))
        assert data.class_names == ("ant", "bee", "cat")
        assert data.labels.tolist() == [{0: 1, 1: 0, 2: 2}[label] for label in LABELS.tolist()]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "cannot be made of a int. Give a pair"),
        ({"x": 1}, "cannot be made of a dict"),
        ((PIXELS, LABELS[:5]), "30 images in the data, 5 in the labels"),
        ((PIXELS, LABELS + 0.5), "the labels must be integers or unicode strings"),
        ((PIXELS.astype(int), LABELS), "the images must be uint8"),
        ((PIXELS * 1.0, LABELS), "float images must be in 0 … 1"),
        ((PIXELS, LABELS * 2), "Renumber them from 0"),
        ((PIXELS, LABELS * 0), "one class only"),
        ((PIXELS, ["a", 1] * 15), "all strings or all whole numbers"),
        (("a", "b"), "must be an array or a tensor, got a str"),
        (Pairs(lambda image: image[: image[0, 0] % 3 + 1]), "all images must be of one shape"),
        (Pairs(lambda image: "x.png"), "image 0 must be a PIL image, an array or a tensor, got a str"),
        (Pairs(Image.fromarray, []), "the data is empty"),
        ([1, 2, 3], "item 0 of the data is no pair"),
    ],
)
def test_what_is_no_images_is_refused(data, words):
    with pytest.raises(DataError, match=words):
        make_image_set(data)


def test_a_fifth_is_kept_as_for_a_file(tmp_path):
    np.savez(tmp_path / "a.npz", x=PIXELS, y=LABELS)
    dataset = MemoryImages(make_image_set((PIXELS, LABELS)))
    for split in ("train", "test"):
        expected, found = read_image_arrays(tmp_path / "a.npz", split), dataset.load(split)
        assert torch.equal(found.images, expected.images)
        assert torch.equal(found.labels, expected.labels)


def test_test_images_of_their_own():
    train, test = make_image_set((PIXELS, LABELS)), make_image_set((PIXELS[:9], LABELS[:9]))
    dataset = MemoryImages(train, test)
    for split, given in (("train", train), ("test", test)):
        assert dataset.load(split).images.equal(given.images)
        assert dataset.load(split).labels.equal(given.labels)
    with pytest.raises(DataError, match="splits train, test, not 'valid'"):
        dataset.load("valid")
    with pytest.raises(DataError, match="of one shape"):
        MemoryImages(train, make_image_set((PIXELS[:, :4], LABELS)))
    with pytest.raises(DataError, match="the same classes"):
        MemoryImages(train, make_image_set((PIXELS, LABELS), ["x", "y", "z"]))


def test_a_torch_dataset_is_trained_on():
    dataset = MemoryImages(make_image_set(Pairs(Image.fromarray)))
    train, validation = training_sources(dataset, DataOptions(validation=0.25, shift=1), seed=0)
    assert (len(train), len(validation), len(evaluation_source(dataset))) == (20, 6, 4)


TEXTS = [f"the {'good' if number % 2 else 'bad'} film {number}" for number in range(20)]
WORDS = ["pos" if number % 2 else "neg" for number in range(20)]


def test_texts_are_cut_as_those_of_a_file(tmp_path):
    lines = ["text,label", *(f"{text},{label}" for text, label in zip(TEXTS, WORDS, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    dataset = MemoryTexts(make_text_set((TEXTS, WORDS)))
    for split in ("train", "test"):
        expected, found = read_text_file(tmp_path / "a.csv", split), dataset.load(split)
        assert found.texts == expected.texts
        assert torch.equal(found.labels, expected.labels)
        assert found.class_names == ("neg", "pos")
    train, validation = text_sources(dataset, DataOptions(validation=0.25), TextOptions(), seed=0)
    assert (len(train), len(validation)) == (13, 4)


def test_labels_of_texts_may_be_numbers():
    numbers = [number % 2 for number in range(20)]
    for labels in (numbers, np.array(numbers), torch.tensor(numbers)):
        assert make_text_set((TEXTS, labels)).class_names == ("0", "1")
        named = make_text_set((TEXTS, labels), ["neg", "pos"])
        assert named.class_names == ("neg", "pos")
        assert named.labels.tolist() == numbers
    assert make_text_set((TEXTS, WORDS), ["pos", "neg"]).labels[:2].tolist() == [1, 0]
    assert make_text_set((["A b", "C"], [0, 1]), lower=False).texts == (("A", "b"), ("C",))
    known = make_text_set((TEXTS, WORDS))
    assert make_text_set(known) is known
    assert len(MemoryTexts(known, known).load("test")) == 20


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("texts", "cannot be made of a str"),
        ((TEXTS, WORDS[:3]), "20 texts need as many labels"),
        (([], []), "at least one"),
        (([1, 2], [0, 1]), "a text must be a string, got 1"),
        ((TEXTS, [0.5] * 20), "a label must be a string or a whole number"),
        ((TEXTS, "ab"), "labels must be a list"),
        ((TEXTS, ["a"] * 20), "one class only"),
    ],
)
def test_what_is_no_texts_is_refused(data, words):
    with pytest.raises(DataError, match=words):
        make_text_set(data)


def test_classes_of_texts_must_fit():
    with pytest.raises(DataError, match="the labels neg, pos are no class"):
        make_text_set((TEXTS, WORDS), ["x", "y"])
    with pytest.raises(DataError, match="0 … 1 for the class names, got 2"):
        make_text_set((["a", "b", "c"], [0, 1, 2]), ["x", "y"])
    with pytest.raises(DataError, match="the same classes"):
        MemoryTexts(make_text_set((TEXTS, WORDS)), make_text_set((TEXTS, WORDS), ["pos", "neg"]))


def test_texts_may_have_any_number_of_labels():
    given = make_text_set((["a b", "c", "d"], [["x", "y"], [], ("z",)]))
    assert given.class_names == ("x", "y", "z")
    assert given.labels.int().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    flags = torch.tensor([[True, False], [True, True], [False, False]])
    for labels in (flags, flags.numpy()):
        named = make_text_set((["a", "b", "c"], labels), ["p", "q"])
        assert (named.class_names, named.labels.tolist()) == (("p", "q"), flags.tolist())
    assert make_text_set((["a", "b", "c"], flags)).class_names == ("0", "1")
    numbered = make_text_set((["a", "b"], [[0, 1], [1]]), ["p", "q"])
    assert numbered.labels.tolist() == [[True, True], [False, True]]
    assert make_text_set((["a", "b"], [{"x", "y"}, {"x"}])).labels.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        ([["x", "x"], ["y"]], None, "the label 'x' is there twice"),
        ([[], []], None, "the data has no labels"),
        ([["x"], []], None, "one class only"),
        ([["x"], [1.5]], None, "a string or a whole number, got 1.5"),
        ([["x"], [["y"]]], None, "a string or a whole number"),
        ([["x"], ["y"]], ["x", "z"], "the labels y are no class"),
        ([[0], [2]], ["x", "z"], "in 0 … 1 for the class names, got 2"),
        (torch.ones(2, 3, dtype=torch.bool), ["x", "y"], "flags of 3 classes need as many class_names, got 2"),
        (torch.ones(3, 2, dtype=torch.bool), None, "2 texts need as many labels"),
    ],
)
def test_lists_of_labels_that_are_refused(labels, names, words):
    with pytest.raises(DataError, match=words):
        make_text_set((["a", "b"], labels), names)


def test_training_and_test_have_labels_of_one_kind():
    several, single = make_text_set((["a", "b"], [["x"], ["y"]])), make_text_set((["a", "b"], ["x", "y"]))
    with pytest.raises(DataError, match="labels of one kind"):
        MemoryTexts(several, single)
