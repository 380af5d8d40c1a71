"""What arrays are called in .npz files, and labels of several classes in them and in memory."""

import numpy as np
import pytest
import torch

from torchcaps.data.array_names import ROLES
from torchcaps.data.dataset import Files
from torchcaps.data.image_arrays import ImageArrays, read_image_arrays
from torchcaps.data.memory import MemoryImages, list_pixels, make_image_set
from torchcaps.errors import DataError

RNG = np.random.default_rng(0)
X, XT = (RNG.integers(0, 256, (count, 5, 4), dtype=np.uint8) for count in (12, 6))
Y, YT = np.arange(12) % 3, np.arange(6) % 3
FLAGS = np.arange(12)[:, None] % np.array([2, 3, 5]) == 0


def npz(tmp_path, **arrays):
    np.savez(tmp_path / "own.npz", **arrays)
    return tmp_path / "own.npz"


PAIRS = list(zip(ROLES["x"], ROLES["y"], strict=True))
TESTS = list(zip(ROLES["x_test"], ROLES["y_test"], strict=True))


@pytest.mark.parametrize(
    ("x", "y"), [*PAIRS, ("X", "Y"), ("X_train", "Y_Train"), ("IMAGES", "Labels"), ("x", "labels")]
)
def test_every_usual_name_is_understood(tmp_path, x, y):
    own = read_image_arrays(npz(tmp_path, **{x: X, y: Y}), "all")
    assert np.array_equal(own.images[:, 0], X)
    assert own.labels.tolist() == Y.tolist()
    assert own.items[3].name == f"{x}[3]"


@pytest.mark.parametrize(("x", "y"), [*TESTS, ("X_TEST", "y_Test"), ("Xt", "YT")])
def test_every_usual_name_of_the_test_is_understood(tmp_path, x, y):
    path = npz(tmp_path, x=X, y=Y, **{x: XT, y: YT})
    assert np.array_equal(read_image_arrays(path, "test").images[:, 0], XT)
    assert len(read_image_arrays(path, "train")) == 12
    assert ImageArrays(str(path)).judged_split() == "test"


def test_without_test_arrays_all_is_judged(tmp_path):
    assert ImageArrays(str(npz(tmp_path, images=X, labels=Y))).judged_split() == "all"


@pytest.mark.parametrize("names", ROLES["class_names"])
def test_names_of_the_classes(tmp_path, names):
    own = read_image_arrays(npz(tmp_path, x=X, y=Y, **{names: ["a", "b", "c"]}), "all")
    assert own.class_names == ("a", "b", "c")


REFUSED = {
    "two of images": ({"x": X, "x_train": X, "y": Y}, "'x' and 'x_train', which both could be the images"),
    "two of one name": ({"x": X, "X": X, "y": Y}, "'X' and 'x', which both"),
    "two of labels": ({"x": X, "y": Y, "labels": Y}, "'labels' and 'y', which both could be the labels"),
    "two of a test": ({"x": X, "y": Y, "xt": XT, "x_test": XT, "yt": YT}, "could be the test images"),
    "a test without labels": ({"x": X, "y": Y, "xt": XT}, "no array 'y_test'"),
    "a test without images": ({"x": X, "y": Y, "yt": YT}, "no array 'x_test'"),
    "nothing but a test": ({"xt": XT, "yt": YT}, "no array 'x', the images"),
    "other names": ({"imgs": X, "latents": Y}, "found: imgs, latents"),
}


