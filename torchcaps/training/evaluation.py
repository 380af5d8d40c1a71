"""Judge a trained model on test images or texts, and ask it about single ones. Plain torch, without Lightning."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data.batches import EvaluationBatches
from torchcaps.data.dataset import Files
from torchcaps.data.images import ImageSource, Source
from torchcaps.data.options import DataOptions
from torchcaps.data.preparation import PreparedImages
from torchcaps.data.registry import keep_own_options, make_dataset, make_image_dataset, make_text_dataset
from torchcaps.data.sources import evaluation_source
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.tokens import tokenize
from torchcaps.io import write_text
from torchcaps.progress import Progress, silent
from torchcaps.training.metrics import PRESENT, multi_label_measures, probabilities, stacked
from torchcaps.training.recipe import Recipe
from torchcaps.training.runs import ModelSpec, RunError, TextSpec, load_model, read_run_recipe


def measure(model: nn.Module, source: Source, progress: Progress = silent) -> dict[str, Any]:
    """Accuracy of a model; for several objects per image the strict one, all of them right, and the share found."""
    tick = progress("testing", len(source))
    right = found = 0.0
    per_class = torch.zeros(len(source.class_names), 2)
    with torch.inference_mode():
        for batch in EvaluationBatches(source):
            scores = class_scores(model, batch.inputs)
            labels = batch.labels if batch.labels.dim() == 2 else batch.labels[:, None]
            chosen = scores.topk(labels.shape[1], dim=1).indices
            hits = (labels[:, :, None] == chosen[:, None, :]).any(dim=2)  # [B, M]
            right += float(hits.all(dim=1).sum())
            found += float(hits.float().mean(dim=1).sum())
            per_class[:, 0].index_add_(0, labels.flatten(), hits.flatten().float())
            per_class[:, 1].index_add_(0, labels.flatten(), torch.ones(labels.numel()))
            tick(len(labels))
    count = len(source)
    if not count:
        raise RunError(f"there are no test {source.kind}.")
    result: dict[str, Any] = {source.kind: count, "accuracy": right / count, "error_percent": 100 * (1 - right / count)}
    if source.objects > 1:
        result["share_of_objects_found"] = found / count
    result["accuracy_per_class"] = {
        name: float(hit / total) for name, (hit, total) in zip(source.class_names, per_class, strict=True) if total
    }
    return result


def measure_labels(model: nn.Module, source: Texts) -> dict[str, Any]:
    """What :func:`~torchcaps.training.metrics.multi_label_measures` says; the accuracy is the exact match."""
    if not len(source):
        raise RunError(f"there are no test {source.kind}.")
    batches = EvaluationBatches(source)
    found, labels = stacked((class_scores(model, b.inputs, multi_label=True) > PRESENT, b.labels) for b in batches)
    measures = multi_label_measures(found, labels)
    exact = measures["exact_match"]
    return {source.kind: len(source), "accuracy": exact, "error_percent": 100 * (1 - exact), **measures}


def evaluate(
    run: str | os.PathLike[str],
    overrides: DataOptions | None = None,
    split: str = "test",
    crops: Literal[1, 13] | None = None,
    progress: Progress = silent,
    notice: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure a run on its test images or texts, which is kept in its folder, or on other data of the same kind.

    Args:
        run: a run folder.
        overrides: other data than the run's own; it is prepared as the model's own is.
        split: of the data.
        crops: patches per image whose scores are averaged, 1 or 13; not given: as the run has it. Not of texts.
        progress: shows how far it is.
        notice: told if the result cannot be kept, as in a folder that is not to be written to.
    """
    folder = Path(run)
    recipe = read_run_recipe(folder)
    model, spec = load_model(folder)
    options = overrides or recipe.data
    if isinstance(spec, TextSpec):
        if crops is not None:
            raise RunError("--crops is for images; this is a text model.")
        texts = evaluation_texts(options, recipe, split, spec)
        measured = measure_labels(model, texts) if texts.multi_label else measure(model, texts, progress)
    else:
        images = evaluation_images(options, split, crops, spec, overrides is not None)
        measured = measure(model, images, progress)
    result = {"data": options.name, "split": split, **measured}
    if overrides is None and crops is None:
        try:
            write_text(folder / "evaluation.json", json.dumps(result, indent=2) + "\n")
        except OSError as error:
            if notice:
                notice(f"The result could not be kept in {folder}: {error.strerror}.")
    return result


def evaluation_images(
    options: DataOptions, split: str, crops: Literal[1, 13] | None, spec: ModelSpec, other: bool
) -> ImageSource:
    """The images of a split as a trained model sees them; ``other`` than those of its own data must fit it."""
    options = keep_own_options(options) if other else options
    if make_dataset(options).kind == "texts":
        raise RunError(f"{options.name} has texts, but this model reads images.")
    preparation = spec.preparation if crops is None else replace(spec.preparation, crops=crops)
    dataset = make_image_dataset(options)
    if other:
        dataset = dataset.fit_to(spec.fitted_shape)  # as the model's own were read
    files = Files(options.dir, options.download)
    source = evaluation_source(dataset, preparation, split, files, spec.class_names)
    _check_fit(options.name, source, spec)
    return source


