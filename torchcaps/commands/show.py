"""``torchcaps train --show-images``: what a network would be shown, as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.commands.base import CommandError, say

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.data.images import ImageSource
    from torchcaps.training.recipe import Recipe

ROWS, EPOCHS = 10, 8


def show_images(recipe: Recipe, path: str) -> int:
    """Write a sheet of training images as the first epochs of a recipe would show them, a row for each image."""
    from torchcaps.data.dataset import Files
    from torchcaps.data.registry import make_dataset
    from torchcaps.data.sources import training_sources
    from torchcaps.report.pictures import make_sheet
    from torchcaps.training.sizes import settle_size

    dataset = make_dataset(recipe.data)
    if dataset.kind != "images":
        raise CommandError(f"--show-images is for images, and {recipe.data.name} has {dataset.kind}.")

    def tell(text: str) -> None:
        say(f"torchcaps: {text}", sys.stderr)

    recipe = settle_size(recipe, dataset, tell)
    files = Files(recipe.data.dir, recipe.data.download, notice=tell)
    source, _ = training_sources(dataset, recipe.data, recipe.training.seed, files)  # type: ignore[arg-type]
    chosen = _choose(source)
    rows = _draw(source, chosen, recipe.training.seed)
    target = Path(path).with_suffix(".png") if not Path(path).suffix else Path(path)
    sheet = make_sheet(target.stem, rows, "training images, each as the first epochs show it")
    try:
        target.write_bytes(sheet.content)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}.") from error
    size = "×".join(map(str, source.input_shape))
    say(f"{target}: {len(rows)} training images of {size} in rows, each as the first {EPOCHS} epochs show it.")
    return 0


def _choose(source: ImageSource) -> Tensor:
    """The first image of each class, then their second ones and so on, as many as there are rows."""
    import torch

    labels = getattr(getattr(source, "data", None), "labels", None)
    if labels is None or labels.dim() != 1 or len(labels) != len(source):
        return torch.arange(min(ROWS, len(source)))
    places = [(labels == label).nonzero()[:, 0].tolist() for label in labels.unique().tolist()]
    order = [(rank, label, place) for label, of_one in enumerate(places) for rank, place in enumerate(of_one[:ROWS])]
    return torch.tensor([place for _, _, place in sorted(order)[:ROWS]])


def _draw(source: ImageSource, chosen: Tensor, seed: int) -> list[Tensor]:
    """Rows of images in 0 … 1; standardised ones from the darkest of their row to its brightest."""
    import torch

    from torchcaps.data.randomness import Stream, sub_seed
    from torchcaps.report.pictures import choose_scale

    seeds = [sub_seed(seed, Stream.AUGMENTATION, epoch) for epoch in range(EPOCHS)]
    images = torch.stack([source.batch(chosen, one).inputs for one in seeds], dim=1)  # [rows, epochs, C, H, W]
    if getattr(getattr(source, "preparation", None), "standardize", False):
        low, high = (edge.view(-1, 1, 1, 1, 1) for edge in images.flatten(1).aminmax(dim=1))
        images = (images - low) / (high - low).clamp_min(1e-6)
    scale = choose_scale(images)
    return [row.repeat_interleave(scale, -1).repeat_interleave(scale, -2) for row in images]