@pytest.mark.parametrize(("arrays", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_missing_or_could_be_either_is_refused(tmp_path, arrays, sentence):
    with pytest.raises(DataError, match=sentence):
        read_image_arrays(npz(tmp_path, **arrays), "train")


def test_what_is_not_used_is_told(tmp_path):
    said = []
    path = npz(tmp_path, x=X, y=Y, x_val=XT, y_val=YT, weights=YT)
    read_image_arrays(path, "train", Files(notice=said.append))
    (text,) = said
    assert "not used: 'weights', 'x_val', 'y_val'" in text
    assert "data.validation" in text


@pytest.mark.parametrize("where", ["x", "x_test"])
def test_zeros_and_ones_are_never_silently_black(tmp_path, where):
    arrays = {"x": X, "y": Y, "x_test": XT, "y_test": YT}
    arrays[where] = (arrays[where] > 100).astype(np.uint8)
    with pytest.raises(DataError, match=f"the pixels of {where} in .* are 0 and 1 where 255 is white"):
        read_image_arrays(npz(tmp_path, **arrays), "train")


def test_nor_in_memory():
    binary = (X > 100).astype(np.uint8)
    with pytest.raises(DataError, match="0 and 1 where 255 is white"):
        make_image_set((binary, Y))
    with pytest.raises(DataError, match="0 and 1 where 255 is white"):
        list_pixels(binary)
    assert make_image_set((binary.astype(np.float32), Y)).images.max() == 255
    assert list_pixels(np.zeros((2, 4, 4), dtype=np.uint8))[0].max() == 0  # a picture may well be black


# ---------------------------------------------------------------- several labels


@pytest.mark.parametrize(
    ("y", "names", "expected"),
    [
        (FLAGS, None, ("0", "1", "2")),
        (FLAGS, ["a", "b", "c"], ("a", "b", "c")),
        (FLAGS.astype(int), ["a", "b", "c"], ("a", "b", "c")),
        (FLAGS.astype(np.uint8), ["a", "b", "c"], ("a", "b", "c")),
        (np.eye(3, dtype=bool)[Y], None, ("0", "1", "2")),
    ],
)
def test_flags_in_a_file_and_in_memory(tmp_path, y, names, expected):
    file = read_image_arrays(npz(tmp_path, x=X, y=y, **({} if names is None else {"class_names": names})), "all")
    memory = make_image_set((X, y), names)
    tensors = make_image_set((torch.from_numpy(X), torch.from_numpy(y)), names)
    for own in (file, memory, tensors):
        assert own.multi_label
        assert own.class_names == expected
        assert np.array_equal(own.labels, y.astype(bool))


def test_names_for_each_image():
    rows = [["cat", "dog"], [], ("dog",), {"eel"}] * 3
    own = make_image_set((X, rows))
    assert own.class_names == ("cat", "dog", "eel")
    assert own.labels[:4].tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert make_image_set((X, rows), ["eel", "dog", "cat", "ant"]).labels[0].tolist() == [0, 1, 1, 0]


class Pairs:
    """A torch Dataset."""

    def __init__(self, labels, classes=None):
        self.labels = labels
        if classes:
            self.classes = classes

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return X[index], self.labels[index]


def test_a_torch_dataset_of_flags_and_of_names():
    assert np.array_equal(make_image_set(Pairs([torch.from_numpy(row) for row in FLAGS])).labels, FLAGS)
    numbers = [torch.from_numpy(row.astype(int)) for row in FLAGS]  # as CelebA has them
    assert np.array_equal(make_image_set(Pairs(numbers, ["a", "b", "c"])).labels, FLAGS)
    assert make_image_set(Pairs([["a"], ["a", "b"]] * 6)).labels[1].tolist() == [True, True]
    assert make_image_set(Pairs([torch.tensor(k) for k in Y])).labels.tolist() == Y.tolist()


BAD = {
    "one-hot numbers": (np.eye(3, dtype=int)[Y], None, "single 1 in each row of 3.*argmax"),
    "numbers without names": (FLAGS.astype(int), None, r"looks like flags.*astype\(bool\)"),
    "other numbers": (FLAGS * 2, ["a", "b", "c"], "values up to 2"),
    "too few names": (FLAGS, ["a", "b"], "3 columns"),
    "names that come twice": (FLAGS, ["a", "b", "a"], "different names"),
    "floats": (FLAGS.astype(float), None, "truth values"),
    "one column": (FLAGS[:, :1], None, "one column only"),
    "too few rows": (FLAGS[:5], None, "12 images .*, 5 in"),
    "numbers in lists": ([[0, 1]] * 12, None, "list of names for each image"),
    "texts and lists": ([["a"], "b"] * 6, None, "list of names for each image"),
    "one name only": ([["a"], []] * 6, None, "two or more"),
    "unknown names": ([["a"], ["b", "x"]] * 6, ["a", "b"], "no class: .'x'"),
    "too few lists": ([["a"], ["b"]], None, "12 images .*, 2 in"),
}


@pytest.mark.parametrize(("y", "names", "sentence"), BAD.values(), ids=BAD)
def test_labels_that_cannot_be_meant(y, names, sentence):
    with pytest.raises(DataError, match=sentence):
        make_image_set((X, y), names)


def test_sets_are_cut_by_content_and_every_class_is_tested():
    images = RNG.integers(0, 256, (60, 6, 6), dtype=np.uint8)
    flags = RNG.random((60, 4)) < [0.5, 0.5, 0.1, 0.05]
    flags[:2, 2:] = True
    own = MemoryImages(make_image_set((images, flags)))
    train, test = own.load("train"), own.load("test")
    assert len(train) + len(test) == 60
    assert train.labels.any(dim=0).all()
    assert test.labels.any(dim=0).all()
    grown = np.concatenate([RNG.integers(0, 256, (20, 6, 6), dtype=np.uint8), images])
    more = MemoryImages(make_image_set((grown, np.concatenate([flags[:20], flags]))))
    tested = {item.key for item in test.items}
    trained = {item.key for item in train.items}
    assert not tested & {item.key for item in more.load("train").items}
    assert not trained & {item.key for item in more.load("test").items}
