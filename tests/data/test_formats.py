"""The official formats of CIFAR-10, SmallNORB and affNIST, in tiny files made here."""

import builtins
import dataclasses
import gzip
import hashlib
import importlib
import io
import struct
import tarfile

import numpy as np
import pytest
import torch

from torchcaps.data.dataset import Files
from torchcaps.data.registry import dataset_class
from torchcaps.errors import DataError

# By import_module: should the package export a function by its module's name, `import … as` would find that.
cifar = importlib.import_module("torchcaps.data.datasets.cifar10")
norb = importlib.import_module("torchcaps.data.datasets.small_norb")
aff = importlib.import_module("torchcaps.data.datasets.affnist")


def load(name, split, data_dir=None, download=False, progress=None, **options):
    return dataset_class(name)(**options).load(split, Files(data_dir, download, progress))


RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _only_tmp(tmp_path, monkeypatch):
    """No test sees data of this computer's user."""
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# CIFAR-10


def cifar_batch(labels, images):
    return b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))


@pytest.fixture
def batches():
    """Two images in each batch: the content of each, and all images and labels of train."""
    images = RANDOM.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    labels = [3, 8, 8, 0, 6, 6, 1, 6, 3, 9, 5, 7]
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    contents = {name: cifar_batch(labels[2 * i : 2 * i + 2], images[2 * i : 2 * i + 2]) for i, name in enumerate(names)}
    return contents, images, labels


def write_unpacked(tmp_path, contents):
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(tmp_path, contents, prefix="cifar-10-batches-bin/"):
    (tmp_path / "cifar10").mkdir(parents=True, exist_ok=True)
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def trust(monkeypatch, path):
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(cifar, "ARCHIVE", dataclasses.replace(cifar.ARCHIVE, md5=md5))


def assert_is_cifar(tmp_path, images, labels):
    train, test = load("cifar10", "train", tmp_path), load("cifar10", "test", tmp_path)
    assert torch.equal(train.images, torch.from_numpy(images[:10]))
    assert train.labels.tolist() == labels[:10]
    assert torch.equal(test.images, torch.from_numpy(images[10:]))
    assert test.labels.tolist() == labels[10:]
    assert train.image_shape == (3, 32, 32)
    assert train.class_names[3] == "cat"
    assert train.class_names == test.class_names == cifar.CIFAR10_CLASSES


def test_cifar10_from_the_unpacked_folder(tmp_path, batches):
    contents, images, labels = batches
    write_unpacked(tmp_path, contents)
    assert_is_cifar(tmp_path, images, labels)


def test_cifar10_from_the_archive_whatever_the_order_in_it(tmp_path, batches, monkeypatch):
    contents, images, labels = batches
    path = write_archive(tmp_path, {"readme.html": b"<p>", **dict(reversed(contents.items()))})
    trust(monkeypatch, path)
    assert_is_cifar(tmp_path, images, labels)
    assert [file.name for file in (tmp_path / "cifar10").iterdir()] == [path.name]  # nothing is unpacked to disk


def test_cifar10_planes_are_red_green_blue(tmp_path):
    image = np.zeros((1, 3, 32, 32), dtype=np.uint8)
    image[0, 0, 0, 1], image[0, 1, 2, 0], image[0, 2, 31, 31] = 1, 2, 3
    content = cifar_batch([4], image)
    assert content[1 + 1] == 1
    assert content[1 + 1024 + 64] == 2
    assert content[-1] == 3
    write_unpacked(tmp_path, {"test_batch.bin": content})
    assert torch.equal(load("cifar10", "test", tmp_path).images, torch.from_numpy(image))


def test_cifar10_archive_with_another_md5_is_refused(tmp_path, batches):
    path = write_archive(tmp_path, batches[0])
    write_unpacked(tmp_path, batches[0])  # the archive is taken where both are
    with pytest.raises(DataError, match="cifar-10-binary.tar.gz is damaged.*c32a1d4ab5d03f1284b67883e8d87530") as error:
        load("cifar10", "train", tmp_path)
    assert str(path) in str(error.value)


