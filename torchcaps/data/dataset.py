"""What a data set is: a class with its options as fields, which loads a split of images or of texts."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from torchcaps.data.files import DownloadProgress
from torchcaps.data.images import Images, ImageSet, ImageSource
from torchcaps.data.items import Entry
from torchcaps.data.options import Units
from torchcaps.data.pictures import Fit
from torchcaps.data.preparation import Augmentation, AugmentedImages, Preparation, PreparedImages
from torchcaps.data.record import SplitRecord
from torchcaps.errors import DataError

if TYPE_CHECKING:
    from torchcaps.data.text.sets import TextSet

Kind = Literal["images", "texts"]
NO_OPTION = {"option": False}
"""As metadata of a dataclass's field: Python may set it, a recipe may not."""


class Files(NamedTuple):
    """Where a data set's files are looked for, whether they are fetched, and who is told.

    Args:
        dir: a data folder that comes before ``TORCHCAPS_DATA`` and the user's cache.
        download: fetch what is not there.
        progress: told how far a download is.
        notice: told what a user should know, such as images that were left out.
        record: which items of one's own data a run had in which split; not given: they are cut.
        counted: cut as version 0.1 did, for its runs, which recorded nothing.
        units: what texts are split into, see :func:`~torchcaps.data.text.tokens.tokenize`.
    """

    dir: str | os.PathLike[str] | None = None
    download: bool = False
    progress: DownloadProgress | None = None
    notice: Callable[[str], None] | None = None
    record: SplitRecord | None = None
    counted: bool = False
    units: Units = "auto"


class ImageLook(NamedTuple):
    """What one's own images are: channels, height and width, and how many classes."""

    image_shape: tuple[int, int, int]
    classes: int


@dataclass(frozen=True)
class Dataset:
    """A data set: its fields are its options, the first line of its docstring is its description.

    Derive from :class:`ImageDataset` or :class:`TextDataset`.
    """

    kind: ClassVar[Kind]
    name: ClassVar[str] = ""
    """That it is registered by; empty if it is found by its path or made in Python."""
    folder: ClassVar[str] = ""
    """That its files are in, of a data folder; empty if it needs none."""
    downloads: ClassVar[bool] = False
    splits: ClassVar[tuple[str, ...]] = ("train", "test")

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return self.name or type(self).__name__

    @classmethod
    def description(cls) -> str:
        """The first line of the docstring, without its full stop."""
        return (inspect.getdoc(cls) or "").partition("\n")[0].removesuffix(".")

    def check_split(self, split: str) -> None:
        """Refuse a split that the data set does not have."""
        if split not in self.splits:
            advice = "" if "validation" in self.splits else " Validation data is cut from train."
            raise DataError(f"{self.title} has the splits {', '.join(self.splits)}, not {split!r}.{advice}")

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry] | None:
        """All items of one's own data, by their content; None for data sets that everyone has alike.

        Args:
            class_names: those of a trained model, as in ``load``.
        """
        return None

    def judged_split(self) -> str:
        """What a model that was trained on other data is judged on: all of one's own data that has no test part."""
        return "test"

    def check_files(self, split: str, files: Files = Files()) -> None:
        """Fetch and check files of a split that loading it with these options does not need, if there are any."""


@dataclass(frozen=True)
class ImageDataset(Dataset):
    """A data set of images of one size, each of one class or of any number of them."""

    kind: ClassVar[Kind] = "images"
    makes_canvas: ClassVar[bool] = False
    """Its training images are moved on a canvas of its own, so nothing else shifts or prepares them."""

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """The images of a split.

        Args:
            split: one of ``splits``.
            files: where they are looked for.
            class_names: those of a trained model; a folder's classes are then numbered by them.
        """
        raise NotImplementedError

    def look(self) -> ImageLook | None:
        """What one's own images are, without loading them; None where the data set decides about their size."""
        return None

    @property
    def fit(self) -> Fit:
        """How images of another shape are brought to that of the data, where they come from files."""
        return "letterbox"

    def fit_to(self, image_shape: tuple[int, int, int], fit: Fit = "letterbox") -> ImageDataset:
        """The same data with images brought to the shape that a model was trained for, if their size can be chosen.

        Args:
            image_shape: channels, height, width.
            fit: how the model's images were brought there.
        """
        return self

    def check_preparation(self, preparation: Preparation, augmentation: Augmentation = Augmentation()) -> None:
        """Refuse what cannot be done to these images, before they are loaded."""
        if preparation.crop is not None and augmentation.shift:
            raise DataError(
                f"crop {preparation.crop} takes training patches from random places, which is a shift already: give "
                f"shift 0 with it, got {augmentation.shift}.",
                option="data.shift",
            )

    def training_source(self, images: ImageSet, preparation: Preparation, augmentation: Augmentation) -> ImageSource:
        """What to train on: the images, changed at random."""
        if preparation == Preparation() and augmentation.moves_only:
            return Images(images, augmentation.shift, augmentation.mirror)
        return AugmentedImages(images, preparation, augmentation)

    def validation_source(self, images: ImageSet, preparation: Preparation) -> ImageSource:
        """What training is watched by: as :meth:`evaluation_source`, one patch of each image."""
        return self.evaluation_source(images, replace(preparation, crops=1))

    def evaluation_source(self, images: ImageSet, preparation: Preparation) -> ImageSource:
        """What a trained model is judged on: nothing is random."""
        return Images(images) if preparation == Preparation() else PreparedImages(images, preparation)


@dataclass(frozen=True)
class TextDataset(Dataset):
    """A data set of texts. One with validation texts of its own has "validation" among its splits."""

    kind: ClassVar[Kind] = "texts"
    lower: ClassVar[bool] = True
    """Whether texts are made lower case; False where capitals matter."""

    def load(
        self,
        split: str,
        files: Files = Files(),
        class_names: tuple[str, ...] | None = None,
        lower: bool | None = None,
    ) -> TextSet:
        """The texts of a split.

        Args:
            split: one of ``splits``.
            files: where they are looked for, and what texts are split into.
            class_names: those of a trained model; the labels of a file are then numbered by them.
            lower: make texts lower case; not given: as is usual for the data set.
        """
        raise NotImplementedError
