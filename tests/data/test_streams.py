"""Splits, orders, batches and random numbers are those of every earlier version: runs made then can be compared.

``streams.json`` was recorded before the data sets were classes. Whole numbers must be the same bit for bit; numbers
that come from interpolation or rendering may differ in their last digits between processors.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcaps.data.batches import TrainingBatches
from torchcaps.data.dataset import Files
from torchcaps.data.datasets.text_benchmarks import fold_numbers
from torchcaps.data.images import Source
from torchcaps.data.options import DataOptions, TextOptions
from torchcaps.data.preparation import Preparation
from torchcaps.data.registry import make_image_dataset, make_text_dataset
from torchcaps.data.sources import evaluation_source, text_sources, training_sources
from torchcaps.data.splits import cut_validation
from torchcaps.data.synthetic.viewpoints import Viewpoints, render_instances
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.vectors import make_initial_vectors

RECORDED = Path(__file__).with_name("streams.json")
Fingerprint = dict[str, Any]


def exact(values: Tensor) -> str:
    """Of whole numbers, or of pixels in 0 … 1 that are whole numbers over 255."""
    whole = (values.double() * 255).round().to(torch.uint8) if values.is_floating_point() else values
    if values.is_floating_point():
        assert torch.equal(whole.float() / 255, values)
    content = whole.contiguous().numpy().tobytes()
    return f"{list(whole.shape)} {whole.dtype} {hashlib.sha256(content).hexdigest()[:24]}"


def rounded(values: Tensor) -> list[Any]:
    """Of other numbers: means that depend on values and places."""
    flat = values.double().flatten()
    place = torch.arange(1, len(flat) + 1, dtype=torch.float64) * 0.6180339887498949 % 1
    return [list(values.shape), float(flat.mean()), float((flat * place).mean()), float(flat.square().mean())]


def of_batches(source: Source, exactly: bool, seed: int = 3) -> Fingerprint:
    """Orders of two epochs, and the first batches of both."""
    batches = TrainingBatches(source, 20, seed)
    print_inputs: Callable[[Tensor], Any] = exact if exactly else rounded
    found: Fingerprint = {"orders": [exact(batches.indices(epoch)) for epoch in (0, 1)], "batches": []}
    for epoch in (0, 1):
        batches.start(epoch)
        batch = next(iter(batches))
        found["batches"].append([print_inputs(batch.inputs), exact(batch.labels), print_inputs(batch.targets)])
    return found


def of_source(source: Source, exactly: bool) -> list[Any]:
    """A batch of what a model is judged on."""
    batch = source.batch(torch.arange(0, len(source), max(1, len(source) // 40)), 0)
    print_inputs: Callable[[Tensor], Any] = exact if exactly else rounded
    return [len(source), print_inputs(batch.inputs), exact(batch.labels), print_inputs(batch.targets)]


def image_streams(options: DataOptions, exactly: bool = True, exact_test: bool | None = None) -> Fingerprint:
    dataset, files = make_image_dataset(options), Files(counted=True)  # one's own data as version 0.1 cut it
    train, validation = training_sources(dataset, options, 3, files)
    assert validation is not None
    test = evaluation_source(dataset, Preparation.from_options(options), files=files)
    return {
        "train": of_batches(train, exactly),
        "validation": of_source(validation, exactly),
        "test": of_source(test, exactly if exact_test is None else exact_test),
    }


def text_streams(options: DataOptions) -> Fingerprint:
    text, dataset = TextOptions(), make_text_dataset(options)
    files = Files(counted=True)
    train, validation = text_sources(dataset, options, text, 3, files)
    assert validation is not None
    test = Texts(dataset.load("test", files), train.vocabulary, 400)
    words = "\n".join(train.vocabulary.words).encode()
    vectors, _ = make_initial_vectors(text, train.vocabulary, seed=3)
    return {
        "vocabulary": f"{len(train.vocabulary)} {hashlib.sha256(words).hexdigest()[:24]}",
        "train": of_token_ids(train),
        "validation": of_token_ids(validation),
        "test": of_token_ids(test),
        "vectors": rounded(vectors),
        "first vector": vectors[2, :5].tolist(),
    }


def of_token_ids(source: Texts) -> list[Any]:
    batches = TrainingBatches(source, 10, 3)
    batch = next(iter(batches))
    whole = source.batch(torch.arange(len(source)))
    return [len(source), exact(batches.indices(0)), exact(batch.inputs), exact(whole.inputs), exact(whole.labels)]


def made_images() -> tuple[Any, Any]:
    """60 grey images 12×10 of three classes."""
    generator = np.random.default_rng(5)
    return generator.integers(0, 256, (60, 12, 10), dtype=np.uint8), generator.integers(0, 3, 60)


def own_arrays(folder: Path) -> Fingerprint:
    x, y = made_images()
    np.savez(folder / "own.npz", x=x, y=y)
    return image_streams(DataOptions(name=str(folder / "own.npz"), validation=0.2))


def own_folder(folder: Path) -> Fingerprint:
    from PIL import Image

    for number, (image, label) in enumerate(zip(*made_images(), strict=True)):
        place = folder / "photos" / "abc"[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number:03}.png")
    return image_streams(DataOptions(name=str(folder / "photos"), validation=0.2, mirror=True))


def own_texts(folder: Path) -> Fingerprint:
    generator = np.random.default_rng(6)
    words = [f"word{number}" for number in range(50)]
    lines = ["text,label"]
    for number in range(80):
        lines.append(" ".join(generator.choice(words, int(generator.integers(1, 12)))) + f",{'xyz'[number % 3]}")
    (folder / "own.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return text_streams(DataOptions(name=str(folder / "own.csv"), validation=0.2))


def cuts(_: Path) -> Fingerprint:
    labels = torch.arange(500) * 7 % 11
    return {
        "validation": [exact(part) for part in cut_validation(labels, 0.13, seed=9)],
        "folds": exact(fold_numbers(labels, seed=4)),
        "info": exact(Viewpoints().load_info("test")),
    }


PATCHES = {"resize": 24, "standardize": True, "crop": 16, "crops": 13, "shift": 0}
STREAMS: dict[str, Callable[[Path], Fingerprint]] = {
    "mnist-mini, plain": lambda _: image_streams(DataOptions(shift=0)),
    "mnist-mini, shifted and mirrored": lambda _: image_streams(DataOptions(shift=2, mirror=True)),
    "mnist-mini, patches": lambda _: image_streams(DataOptions(**PATCHES), exactly=False),  # type: ignore[arg-type]
    "mnist-mini, lit": lambda _: image_streams(DataOptions(brightness=0.2, contrast=0.3), exactly=False),
    "multi-mnist": lambda _: image_streams(DataOptions(name="multi-mnist"), exactly=False),
    "affine-mnist": lambda _: image_streams(DataOptions(name="affine-mnist"), exact_test=False),
    "own .npz": own_arrays,
    "own folder": own_folder,
    "own .csv": own_texts,
    "mr-mini": lambda _: text_streams(DataOptions(name="mr-mini")),
    "viewpoints": lambda _: {"images": rounded(render_instances((4,), (0, 160), (30, 45)))},
    "cuts": cuts,
}


def same(found: Any, recorded: Any) -> bool:
    """Equal, numbers that are not whole up to their last digits."""
    if isinstance(recorded, dict):
        return found.keys() == recorded.keys() and all(same(found[key], recorded[key]) for key in recorded)
    if isinstance(recorded, list):
        return len(found) == len(recorded) and all(map(same, found, recorded))
    return found == (pytest.approx(recorded, rel=1e-5, abs=1e-6) if isinstance(recorded, float) else recorded)


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_those_of_earlier_versions(name: str, tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    found = json.loads(json.dumps(STREAMS[name](tmp_path)))
    assert found.keys() == recorded.keys()
    for part, value in recorded.items():
        assert same(found[part], value), part


def test_every_recorded_stream_is_compared() -> None:
    assert json.loads(RECORDED.read_text(encoding="utf-8")).keys() == STREAMS.keys()