def test_cifar10_archive_without_a_batch(tmp_path, batches, monkeypatch):
    contents = {name: content for name, content in batches[0].items() if name != "data_batch_4.bin"}
    trust(monkeypatch, write_archive(tmp_path, contents))
    assert len(load("cifar10", "test", tmp_path)) == 2
    with pytest.raises(DataError, match="has no cifar-10-batches-bin/data_batch_4.bin"):
        load("cifar10", "train", tmp_path)


def test_cifar10_link_in_an_archive_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "cifar10").mkdir()
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        member.type, member.linkname = tarfile.SYMTYPE, "../secret"
        tar.addfile(member)
    trust(monkeypatch, path)
    with pytest.raises(DataError, match="has no cifar-10-batches-bin/test_batch.bin"):
        load("cifar10", "test", tmp_path)


def test_cifar10_archive_that_is_none(tmp_path, monkeypatch):
    path = write_archive(tmp_path, {})
    path.write_bytes(b"<html>Not found</html>")
    trust(monkeypatch, path)
    with pytest.raises(DataError, match="cifar-10-binary.tar.gz cannot be read.*fetch it again"):
        load("cifar10", "train", tmp_path)


@pytest.mark.parametrize("size", [0, 3072, 3 * 3073 - 1])
def test_cifar10_batch_of_a_wrong_size(tmp_path, batches, size):
    contents = {**batches[0], "data_batch_2.bin": bytes(size)}
    write_unpacked(tmp_path, contents)
    with pytest.raises(DataError, match=f"data_batch_2.bin is cut short.*3073 bytes.*has {size}"):
        load("cifar10", "train", tmp_path)


def test_cifar10_wrong_label_in_folder_and_archive(tmp_path, batches, monkeypatch):
    contents = {**batches[0], "test_batch.bin": b"\x0a" + bytes(3072)}
    write_unpacked(tmp_path / "a", contents)
    with pytest.raises(DataError, match="test_batch.bin.*0 … 9.*one is 10"):
        load("cifar10", "test", tmp_path / "a")
    trust(monkeypatch, write_archive(tmp_path / "b", contents))
    with pytest.raises(DataError, match="tar.gz: cifar-10-batches-bin/test_batch.bin"):
        load("cifar10", "test", tmp_path / "b")


def test_cifar10_folder_without_a_batch(tmp_path, batches):
    folder = write_unpacked(tmp_path, batches[0])
    (folder / "data_batch_5.bin").unlink()
    with pytest.raises(DataError, match="data_batch_5.bin cannot be read.*Unpack"):
        load("cifar10", "train", tmp_path)


def test_cifar10_absent_lists_the_places(tmp_path):
    with pytest.raises(DataError, match="cifar10 is not here") as error:
        load("cifar10", "train", tmp_path / "mine")
    for folder in (tmp_path / "mine", tmp_path / "cache" / "torchcaps"):
        assert str(folder / "cifar10" / "cifar-10-binary.tar.gz") in str(error.value)
        assert str(folder / "cifar10" / "cifar-10-batches-bin") in str(error.value)
    assert cifar.ARCHIVE.url in str(error.value)


def test_cifar10_is_downloaded_where_absent(tmp_path, batches, monkeypatch):
    contents, images, labels = batches
    path = write_archive(tmp_path / "server", contents)
    remote = dataclasses.replace(cifar.ARCHIVE, url=path.as_uri())
    monkeypatch.setattr(cifar, "ARCHIVE", remote)
    with pytest.raises(DataError, match="md5"):
        load("cifar10", "test", tmp_path, download=True)
    assert not list((tmp_path / "cifar10").iterdir())
    trust(monkeypatch, path)
    told = []
    data = load("cifar10", "test", tmp_path, download=True, progress=lambda *news: told.append(news))
    assert data.labels.tolist() == labels[10:]
    assert told[-1][:2] == ("cifar-10-binary.tar.gz", path.stat().st_size)
    assert_is_cifar(tmp_path, images, labels)  # from now on it is in the folder that was named


