"""Judge a trained model on test images, and ask it about single files. Plain torch: nothing of Lightning is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.batches import EvaluationBatches
from torchcaps.data.images import Source
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import PreparedImages
from torchcaps.data.sources import evaluation_source
from torchcaps.training.runs import ModelSpec, RunError, load_model, read_run_recipe, write_text


def measure(model: nn.Module, source: Source) -> dict[str, Any]:
    """Accuracy of a model; for several objects per image the strict one, all of them right, and the share found."""
    right = found = 0.0
    per_class = torch.zeros(len(source.class_names), 2)
    with torch.inference_mode():
        for batch in EvaluationBatches(source):
            scores = class_scores(model, batch.images)
            labels = batch.labels if batch.labels.dim() == 2 else batch.labels[:, None]
            chosen = scores.topk(labels.shape[1], dim=1).indices
            hits = (labels[:, :, None] == chosen[:, None, :]).any(dim=2)  # [B, M]
            right += float(hits.all(dim=1).sum())
            found += float(hits.float().mean(dim=1).sum())
            per_class[:, 0].index_add_(0, labels.flatten(), hits.flatten().float())
            per_class[:, 1].index_add_(0, labels.flatten(), torch.ones(labels.numel()))
    count = len(source)
    if not count:
        raise RunError("there are no test images.")
    result: dict[str, Any] = {"images": count, "accuracy": right / count, "error_percent": 100 * (1 - right / count)}
    if source.objects > 1:
        result["share_of_objects_found"] = found / count
    result["accuracy_per_class"] = {
        name: float(hit / total) for name, (hit, total) in zip(source.class_names, per_class, strict=True) if total
    }
    return result


def evaluate(
    run: str | os.PathLike[str],
    overrides: DataOptions | None = None,
    split: str = "test",
    crops: Literal[1, 13] | None = None,
) -> dict[str, Any]:
    """Measure a run on its test images, or on other data of the same shape; the result is kept in the run folder.

    Args:
        run: a run folder.
        overrides: other data than the run's own; it is prepared as the model's own is.
        split: of the data.
        crops: patches per image whose scores are averaged, 1 or 13; not given: as the run has it.
    """
    folder = Path(run)
    recipe = read_run_recipe(folder)
    model, spec = load_model(folder)
    options = replace(overrides or recipe.data, **asdict(spec.preparation))
    if crops is not None:
        options = replace(options, crops=crops)
    if overrides is not None and Path(options.name).is_dir():
        options = replace(options, image_size=spec.fitted_shape[1])  # as the model's own were read
    source = evaluation_source(options, split, class_names=spec.class_names)
    _check_fit(options.name, source, spec)
    result = {"data": options.name, "split": split, **measure(model, source)}
    if overrides is None and crops is None:
        try:
            write_text(folder / "evaluation.json", json.dumps(result, indent=2) + "\n")
        except OSError as error:
            raise RunError(f"the result cannot be written to {folder}: {error.strerror}.") from error
    return result


def _check_fit(name: str, source: Source, spec: ModelSpec) -> None:
    """Refuse images that are not of the model's size before a patch is cut, or not of its classes."""
    found = source.data.image_shape if isinstance(source, PreparedImages) else source.image_shape
    expected = spec.preparation.resized_shape(spec.fitted_shape)
    if found != expected or source.class_names != spec.class_names:
        raise RunError(
            f"{name} has images of {found} of {', '.join(source.class_names)}, but this model was "
            f"trained for {expected} of {', '.join(spec.class_names)}."
        )


class Prediction(NamedTuple):
    """What a model sees in one image: the classes by falling score."""

    file: str
    labels: tuple[str, ...]
    scores: tuple[float, ...]


def predict(run: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]]) -> list[Prediction]:
    """Classify image files by a run folder or a weights file; each is brought to the training images' shape."""
    from torchcaps.data.pictures import read_image

    model, spec = load_model(run)
    found = []
    for start in range(0, len(files), 256):  # of the same size by then, so many at a time
        some = files[start : start + 256]
        pictures = torch.stack([read_image(Path(file), spec.fitted_shape) for file in some])
        scores = class_scores(model, spec.preparation.patches(spec.preparation.resized(pictures)))
        found += [_prediction(str(file), row, spec) for file, row in zip(some, scores, strict=True)]
    return found


def class_scores(model: nn.Module, images: Tensor) -> Tensor:
    """Activations of the class capsules, or a CNN's probabilities; of several patches per image the mean.

    Shapes:
        ``[B, C, H, W]`` or ``[B, P, C, H, W]`` → ``[B, classes]``.
    """
    patches = images.unbind(dim=1) if images.dim() == 5 else (images,)  # one after the other: memory as for one
    with torch.inference_mode():
        return torch.stack([_scores(model, patch) for patch in patches]).mean(dim=0)


def _scores(model: nn.Module, images: Tensor) -> Tensor:
    output = model(images)
    scores: Tensor = output.scores
    return scores if output.capsules is not None else scores.softmax(dim=1)  # a CNN's scores are logits


def _prediction(file: str, scores: Tensor, spec: ModelSpec) -> Prediction:
    order = scores.argsort(descending=True)
    return Prediction(file, tuple(spec.class_names[k] for k in order), tuple(float(scores[k]) for k in order))
