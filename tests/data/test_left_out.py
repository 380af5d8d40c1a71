"""Nothing is lost without a word: what is read of a folder, and what is told of the rest."""

import re

import numpy as np
import pytest
from PIL import Image

from torchcaps.cli import main
from torchcaps.data.class_folders import list_class_folders
from torchcaps.data.dataset import Files
from torchcaps.data.image_files import EXTENSIONS
from torchcaps.data.image_folder import ImageFolder, read_image_folder
from torchcaps.errors import DataError


def save(path, level=100, size=(8, 8), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, 10, 20)).save(path, **options)


def write(path, content=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path):
    """Two classes with three images each."""
    for label, name in enumerate(("cat", "dog")):
        for index in range(3):
            save(tmp_path / "photos" / name / f"{index}.png", 100 + 50 * label + index)
    return tmp_path / "photos"


def notices(folder, split="train", **options):
    said = []
    ImageFolder(str(folder), **options).load(split, Files(notice=said.append))
    return said


@pytest.mark.parametrize("ending", [*EXTENSIONS, ".PNG", ".Tiff", ".WEBP"])
def test_every_format_is_read_like_png(tmp_path, ending):
    levels = {}
    for label, name in enumerate(("a", "b")):
        for index in range(4):
            level = levels[name, index] = 60 + 100 * label + 20 * index
            lossless = {"lossless": True} if ending.lower() == ".webp" else {}
            save(tmp_path / name / f"{index}{ending}", level, **lossless)
    own = read_image_folder(tmp_path, "all")
    found = own.data.images[:, 0, 4, 4].tolist()
    assert [abs(level - wanted) <= 3 for level, wanted in zip(found, levels.values(), strict=True)] == [True] * 8
    assert own.skipped == ()


def test_what_a_file_is_counts_not_how_it_is_called(folder):
    Image.new("RGB", (8, 8), (200, 200, 200)).save(folder / "cat" / "9.png", "WEBP")
    Image.new("RGB", (8, 8), (201, 200, 200)).save(folder / "cat" / "8.gif", "TIFF")
    assert len(read_image_folder(folder, "all").data) == 8


LEFT = {
    "other formats": (
        {"cat/a.heic": 3, "dog/b.txt": 1, "dog/c": 1},
        r"^5 files in class folders are not of a format that is read \(.heic 3, no ending 1, .txt 1\) and were left "
        r"out; images end in .png",
    ),
    "one other format": ({"cat/a.svg": 1}, r"^1 file in class folders is not .* \(.svg 1\) and was left out"),
    "what systems leave": ({"cat/.DS_Store": 1, "cat/Thumbs.db": 1, "cat/._1.xyz": 1}, None),
    "hidden images": ({"cat/.9.png": 2}, "^2 images whose names begin with a dot were left out"),
    "in hidden folders": ({".git/a.png": 1, "cat/.cache/a.png": 1}, None),
    "outside of class folders": ({"a.png": 2}, "^2 images in no class folder were left out, such as a.png"),
    "texts beside": ({"readme.txt": 1}, None),
    "a folder called as a split": ({"val/a.png": 1}, "^val/ is read as a class"),
}


@pytest.mark.parametrize(("files", "sentence"), LEFT.values(), ids=LEFT)
def test_what_is_left_out_is_counted_and_told(folder, files, sentence):
    for name, count in files.items():
        for number in range(count):
            place = folder / name
            place = place.with_name(f"{place.stem}{number or ''}{place.suffix}")
            save(place, 30 + number) if place.suffix == ".png" else write(place)
    said = notices(folder)
    assert [bool(re.search(sentence, text)) for text in said] == [True] if sentence else said == []


def test_folders_beside_train_and_test_are_told(tmp_path):
    for split in ("train", "test", "val"):
        for name in ("cat", "dog"):
            save(tmp_path / split / name / "1.png", len(split) * 30)
    write(tmp_path / "train" / "cat" / "a.avif")
    save(tmp_path / "train" / "b.png")
    (said, outside, beside) = notices(tmp_path)
    assert ".avif 1" in said
    assert outside.startswith("1 image in no class folder was left out, such as train/b.png")
    assert "val/, of which nothing is read" in beside
    assert "data.validation" in beside


def test_only_other_formats(tmp_path):
    for name in ("cat", "dog"):
        write(tmp_path / name / "1.heic")
    with pytest.raises(DataError, match=r"no images at all. It has other files \(.heic 2\)"):
        list_class_folders(tmp_path)
    save(tmp_path / "cat" / "1.png")
    with pytest.raises(DataError, match=r"hold no images: dog; there are other files \(.heic 2\)"):
        read_image_folder(tmp_path, "train")


def test_data_check_tells_it_once(folder, capsys):
    write(folder / "cat" / "a.heic")
    save(folder / "dog" / "large.png", size=(640, 480))
    with pytest.raises(SystemExit) as end:
        main(["data", "check", str(folder)])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert out.count(".heic 1") == 1
    assert out.count("brought to 32×32") == 1


def test_frames_and_pages(folder):
    second = Image.new("RGB", (8, 8), (0, 0, 255))
    for name in ("a.gif", "b.tif", "c.webp", "d.png"):
        first = Image.new("RGB", (8, 8), (250, 0, 0))
        first.save(folder / "cat" / name, save_all=True, append_images=[second])
    assert any("Of 4 with several frames or pages the first is read" in text for text in notices(folder))
    own = read_image_folder(folder, "all").data
    for item, image in zip(own.items, own.images, strict=True):
        if not item.name[4].isdigit():
            assert int(image[0].min()) > 200, item.name
            assert int(image[2].max()) < 50, item.name


def test_runs_of_the_first_version_are_counted_as_they_were(folder):
    """They recorded nothing: images of formats that it did not read would move others from training to test."""
    before = [item.name for item in read_image_folder(folder, "test", files=Files(counted=True)).data.items]
    for index in range(10):
        save(folder / "cat" / f"0{index}.webp", index)
    assert [item.name for item in read_image_folder(folder, "test", files=Files(counted=True)).data.items] == before


@pytest.mark.parametrize("level", [0, 1])
def test_black_images_are_told(folder, level):
    Image.fromarray(np.full((8, 8, 3), level, dtype=np.uint8)).save(folder / "cat" / "black.png")
    said = []
    ImageFolder(str(folder)).load("all", Files(notice=said.append))
    assert said == ["1 of 7 images are black all over (no pixel above 1 of 255), such as cat/black.png."]