def test_cifar10_unknown_split(tmp_path):
    with pytest.raises(DataError, match="train, test, not 'valid'"):
        load("cifar10", "valid", tmp_path)


# SmallNORB


def matrix_bytes(array):
    """The binary matrix format, written independently of the reader."""
    magic = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54}[array.dtype.name]
    sizes = [*array.shape, 1, 1, 1][: max(3, array.ndim)]
    return (
        struct.pack(f"<{2 + len(sizes)}i", magic, array.ndim, *sizes)
        + array.astype(array.dtype.newbyteorder("<")).tobytes()
    )


INFO = np.array(
    [
        # instance, elevation, azimuth, lighting
        [4, 0, 0, 0],
        [6, 1, 4, 5],
        [7, 2, 6, 1],
        [8, 3, 28, 2],
        [9, 8, 30, 3],
        [4, 5, 34, 4],
        [6, 2, 16, 0],
    ],
    dtype=np.int32,
)
FAMILIAR = {"azimuth": [0, 1, 4, 5], "elevation": [0, 1, 2, 6]}
NOVEL = {"azimuth": [2, 3, 6], "elevation": [3, 4, 5]}


def norb_arrays(count):
    return {
        "dat": RANDOM.integers(0, 256, (count, 2, 96, 96), dtype=np.uint8),
        "cat": np.arange(count, dtype=np.int32) % 5,
        "info": INFO[:count],
    }


def write_norb(tmp_path, monkeypatch, arrays, split, packed=False):
    """Files of a split, which the loader is told to take for the published ones."""
    folder = tmp_path / "small_norb"
    folder.mkdir(exist_ok=True)
    for part, array in arrays.items():
        content = matrix_bytes(array)
        path = folder / f"{norb.STEMS[split]}-{part}.mat{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content)
        monkeypatch.setitem(norb.SMALL_NORB_MD5, (split, part), ("", hashlib.md5(content).hexdigest()))
    return folder


@pytest.fixture
def train_and_test(tmp_path, monkeypatch):
    train, test = norb_arrays(7), norb_arrays(7)
    test["cat"] = test["cat"][::-1].copy()
    write_norb(tmp_path, monkeypatch, train, "train", packed=True)
    write_norb(tmp_path, monkeypatch, test, "test")
    return {"train": train, "test": test, "familiar": test}


def test_smallnorb_by_instance(tmp_path, train_and_test):
    for split in ("train", "test"):
        data = load("small-norb", split, tmp_path)
        assert torch.equal(data.images, torch.from_numpy(train_and_test[split]["dat"]))
        assert data.labels.tolist() == train_and_test[split]["cat"].tolist()
        assert data.image_shape == (2, 96, 96)
        assert data.class_names == ("animal", "human", "airplane", "truck", "car")


@pytest.mark.parametrize("protocol", ["azimuth", "elevation"])
@pytest.mark.parametrize("split", ["train", "test", "familiar"])
def test_smallnorb_by_viewpoint(tmp_path, train_and_test, protocol, split):
    data = load("small-norb", split, tmp_path, protocol=protocol)
    chosen = NOVEL[protocol] if split == "test" else FAMILIAR[protocol]
    assert torch.equal(data.images, torch.from_numpy(train_and_test[split]["dat"][chosen]))
    assert data.labels.tolist() == train_and_test[split]["cat"][chosen].tolist()


def test_smallnorb_viewpoints_are_those_of_the_paper():
    """One third of 18 azimuths and of 9 elevations; what is not familiar runs from 60° to 280°."""
    info = torch.tensor([[0, elevation, azimuth, 0] for elevation in range(9) for azimuth in range(0, 36, 2)])
    familiar = norb._find_familiar(info, "azimuth")
    assert familiar.float().mean().item() == pytest.approx(1 / 3)
    assert sorted(set((10 * info[~familiar, 2]).tolist())) == list(range(60, 281, 20))
    assert sorted(set(info[norb._find_familiar(info, "elevation"), 1].tolist())) == [0, 1, 2]


