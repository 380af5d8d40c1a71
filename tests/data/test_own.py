import pickle
import struct
import sys
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data.image_arrays import read_image_arrays
from torchcaps.data.image_folder import FolderImages, read_image_folder
from torchcaps.data.pictures import fit_image, read_image
from torchcaps.errors import DataError

GREY = np.arange(48, dtype=np.uint8).reshape(6, 8)


def save(path, pixels=GREY, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(path, **options)


def flat(value, size=(8, 6), mode="L"):
    return Image.new(mode, size, value)


def numbered(root, classes=("cat", "dog"), count=10):
    """Every image has its own grey level, so that it can be recognised."""
    for label, name in enumerate(classes):
        for index in range(count):
            save(root / name / f"{index:02}.png", flat(label * 100 + index))
    return root


def levels(own):
    return own.data.images[:, 0, 0, 0].tolist()


# ---------------------------------------------------------------- folder: what is found


def test_folder_gives_images_labels_and_names(tmp_path):
    own = read_image_folder(numbered(tmp_path), "train")
    assert isinstance(own, FolderImages)
    assert own.data.images.shape == (16, 1, 6, 8)
    assert own.data.images.dtype == torch.uint8
    assert own.data.class_names == ("cat", "dog")
    assert own.data.labels.tolist() == [level // 100 for level in levels(own)]
    assert own.skipped == ()


def test_extensions_in_any_case_deeper_folders_and_hidden_things(tmp_path):
    for name in ("train", "test"):
        for index, file in enumerate(("a.PNG", "b.jpg", "deep/er/c.JPEG", "deep/d.png")):
            save(tmp_path / name / "one" / file, flat(20 * index))
            save(tmp_path / name / "two" / file, flat(20 * index + 100))
        save(tmp_path / name / "one" / ".hidden.png", flat(255))
        save(tmp_path / name / "one" / ".cache" / "x.png", flat(255))
        save(tmp_path / name / ".three" / "x.png", flat(255))
        (tmp_path / name / "one" / "notes.txt").write_text("not an image")
    own = read_image_folder(tmp_path, "train")
    assert own.data.class_names == ("one", "two")
    assert levels(own) == [0, 20, 60, 40, 100, 120, 160, 140]  # "deep/d.png" comes before "deep/er/c.JPEG"


@pytest.mark.parametrize("as_path", [str, lambda path: path])
def test_train_and_test_folders_are_the_splits(tmp_path, as_path):
    numbered(tmp_path / "train", count=3)
    numbered(tmp_path / "test", count=2)
    numbered(tmp_path / "val", classes=("other",))
    assert levels(read_image_folder(as_path(tmp_path), "train")) == [0, 1, 2, 100, 101, 102]
    assert levels(read_image_folder(as_path(tmp_path), "test")) == [0, 1, 100, 101]


def test_test_folder_may_lack_a_class_but_not_add_one(tmp_path):
    numbered(tmp_path / "train", classes=("a", "b", "c"), count=2)
    numbered(tmp_path / "test", classes=("b",), count=3)
    own = read_image_folder(tmp_path, "test")
    assert own.data.class_names == ("a", "b", "c")
    assert own.data.labels.tolist() == [1, 1, 1]
    save(tmp_path / "test" / "zebra" / "1.png")
    for split in ("train", "test"):
        with pytest.raises(DataError, match=r"train/ lacks: zebra"):
            read_image_folder(tmp_path, split)


def test_class_names_fix_the_labels(tmp_path):
    numbered(tmp_path)
    own = read_image_folder(tmp_path, "test", class_names=["dog", "bird", "cat"])
    assert own.data.class_names == ("dog", "bird", "cat")
    assert [2 if level < 100 else 0 for level in levels(own)] == own.data.labels.tolist()
    assert levels(own) == levels(read_image_folder(tmp_path, "test"))
    with pytest.raises(DataError, match="none of the classes .*: dog"):
        read_image_folder(tmp_path, "test", class_names=["cat", "bird"])
    with pytest.raises(DataError, match="different"):
        read_image_folder(tmp_path, "test", class_names=["cat", "dog", "cat"])


# ---------------------------------------------------------------- the cut


def test_cut_is_disjoint_complete_and_has_every_class(tmp_path):
    numbered(tmp_path)
    train, test = (read_image_folder(tmp_path, split) for split in ("train", "test"))
    assert not set(levels(train)) & set(levels(test))
    assert sorted(levels(train) + levels(test)) == [*range(10), *range(100, 110)]
    assert set(test.data.labels.tolist()) == set(train.data.labels.tolist()) == {0, 1}
    assert levels(test) == levels(read_image_folder(tmp_path, "test"))
    assert sorted(levels(read_image_folder(tmp_path, "all"))) == [*range(10), *range(100, 110)]


def test_more_images_leave_those_where_they_are_that_are_there(tmp_path):
    numbered(tmp_path)
    before = read_image_folder(tmp_path, "test")
    numbered(tmp_path, classes=("cat",), count=15)
    after = read_image_folder(tmp_path, "test")
    assert [level for level in levels(after) if level < 10 or level >= 100] == levels(before)


def test_one_image_per_class_can_train_but_not_test(tmp_path):
    numbered(tmp_path, count=1)
    assert levels(read_image_folder(tmp_path, "train")) == [0, 100]
    with pytest.raises(DataError, match="one image per class"):
        read_image_folder(tmp_path, "test")


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("place", ["train", "test"])
def test_one_coloured_image_anywhere_makes_all_rgb(tmp_path, split, place):
    for part in ("train", "test"):
        numbered(tmp_path / part, count=2)
    assert read_image_folder(tmp_path, split).data.image_shape == (1, 6, 8)
    save(tmp_path / place / "cat" / "colour.png", flat((10, 20, 30), mode="RGB"))
    own = read_image_folder(tmp_path, split)
    assert own.data.image_shape == (3, 6, 8)
    if split == place:
        assert own.data.images[2, :, 0, 0].tolist() == [10, 20, 30]
    assert own.data.images[0, :, 0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("place", ["train", "test"])
def test_sizes_that_differ_give_32(tmp_path, split, place):
    for part in ("train", "test"):
        numbered(tmp_path / part, count=2)
    save(tmp_path / place / "cat" / "other.png", flat(9, size=(6, 8)))
    assert read_image_folder(tmp_path, split).data.image_shape == (1, 32, 32)


@pytest.mark.parametrize(("size", "kept"), [((64, 10), (10, 64)), ((65, 65), (32, 32)), ((10, 65), (32, 32))])
def test_small_sizes_are_kept(tmp_path, size, kept):
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        save(tmp_path / name, flat(5, size=size))
    assert read_image_folder(tmp_path, "train").data.image_shape == (1, *kept)


def test_image_size_is_obeyed(tmp_path):
    assert read_image_folder(numbered(tmp_path), "train", image_size=12).data.image_shape == (1, 12, 12)
    with pytest.raises(DataError, match="image_size must be at least 1"):
        read_image_folder(tmp_path, "train", image_size=0)


def test_all_kinds_of_grey_are_one_channel(tmp_path):
    deep = np.array([[0, 257, 65535], [128, 129, 32896]], dtype=np.uint16)
    save(tmp_path / "train" / "a" / "1.png", Image.fromarray(deep))
    save(tmp_path / "train" / "a" / "2.png", flat(1, size=(3, 2), mode="1"))
    save(tmp_path / "train" / "b" / "1.png", flat((200, 51), size=(3, 2), mode="LA"))
    save(tmp_path / "train" / "b" / "2.jpg", flat(90, size=(3, 2)))
    save(tmp_path / "test" / "a" / "1.png", flat(0, size=(3, 2)))
    data = read_image_folder(tmp_path, "train").data
    assert data.image_shape == (1, 2, 3)
    assert data.images[0, 0].tolist() == [[0, 1, 255], [0, 1, 128]]
    assert data.images[1:, 0, 0, 0].tolist() == [255, 40, 90]


def test_rotation_counts_for_the_size(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    numbered(tmp_path)  # 8 wide, 6 high
    save(tmp_path / "cat" / "turned.png", flat(1, size=(6, 8)), exif=turned)
    assert read_image_folder(tmp_path, "train").data.image_shape == (1, 6, 8)


# ---------------------------------------------------------------- one image


def test_fit_keeps_what_fits():
    assert torch.equal(fit_image(Image.fromarray(GREY), (1, 6, 8))[0], torch.from_numpy(GREY))
    coloured = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    fitted = fit_image(Image.fromarray(coloured), (3, 5, 4))
    assert fitted.is_contiguous()
    assert torch.equal(fitted, torch.from_numpy(coloured).permute(2, 0, 1))


def test_fit_keeps_the_aspect_ratio_with_black_borders():
    wide = fit_image(flat(200, size=(40, 20)), (1, 8, 8))[0]
    assert wide[2:6].eq(200).all()
    assert wide[:2].eq(0).all()
    assert wide[6:].eq(0).all()
    tall = fit_image(flat(200, size=(2, 4)), (1, 8, 12))[0]  # made larger
    assert tall[:, 4:8].eq(200).all()
    assert int(tall.count_nonzero()) == 8 * 4
    assert fit_image(flat(200, size=(1000, 1)), (1, 8, 8)).count_nonzero() == 8  # at least one pixel high


@pytest.mark.parametrize("name", ["turned.png", "turned.jpg"])
def test_exif_rotation_is_applied(tmp_path, name):
    pixels = np.zeros((16, 32), dtype=np.uint8)
    pixels[:, :16] = 255  # the left half; turned clockwise it is the top half
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / name, pixels, exif=exif)
    upright = read_image(tmp_path / name, (1, 32, 16))[0]
    assert upright[:16].gt(250).all()
    assert upright[16:].lt(5).all()


@pytest.mark.parametrize(
    ("image", "grey"),
    [
        (flat((200, 100, 50, 0), mode="RGBA"), [0, 0, 0]),
        (flat((200, 100, 50, 255), mode="RGBA"), [200, 100, 50]),
        (flat((200, 100, 50, 51), mode="RGBA"), [40, 20, 10]),
        (flat((200, 0), mode="LA"), [0, 0, 0]),
        (flat(200), [200, 200, 200]),
        (flat(1, mode="1"), [255, 255, 255]),
        (flat(25700, mode="I;16"), [100, 100, 100]),
        (flat(25700, mode="I"), [100, 100, 100]),
        (flat((0, 255, 255, 0), mode="CMYK"), [255, 0, 0]),
    ],
)
def test_modes_become_rgb(image, grey):
    assert fit_image(image, (3, 6, 8))[:, 3, 3].tolist() == grey


def test_declared_transparent_colours_are_black(tmp_path):
    palette = flat(1, mode="P")
    palette.putpalette([9, 9, 9, 200, 100, 50])
    save(tmp_path / "kept.png", palette, transparency=0)
    save(tmp_path / "clear.png", palette, transparency=1)
    save(tmp_path / "grey.png", flat(77), transparency=77)
    save(tmp_path / "deep.png", flat(40000, mode="I;16"), transparency=40000)
    assert read_image(tmp_path / "kept.png", (3, 6, 8))[:, 0, 0].tolist() == [200, 100, 50]
    for name in ("clear.png", "grey.png", "deep.png"):
        assert read_image(tmp_path / name, (3, 6, 8)).count_nonzero() == 0


def test_two_channels_cannot_come_from_a_file(tmp_path):
    save(tmp_path / "a.png")
    with pytest.raises(DataError, match="1 .grey. or 3 .RGB. channels, but 2"):
        read_image(tmp_path / "a.png", (2, 6, 8))


def big_png(path):
    """A PNG file that claims 50,000 x 50,000 pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0")))


def cut_short(path, size=(200, 200)):
    noise = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    save(path, noise)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


BROKEN = {
    "empty.png": (lambda path: write(path, b""), "empty"),
    "text.jpg": (lambda path: write(path, b"hello, I am no image"), "not an image"),
    "short.png": (cut_short, "truncated"),
    "short.jpg": (cut_short, "truncated"),
    "small_short.png": (lambda path: cut_short(path, (20, 20)), "truncated"),
    "bomb.png": (big_png, "too many pixels"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_is_a_data_error(tmp_path, name):
    make, reason = BROKEN[name]
    make(tmp_path / name)
    with pytest.raises(DataError, match=f"{name} cannot be read as an image: .*{reason}"):
        read_image(tmp_path / name, (1, 8, 8))


def test_absent_file_and_folder_are_data_errors(tmp_path):
    with pytest.raises(DataError, match="absent.png cannot be read"):
        read_image(tmp_path / "absent.png", (1, 8, 8))
    with pytest.raises(DataError, match="cannot be read"):
        read_image(tmp_path, (1, 8, 8))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pixels_above_the_limit_are_refused_where_pillow_only_warns(tmp_path, monkeypatch):
    save(tmp_path / "a.png")  # 48 pixels
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(DataError, match="too many pixels"):
        read_image(tmp_path / "a.png", (1, 6, 8))


# ---------------------------------------------------------------- unreadable images in a folder


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("size", [(8, 6), (80, 60)])
def test_unreadable_image_is_refused_or_skipped(tmp_path, name, size):
    for part in ("train", "test"):
        for file in ("a/1.png", "a/2.png", "b/1.png"):
            save(tmp_path / part / file, flat(50, size=size))
    make, reason = BROKEN[name]
    make(tmp_path / "train" / "a" / name)
    with pytest.raises(DataError, match=rf'1 of 7 images .*train/a/{name} .*{reason}.*unreadable "skip"'):
        read_image_folder(tmp_path, "train")
    own = read_image_folder(tmp_path, "train", unreadable="skip")
    assert len(own.skipped) == 1
    assert own.skipped[0].startswith(f"train/a/{name}: ")
    assert reason in own.skipped[0]
    assert own.data.labels.tolist() == [0, 0, 1]
    assert read_image_folder(tmp_path, "test", unreadable="skip").skipped == ()


def test_images_stay_with_their_labels_when_some_are_skipped(tmp_path):
    for name, label in (("a", 10), ("b", 20)):
        for index in range(4):
            for part in ("train", "test"):
                save(tmp_path / part / name / f"{index}.png", flat(label + index, size=(70, 70)))
    for name in ("train/a/0.png", "train/a/2.png", "train/b/3.png"):
        cut_short(tmp_path / name)
    own = read_image_folder(tmp_path, "train", unreadable="skip")
    assert [text.split(":")[0] for text in own.skipped] == ["train/a/0.png", "train/a/2.png", "train/b/3.png"]
    assert levels(own) == [11, 13, 20, 21, 22]
    assert own.data.labels.tolist() == [0, 0, 1, 1, 1]


def test_refusal_names_five_and_counts_all(tmp_path):
    numbered(tmp_path)
    for index in range(7):
        write(tmp_path / "cat" / f"bad{index}.png", b"")
    with pytest.raises(DataError, match="7 of 27 images") as refused:
        read_image_folder(tmp_path, "train")
    assert [f"bad{index}.png" in str(refused.value) for index in range(7)] == [True] * 5 + [False] * 2


def test_unreadable_files_leave_the_cut_as_it_is(tmp_path):
    numbered(tmp_path, count=40)
    before = {split: levels(read_image_folder(tmp_path, split)) for split in ("train", "test")}
    write(tmp_path / "cat" / "00.png", b"")
    for split in ("train", "test"):
        after = levels(read_image_folder(tmp_path, split, unreadable="skip"))
        assert after == [level for level in before[split] if level != 0]


def test_class_of_unreadable_images_is_an_error(tmp_path):
    numbered(tmp_path / "train", count=3)
    numbered(tmp_path / "test", count=2)
    for index in range(3):
        write(tmp_path / "train" / "dog" / f"{index:02}.png", b"")
    with pytest.raises(DataError, match="not one train image can be read .*: dog"):
        read_image_folder(tmp_path, "train", unreadable="skip")
    assert len(read_image_folder(tmp_path, "test", unreadable="skip").data) == 4


def test_folder_of_nothing_but_unreadable_images(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        write(tmp_path / name, name.encode())
    with pytest.raises(DataError, match="4 of 4 images"):
        read_image_folder(tmp_path, "train")
    for split in ("train", "test"):
        with pytest.raises(DataError, match=f"not one {split} image can be read .*: a, b"):
            read_image_folder(tmp_path, split, unreadable="skip")


# ---------------------------------------------------------------- folders that are refused


def test_absent_path(tmp_path):
    with pytest.raises(DataError, match="there is no folder .*nowhere"):
        read_image_folder(tmp_path / "nowhere", "train")


def test_file_in_place_of_a_folder(tmp_path):
    save(tmp_path / "a.png")
    with pytest.raises(DataError, match="a.png is not a folder"):
        read_image_folder(tmp_path / "a.png", "train")


def test_images_without_class_folders(tmp_path):
    save(tmp_path / "a.png")
    with pytest.raises(DataError, match="no class folders. Put the images into one folder per class"):
        read_image_folder(tmp_path, "train")


def test_one_class_only(tmp_path):
    numbered(tmp_path, classes=("cat",))
    with pytest.raises(DataError, match="one class only: 'cat'; a classifier needs at least two"):
        read_image_folder(tmp_path, "train")


def test_empty_class_folders(tmp_path):
    numbered(tmp_path)
    (tmp_path / "bird").mkdir()
    with pytest.raises(DataError, match="hold no images: bird"):
        read_image_folder(tmp_path, "train")


def test_empty_class_folder_in_a_split(tmp_path):
    numbered(tmp_path / "train")
    numbered(tmp_path / "test", classes=("cat",))
    (tmp_path / "test" / "dog").mkdir()
    with pytest.raises(DataError, match="hold no images: test/dog"):
        read_image_folder(tmp_path, "train")


@pytest.mark.parametrize("folders", [(), ("cat", "dog")])
def test_no_images_at_all(tmp_path, folders):
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="holds no images at all"):
        read_image_folder(tmp_path, "train")


@pytest.mark.parametrize(
    "files",
    [
        ("train/1.png", "test/1.png"),
        ("train/a/1.png", "train/b/1.png"),
        ("train/a/1.png", "train/b/1.png", "val/a/1.png"),
        ("Train/a/1.png", "Train/b/1.png", "Test/a/1.png", "Test/b/1.png"),
    ],
)
def test_splits_are_not_taken_for_classes(tmp_path, files):
    for file in files:
        save(tmp_path / file)
    with pytest.raises(DataError, match="look like splits, not classes"):
        read_image_folder(tmp_path, "train")


def test_class_may_be_called_train(tmp_path):
    numbered(tmp_path, classes=("bus", "train"), count=2)
    assert read_image_folder(tmp_path, "train").data.class_names == ("bus", "train")


def test_unknown_options(tmp_path):
    numbered(tmp_path)
    with pytest.raises(DataError, match="train, test or all, got 'valid'"):
        read_image_folder(tmp_path, "valid")
    with pytest.raises(DataError, match='"refuse" or "skip", got \'ignore\''):
        read_image_folder(tmp_path, "train", unreadable="ignore")


# ---------------------------------------------------------------- arrays


def npz(tmp_path, **arrays):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    return path


def pixels(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


Y = np.array([0, 1, 2, 0, 1, 2])


def both(path, **options):
    return [read_image_arrays(path, split, **options) for split in ("train", "test")]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 5, 4), None),
        ((6, 5, 4, 1), (0, 3, 1, 2)),
        ((6, 5, 4, 3), (0, 3, 1, 2)),
        ((6, 1, 5, 4), (0, 1, 2, 3)),
        ((6, 2, 5, 4), (0, 1, 2, 3)),
        ((6, 3, 5, 4), (0, 1, 2, 3)),
        ((6, 3, 5, 3), (0, 3, 1, 2)),  # both possible: channels last
        ((6, 2, 5, 1), (0, 3, 1, 2)),
    ],
)
def test_array_shapes(tmp_path, shape, axes):
    x = pixels(*shape)
    data = read_image_arrays(npz(tmp_path, x=x, y=Y, x_test=x, y_test=Y), "train")
    expected = x[:, None] if axes is None else x.transpose(axes)
    assert torch.equal(data.images, torch.from_numpy(expected.copy()))
    assert data.labels.tolist() == Y.tolist()
    assert data.class_names == ("0", "1", "2")


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4, 2), (6, 5, 4, 4), (6, 4, 5, 5), (6, 1, 2, 3, 4), (6, 0, 4)])
def test_other_array_shapes_are_refused(tmp_path, shape):
    with pytest.raises(DataError, match=r"shape"):
        read_image_arrays(npz(tmp_path, x=pixels(*shape), y=Y), "train")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_float_images_are_scaled(tmp_path, dtype):
    x = np.zeros((6, 2, 2), dtype=dtype)
    x[:, 0, 0], x[:, 0, 1], x[:, 1, 0] = 1, 0.5, 1 / 255
    data = read_image_arrays(npz(tmp_path, x=x, y=Y), "train")
    assert data.images[0, 0].tolist() == [[255, 128], [1, 0]]


@pytest.mark.parametrize("value", [1.5, 255.0, -0.1, np.nan, np.inf])
def test_float_images_out_of_range_are_refused(tmp_path, value):
    x = np.zeros((6, 2, 2))
    x[3, 1, 1] = value
    with pytest.raises(DataError, match=r"float images must be in 0 … 1.*Scale them"):
        read_image_arrays(npz(tmp_path, x=x, y=Y), "train")


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint16", "complex64"])
def test_other_kinds_of_numbers_are_refused(tmp_path, dtype):
    with pytest.raises(DataError, match=f"must be uint8.*got {dtype}"):
        read_image_arrays(npz(tmp_path, x=np.zeros((6, 2, 2), dtype=dtype), y=Y), "train")


def test_test_arrays_are_the_test_split(tmp_path):
    path = npz(tmp_path, x=pixels(6, 5, 4), y=Y, x_test=pixels(2, 5, 4), y_test=np.array([[2], [2]], dtype=np.uint8))
    train, test = both(path)
    assert len(train) == 6
    assert test.labels.tolist() == [2, 2]
    assert test.class_names == train.class_names == ("0", "1", "2")
    assert torch.equal(test.images[:, 0], torch.from_numpy(pixels(2, 5, 4)))


def test_arrays_are_cut(tmp_path):
    x = np.arange(40, dtype=np.uint8).reshape(40, 1, 1)
    train, test = both(npz(tmp_path, x=x, y=np.arange(40) % 2))
    ids = [data.images.flatten().tolist() for data in (train, test)]
    assert sorted(ids[0] + ids[1]) == list(range(40))
    assert [index % 2 for index in ids[0]] == train.labels.tolist()
    assert set(test.labels.tolist()) == {0, 1}


def test_arrays_of_one_image_per_class(tmp_path):
    path = npz(tmp_path, x=pixels(3, 5, 4), y=np.arange(3))
    assert len(read_image_arrays(path, "train")) == 3
    with pytest.raises(DataError, match="one image per class"):
        read_image_arrays(path, "test")


def test_string_labels_are_class_names(tmp_path):
    y = np.array(["dog", "cat", "eel", "dog", "cat", "eel"])
    arrays = {"x": pixels(6, 5, 4), "y": y, "x_test": pixels(1, 5, 4)}
    train, test = both(npz(tmp_path, **arrays, y_test=np.array([["eel"]])))
    assert train.class_names == ("cat", "dog", "eel")
    assert train.labels.tolist() == [1, 0, 2, 1, 0, 2]
    assert test.labels.tolist() == [2]
    own = read_image_arrays(npz(tmp_path, x=arrays["x"], y=y, class_names=["eel", "dog", "cat", "ant"]), "train")
    assert own.class_names == ("eel", "dog", "cat", "ant")
    with pytest.raises(DataError, match=r"y_test .*no class: \['fox'\]"):
        read_image_arrays(npz(tmp_path, **arrays, y_test=np.array(["fox"])), "train")
    with pytest.raises(DataError, match=r"y in .*no class: \['eel'\]"):
        read_image_arrays(npz(tmp_path, x=arrays["x"], y=y, class_names=["dog", "cat"]), "train")


def test_class_names_name_the_numbers(tmp_path):
    x = pixels(6, 5, 4)
    data = read_image_arrays(npz(tmp_path, x=x, y=[3, 1, 3, 1, 3, 1], class_names=["a", "b", "c", "d"]), "train")
    assert data.class_names == ("a", "b", "c", "d")
    assert set(data.labels.tolist()) == {1, 3}
    with pytest.raises(DataError, match=r"0 … 1 for 2 class names, got 2"):
        read_image_arrays(npz(tmp_path, x=x, y=Y, class_names=["a", "b"]), "train")
    with pytest.raises(DataError, match="class_names .* must be unicode strings"):
        read_image_arrays(npz(tmp_path, x=x, y=Y, class_names=[1, 2, 3]), "train")
    with pytest.raises(DataError, match="different"):
        read_image_arrays(npz(tmp_path, x=x, y=Y, class_names=["a", "b", "a"]), "train")


@pytest.mark.parametrize("y", [[1, 2, 3, 1, 2, 3], [3, 7, 3, 7, 3, 7], [0, 2, 0, 2, 0, 2]])
def test_numbers_with_gaps_are_refused(tmp_path, y):
    with pytest.raises(DataError, match="Renumber them from 0.*or add class_names"):
        read_image_arrays(npz(tmp_path, x=pixels(6, 5, 4), y=y), "train")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 0, 1, 0], "6 images in x of .*, 5 in y of"),
        ([0, 1, -1, 1, 0, 1], "must not be negative, got -1"),
        ([0, 0, 0, 0, 0, 0], "one class only: '0'; a classifier needs at least two"),
        (["a"] * 6, "one class only: 'a'"),
        ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], "must be integers or unicode strings, got float64"),
        ([b"a", b"b"] * 3, "must be integers or unicode strings"),
        (np.eye(6, dtype=int), r"single 1 in each row of 6.*argmax"),
        (np.array(["a", "b"] * 3, dtype=object), "Python objects .* are refused"),
    ],
)
def test_labels_that_are_refused(tmp_path, y, message):
    with pytest.raises(DataError, match=message):
        read_image_arrays(npz(tmp_path, x=pixels(6, 5, 4), y=y), "train")


def test_test_arrays_must_fit(tmp_path):
    x = pixels(6, 5, 4)
    with pytest.raises(DataError, match="images of one shape"):
        read_image_arrays(npz(tmp_path, x=x, y=Y, x_test=pixels(6, 4, 5), y_test=Y), "train")
    with pytest.raises(DataError, match="y_test .* must be in 0 … 2"):
        read_image_arrays(npz(tmp_path, x=x, y=Y, x_test=x, y_test=Y + 1), "train")
    with pytest.raises(DataError, match="no array 'y_test', .*; found: x, x_test, y"):
        read_image_arrays(npz(tmp_path, x=x, y=Y, x_test=x), "train")


def test_missing_arrays_are_listed(tmp_path):
    with pytest.raises(DataError, match="no array 'x', the images .*; found: pictures, y"):
        read_image_arrays(npz(tmp_path, pictures=pixels(6, 5, 4), y=Y), "train")
    with pytest.raises(DataError, match="no array 'y', the labels .*; found: x"):
        read_image_arrays(npz(tmp_path, x=pixels(6, 5, 4)), "train")
    with pytest.raises(DataError, match="holds no images"):
        read_image_arrays(npz(tmp_path, x=pixels(0, 5, 4), y=Y[:0]), "train")


def test_files_that_are_no_npz(tmp_path):
    path = tmp_path / "own.npz"
    for content in (pickle.dumps({"x": 1}), b"", b"PK\x03\x04 and nothing more", b"text"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"is not an .npz file of arrays.*np.savez"):
            read_image_arrays(path, "train")
    with path.open("wb") as file:
        np.save(file, pixels(6, 5, 4))
    with pytest.raises(DataError, match="is a single array"):
        read_image_arrays(path, "train")
    with pytest.raises(DataError, match="there is no file .*absent.npz"):
        read_image_arrays(tmp_path / "absent.npz", "train")


def test_unknown_split_of_arrays(tmp_path):
    with pytest.raises(DataError, match="train, test or all, got 'valid'"):
        read_image_arrays(npz(tmp_path, x=pixels(6, 5, 4), y=Y), "valid")


def test_missing_libraries_are_named(tmp_path, monkeypatch):
    numbered(tmp_path / "images")
    path = npz(tmp_path, x=pixels(6, 5, 4), y=Y)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match="pip install pillow"):
        read_image_folder(tmp_path / "images", "train")
    with pytest.raises(DataError, match="pip install pillow"):
        read_image(tmp_path / "images" / "cat" / "00.png", (1, 6, 8))
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(DataError, match="pip install numpy"):
        read_image_arrays(path, "train")


class Harmful:
    """Unpickling it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_is_unpickled(tmp_path):
    mark = tmp_path / "was_run"
    path = tmp_path / "own.npz"
    harmful = Harmful(mark)
    path.write_bytes(pickle.dumps(harmful))
    with pytest.raises(DataError, match="pickles are not opened"):
        read_image_arrays(path, "train")
    with pytest.raises(DataError, match="refused"):
        read_image_arrays(npz(tmp_path, x=np.array([harmful] * 6), y=Y), "train")
    assert not mark.exists()