def evaluation_texts(options: DataOptions, recipe: Recipe, split: str, spec: TextSpec) -> Texts:
    """The texts of a split as a trained model reads them, which must be of its classes."""
    if options.name != recipe.data.name:
        options = keep_own_options(options)
        options.options.pop("fold", None)  # a fold is of its data
    if make_dataset(options).kind != "texts":
        raise RunError(f"{options.name} is no text, but this model was trained on {recipe.data.name} and reads words.")
    files = Files(options.dir, options.download)
    data = make_text_dataset(options).load(split, files, spec.class_names, spec.lower)
    if data.class_names != spec.class_names or data.multi_label != spec.multi_label:
        raise RunError(
            f"{options.name} has texts of {', '.join(data.class_names)}, but this model was trained for "
            f"{', '.join(spec.class_names)}{' with any number of labels' if spec.multi_label else ''}."
        )
    assert spec.vocabulary is not None  # load_model has read it
    return Texts(data, spec.vocabulary, spec.longest)


def _check_fit(name: str, source: ImageSource, spec: ModelSpec) -> None:
    """Refuse images that are not of the model's size before a patch is cut, or not of its classes."""
    found = source.data.image_shape if isinstance(source, PreparedImages) else source.image_shape
    expected = spec.preparation.resize_shape(spec.fitted_shape)
    if found != expected or source.class_names != spec.class_names:
        raise RunError(
            f"{name} has images of {found} of {', '.join(source.class_names)}, but this model was "
            f"trained for {expected} of {', '.join(spec.class_names)}."
        )


class Prediction(NamedTuple):
    """What a model says about one image file or text: the classes by falling score."""

    item: str
    labels: tuple[str, ...]
    scores: tuple[float, ...]


def predict(
    run: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]], progress: Progress = silent
) -> list[Prediction]:
    """Classify image files by a run folder or a weights file; each is brought to the training images' shape."""
    from torchcaps.data.pictures import read_image

    model, spec = load_model(run)
    if isinstance(spec, TextSpec):
        raise RunError("this model reads words, not images: give it texts.")
    found, tick = [], progress("looking", len(files))
    for start in range(0, len(files), 256):  # of the same size by then, so many at a time
        some = files[start : start + 256]
        pictures = torch.stack([read_image(Path(file), spec.fitted_shape) for file in some])
        scores = class_scores(model, spec.preparation.cut_patches(spec.preparation.resize_images(pictures)))
        found += [_prediction(str(file), row, spec) for file, row in zip(some, scores, strict=True)]
        tick(len(some))
    return found


def predict_texts(run: str | os.PathLike[str], texts: Sequence[str], progress: Progress = silent) -> list[Prediction]:
    """Classify texts by a run folder or a weights file. Text without any known word is a result too, a poor one."""
    model, spec = load_model(run)
    if not isinstance(spec, TextSpec) or spec.vocabulary is None:
        raise RunError("this model reads images, not texts: give it image files.")
    tokens = tuple(tokenize(text, spec.lower) for text in texts)
    source = Texts(TextSet(tokens, torch.zeros(len(tokens), dtype=torch.int64), spec.class_names), spec.vocabulary,
                   spec.longest)  # fmt: skip
    found: dict[int, Prediction] = {}
    tick = progress("reading", len(tokens))
    for part in source.evaluation_parts(torch.arange(len(tokens)), 500) if texts else []:
        scores = class_scores(model, source.batch(part).inputs, spec.multi_label)
        found |= {int(i): _prediction(texts[int(i)], row, spec) for i, row in zip(part, scores, strict=True)}
        tick(len(part))
    return [found[index] for index in range(len(texts))]


def class_scores(model: nn.Module, inputs: Tensor, multi_label: bool = False) -> Tensor:
    """Activations of the class capsules, or a model's probabilities; of several patches per image the mean.

    Shapes:
        ``[B, C, H, W]``, ``[B, P, C, H, W]`` or numbers of words ``[B, L]`` → ``[B, classes]``.
    """
    patches = inputs.unbind(dim=1) if inputs.dim() == 5 else (inputs,)  # one after the other: memory as for one
    with torch.inference_mode():
        return torch.stack([probabilities(model(patch), multi_label) for patch in patches]).mean(dim=0)


def _prediction(item: str, scores: Tensor, spec: ModelSpec | TextSpec) -> Prediction:
    order = scores.argsort(descending=True)
    return Prediction(item, tuple(spec.class_names[k] for k in order), tuple(float(scores[k]) for k in order))