def test_smallnorb_info(tmp_path, train_and_test):
    info = norb.SmallNORB().load_info("train", Files(tmp_path))
    assert info.dtype == torch.int64
    assert info.tolist() == INFO.tolist()
    with pytest.raises(DataError, match="splits train, test"):
        norb.SmallNORB().load_info("familiar", Files(tmp_path))


def test_smallnorb_published_categories_have_the_published_md5():
    """The one file whose content follows from its description checks both the format and the md5."""
    content = matrix_bytes(np.tile(np.arange(5, dtype=np.int32), 4860))
    assert hashlib.md5(content).hexdigest() == norb.SMALL_NORB_MD5["train", "cat"][1]
    assert norb.SMALL_NORB_MD5["train", "cat"][1] == norb.SMALL_NORB_MD5["test", "cat"][1]


def test_smallnorb_with_another_md5_is_refused(tmp_path, train_and_test):
    path = tmp_path / "small_norb" / f"{norb.STEMS['test']}-dat.mat"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="testing-dat.mat is damaged or another version.*md5"):
        load("small-norb", "test", tmp_path)


def test_smallnorb_files_that_do_not_belong_together(tmp_path, monkeypatch, train_and_test):
    write_norb(tmp_path, monkeypatch, {"info": INFO[:3]}, "test")
    with pytest.raises(DataError, match="testing-dat.mat has 7 images.*testing-info.mat is about 3"):
        load("small-norb", "familiar", tmp_path, protocol="azimuth")
    write_norb(tmp_path, monkeypatch, {"cat": np.zeros(6, dtype=np.int32)}, "test")
    with pytest.raises(DataError, match="testing-dat.mat has 7 images.*testing-cat.mat is about 6"):
        load("small-norb", "test", tmp_path)


@pytest.mark.parametrize(
    ("part", "array"),
    [("dat", np.zeros((7, 96, 96), np.uint8)), ("cat", np.zeros((7, 4), np.int32)), ("cat", np.zeros(7, np.uint8))],
)
def test_smallnorb_file_of_a_wrong_shape_or_type(tmp_path, monkeypatch, train_and_test, part, array):
    write_norb(tmp_path, monkeypatch, {part: array}, "test")
    with pytest.raises(DataError, match=f"testing-{part}.mat must hold torch"):
        load("small-norb", "test", tmp_path)


def test_smallnorb_unknown_protocol_and_split(tmp_path):
    with pytest.raises(DataError, match="protocols instance, azimuth, elevation, not 'lighting'"):
        load("small-norb", "train", tmp_path, protocol="lighting")
    with pytest.raises(DataError, match="splits train, test, familiar for the protocol azimuth, not 'valid'"):
        load("small-norb", "valid", tmp_path, protocol="azimuth")
    with pytest.raises(DataError, match="familiar is a split of the protocols azimuth and elevation"):
        load("small-norb", "familiar", tmp_path)


def test_smallnorb_absent_lists_the_places(tmp_path):
    with pytest.raises(DataError, match="small-norb is not here") as error:
        load("small-norb", "train", tmp_path / "mine")
    name = "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz"
    for folder in (tmp_path / "mine", tmp_path / "cache" / "torchcaps"):
        assert str(folder / "small_norb" / name) in str(error.value)
    assert f"https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/{name}" in str(error.value)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 2, 3, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_read_matrix(tmp_path, shape, dtype):
    array = RANDOM.integers(0, 200, shape).astype(dtype)
    if dtype == np.int32:
        array = array * 1_000_000 - 100_000_000
    (tmp_path / "a.mat").write_bytes(matrix_bytes(array))
    (tmp_path / "a.mat.gz").write_bytes(gzip.compress(matrix_bytes(array)))
    for name in ("a.mat", "a.mat.gz"):
        read = norb.read_matrix(tmp_path / name)
        assert torch.equal(read, torch.from_numpy(array))
        assert read.dtype == (torch.uint8 if dtype == np.uint8 else torch.int32)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a NORB matrix"),
        (b"MATLAB 5.0 MAT-file", "not a NORB matrix.*0x1e3d4c55.*b'MATL'"),
        (struct.pack("<5i", 0x1E3D4C53, 1, 1, 1, 1) + bytes(8), "not a NORB matrix"),  # doubles: not in SmallNORB
        (struct.pack(">5i", 0x1E3D4C54, 1, 1, 1, 1) + bytes(4), "not a NORB matrix"),  # big-endian
        (struct.pack("<i", 0x1E3D4C55), "gives 0 dimensions"),
        (struct.pack("<3i", 0x1E3D4C55, 1, 1), "cut short or damaged: its header"),  # three sizes are always there
        (struct.pack("<5i", 0x1E3D4C55, 2, 3, -1, 1) + bytes(3), r"sizes \[3, -1\]"),
        (struct.pack("<5i", 0x1E3D4C55, 1, 0, 1, 1), r"sizes \[0\]"),
        (struct.pack("<2i", 0x1E3D4C55, 1 << 30), "1073741824 dimensions"),
        (struct.pack("<5i", 0x1E3D4C55, 3, *[2**31 - 1] * 3) + bytes(10), "only 10 are there"),  # allocates nothing
        (matrix_bytes(np.ones(4, np.int32))[:-1], "4 numbers in 16 bytes, only 15 are there"),
        (matrix_bytes(np.ones((2, 2), np.uint8)) + b"\0", "2×2 numbers in 4 bytes, more are there"),
    ],
)
def test_read_matrix_refuses(tmp_path, content, message):
    (tmp_path / "bad.mat").write_bytes(content)
    with pytest.raises(DataError, match=f"bad.mat.*{message}"):
        norb.read_matrix(tmp_path / "bad.mat")


def test_read_matrix_of_a_gzipped_file_that_is_cut_short_or_none(tmp_path):
    packed = gzip.compress(matrix_bytes(RANDOM.integers(0, 256, (50, 50), dtype=np.uint8)))
    damaged = {"end.gz": packed[:-10], "checksum.gz": packed[:-8] + bytes(8), "none.gz": b"<html>"}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name} cannot be read.*fetch it again"):
            norb.read_matrix(tmp_path / name)


# affNIST


def write_affnist(path, images, labels, **other):
    """Images ``[N, 40, 40]`` as the official files have them: a column is an image, row after row."""
    savemat = pytest.importorskip("scipy.io").savemat
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = np.stack([image.reshape(-1) for image in images], axis=1)
    fields = {"affine": np.zeros((6, len(images))), "image": columns, "label_int": np.array([labels]), **other}
    savemat(path, {"affNISTdata": fields}, do_compression=True)


def digits(count):
    return RANDOM.integers(0, 256, (count, 40, 40), dtype=np.uint8), [(7 * i + 3) % 10 for i in range(count)]


@pytest.mark.parametrize(("split", "name"), [("test", "test.mat"), ("train", "training.mat"), ("train", "train.mat")])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_affnist_from_one_file(tmp_path, split, name, dtype):
    images, labels = digits(3)
    write_affnist(tmp_path / "affnist" / name, images, np.array(labels, dtype=dtype))
    data = load("affnist", split, tmp_path)
    assert torch.equal(data.images, torch.from_numpy(images)[:, None])
    assert data.images.is_contiguous()
    assert data.labels.tolist() == labels
    assert data.image_shape == (1, 40, 40)
    assert data.class_names == aff.AFFNIST_CLASSES == tuple("0123456789")


@pytest.mark.parametrize(("split", "folder"), [("test", "test_batches"), ("train", "training_and_validation_batches")])
def test_affnist_from_batches_in_the_order_of_their_numbers(tmp_path, split, folder):
    images, labels = digits(6)
    for at, number in enumerate((1, 2, 10)):
        chosen = slice(2 * at, 2 * at + 2)
        write_affnist(tmp_path / "affnist" / folder / f"{number}.mat", images[chosen], labels[chosen])
    data = load("affnist", split, tmp_path)
    assert torch.equal(data.images, torch.from_numpy(images)[:, None])
    assert data.labels.tolist() == labels


def test_affnist_of_one_image(tmp_path):
    images, labels = digits(1)
    write_affnist(tmp_path / "affnist" / "test.mat", images, labels)
    assert torch.equal(load("affnist", "test", tmp_path).images, torch.from_numpy(images)[:, None])


@pytest.mark.parametrize("download", [False, True])
def test_affnist_absent_lists_the_places(tmp_path, download):
    with pytest.raises(DataError, match="affnist is not here") as error:
        load("affnist", "train", tmp_path / "mine", download=download)
    message = str(error.value)
    for folder in (tmp_path / "mine" / "affnist", tmp_path / "cache" / "torchcaps" / "affnist"):
        for name in ("training_and_validation_batches", "training.mat", "train.mat"):
            assert str(folder / name) in message
    assert "https://www.cs.toronto.edu/~tijmen/affNIST/" in message
    assert ("not downloaded automatically" in message) == download


def test_affnist_unknown_split(tmp_path):
    with pytest.raises(DataError, match="train, test, not 'valid'"):
        load("affnist", "valid", tmp_path)


def test_affnist_damaged_file(tmp_path):
    images, labels = digits(4)
    path = tmp_path / "affnist" / "test.mat"
    write_affnist(path, images, labels)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:300] + bytes(200) + whole[500:], b"<html>", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match="test.mat.*etch it again from https://www.cs.toronto.edu"):
            load("affnist", "test", tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": np.zeros((1600, 2))}, r"image must be uint8 \[1600, N\], and is float64 \[1600, 2\]"),
        ({"image": np.zeros((784, 2), np.uint8)}, r"and is uint8 \[784, 2\]"),
        ({"image": np.array([1, "a"], dtype=object)}, "image must be an array of numbers, and is of the type object"),
        ({"image": "pixels"}, "image must be an array of numbers"),
        ({"label_int": np.array([1, 2, 3])}, "one number for each image, and has 3 for 2"),
        ({"label_int": np.array([1, 10])}, "0 … 9, and are in 1 … 10"),
        ({"label_int": np.array([-1, 1], np.int16)}, "0 … 9, and are in -1 … 1"),
        ({"label_int": np.array([0.5, 1])}, "whole numbers"),
        ({"label_int": np.array([np.nan, 1])}, "whole numbers"),
        ({"label_int": np.array([{"a": 1}, 2], dtype=object)}, "label_int must be an array of numbers"),
    ],
)
def test_affnist_refuses_what_is_no_image_or_label(tmp_path, fields, message):
    write_affnist(tmp_path / "affnist" / "test.mat", *digits(2), **fields)
    with pytest.raises(DataError, match=f"test.mat is not a file of affNIST.*{message}"):
        load("affnist", "test", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"images": np.zeros(3)}, "one struct affNISTdata"),
        ({"affNISTdata": np.zeros((2, 2))}, "one struct affNISTdata"),
        ({"affNISTdata": 1}, "one struct affNISTdata"),
        ({"affNISTdata": {"image": np.zeros((1600, 1), np.uint8)}}, "must have the field label_int, and has image"),
    ],
)
def test_affnist_refuses_another_matlab_file(tmp_path, content, message):
    savemat = pytest.importorskip("scipy.io").savemat
    (tmp_path / "affnist").mkdir()
    savemat(tmp_path / "affnist" / "test.mat", content)
    with pytest.raises(DataError, match=f"test.mat is not a file of affNIST.*{message}"):
        load("affnist", "test", tmp_path)


def test_affnist_without_scipy(tmp_path, monkeypatch):
    write_affnist(tmp_path / "affnist" / "test.mat", *digits(2))
    plain = builtins.__import__

    def without_scipy(name, *rest):
        if name.startswith("scipy"):
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_scipy)
    with pytest.raises(DataError, match="pip install scipy"):
        load("affnist", "test", tmp_path)
