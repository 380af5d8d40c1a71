"""Data that is in memory already: arrays, tensors, lists of texts, or a torch ``Dataset`` from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchcaps.data.dataset import Files, ImageDataset, ImageLook, Kind, TextDataset
from torchcaps.data.flags import name_flags
from torchcaps.data.image_arrays import check_pair, make_labels, to_pixels
from torchcaps.data.images import ImageSet
from torchcaps.data.items import Entry, list_image_items, list_text_items
from torchcaps.data.labels import list_each_labels, name_label_classes, number_label_names
from torchcaps.data.npz import ArrayHeader
from torchcaps.data.splits import choose_from_sets, list_set_entries
from torchcaps.data.text.sets import RawTexts, TextSet
from torchcaps.data.text.tokens import tokenize
from torchcaps.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXPECTED = "Give a pair (images, labels) of arrays, or a torch Dataset of (image, label) pairs."


@dataclass(frozen=True, eq=False)
class MemoryImages(ImageDataset):
    """One's own images in memory.

    Args:
        train: the images to train on.
        test: the images to test on; not given: about a fifth of each class of ``train``, by its content.
    """

    train: ImageSet
    test: ImageSet | None = None

    def __post_init__(self) -> None:
        if self.test is not None and self.test.image_shape != self.train.image_shape:
            raise DataError(
                f"training and test images must be of one shape, got {self.train.image_shape} and "
                f"{self.test.image_shape}."
            )
        _require_same_classes(self.train, self.test, "images")

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return "the data"

    def load(self, split: str, files: Files = Files(), class_names: tuple[str, ...] | None = None) -> ImageSet:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        self.check_split(split)
        return choose_from_sets(self._sets(), split, files, self.title, "image")

    def look(self) -> ImageLook:
        """See :class:`~torchcaps.data.dataset.ImageDataset`."""
        return ImageLook(self.train.image_shape, len(self.train.class_names))

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return list_set_entries(self._sets())

    def _sets(self) -> dict[str, ImageSet]:
        parts = {"": self.train} if self.test is None else {"train": self.train, "test": self.test}
        return {
            part: data if data.items is not None else replace(data, items=list_image_items(data.images, part or "data"))
            for part, data in parts.items()
        }


@dataclass(frozen=True, eq=False)
class MemoryTexts(TextDataset):
    """One's own texts in memory: those of :func:`make_text_set`, or split into words by oneself.

    Texts that somebody else has split stay as they are; of scripts without spaces between words say also
    ``text.units: words``, so that texts that a model is asked about are split at spaces alone.

    Args:
        train: the texts to train on.
        test: the texts to test on; not given: about a fifth of each class of ``train``, by its content.
    """

    train: TextSet
    test: TextSet | None = None

    def __post_init__(self) -> None:
        _require_same_classes(self.train, self.test, "texts")
        if self.test is not None and self.test.multi_label != self.train.multi_label:
            raise DataError(
                "training and test texts must have labels of one kind: one each, or lists of any number for both."
            )
        if self.train.raw is not None:  # what a model is asked about later is read in the same way
            object.__setattr__(self, "lower", self.train.raw.lower)

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return "the data"

    def load(
        self,
        split: str,
        files: Files = Files(),
        class_names: tuple[str, ...] | None = None,
        lower: bool | None = None,
    ) -> TextSet:
        """See :class:`~torchcaps.data.dataset.TextDataset`."""
        self.check_split(split)
        data = choose_from_sets(self._sets(), split, files, self.title, "text")
        return data.split_again(self.lower if lower is None else lower, files.units)

    def list_entries(self, class_names: tuple[str, ...] | None = None) -> list[Entry]:
        """See :class:`~torchcaps.data.dataset.Dataset`."""
        return list_set_entries(self._sets())

    def _sets(self) -> dict[str, TextSet]:
        parts = {"": self.train} if self.test is None else {"train": self.train, "test": self.test}
        return {part: _with_items(data, part or "data") for part, data in parts.items()}


def _with_items(data: TextSet, what: str) -> TextSet:
    if data.items is not None:
        return data
    names = [f"{what}[{number}]" for number in range(len(data))]
    return replace(data, items=list_text_items((" ".join(text) for text in data.texts), names))


def _require_same_classes(train: ImageSet | TextSet, test: ImageSet | TextSet | None, what: str) -> None:
    if test is not None and test.class_names != train.class_names:
        raise DataError(
            f"training and test {what} must be of the same classes, got {', '.join(train.class_names)} and "
            f"{', '.join(test.class_names)}. Give both the same class_names."
        )


def make_image_set(data: Any, class_names: Sequence[str] | None = None) -> ImageSet:
    """Make an image set of whatever holds images and labels.

    Args:
        data: an :class:`~torchcaps.data.images.ImageSet`, which is given back; a pair (images, labels) of arrays or
            tensors, as an .npz file may have them; or a torch ``Dataset`` of (image, label) pairs, its images PIL
            images, arrays or tensors of one shape. Labels are integers from 0 or strings; where an image may have
            several, a list of names for each, or flags.
        class_names: a name for every number; not given: the attribute ``classes`` of a ``Dataset``, else the sorted
            strings or the numbers.

    Shapes:
        images uint8, or float in 0 … 1: ``[N, H, W]``, ``[N, H, W, C]`` with C 1 or 3, or ``[N, C, H, W]`` with C 1, 2
        or 3; where both could be meant, the channels are last. Of a ``Dataset`` each the same without N; of tensors the
        channels are first. labels ``[N]`` or ``[N, 1]``; flags bool ``[N, K]``, or integers of 0 and 1 if there are
        ``class_names``.

    Raises:
        DataError: it is something else; the message says what was expected.
    """
    if isinstance(data, ImageSet):
        return data
    if isinstance(data, (tuple, list)) and len(data) == 2:
        images, labels = data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (str, bytes, dict, Tensor)):
        images, labels = _stack_items(data)
        if class_names is None and isinstance(getattr(data, "classes", None), (list, tuple)):
            class_names = [str(name) for name in data.classes]
    else:
        raise DataError(f"images cannot be made of a {type(data).__name__}. {EXPECTED}")
    pixels = _to_array(images, "the images")
    if isinstance(labels, (list, tuple)) and any(isinstance(label, (list, tuple, set, frozenset)) for label in labels):
        flags, names = name_flags(labels, "the labels", class_names)
        if len(flags) != len(pixels):
            raise DataError(f"every image needs a label: {len(pixels)} images in the data, {len(flags)} in the labels.")
        return ImageSet(to_pixels(pixels, "the images"), flags, names)
    values = _to_labels(labels)
    check_pair(
        ArrayHeader(pixels.shape, pixels.dtype), ArrayHeader(values.shape, values.dtype), "the data", "the labels"
    )
    numbers, names = make_labels(values, "the data", class_names)
    return ImageSet(to_pixels(pixels, "the images"), numbers, names)


def make_text_set(data: Any, class_names: Sequence[str] | None = None, lower: bool = True) -> TextSet:
    """Make a text set of texts and their labels.

    Args:
        data: a :class:`~torchcaps.data.text.sets.TextSet`, which is given back; or a pair (texts, labels) of strings
            and of integers or strings. Where a text may have any number of labels, a list of them for each text, also
            an empty one, or flags bool ``[N, K]`` as an array or a tensor.
        class_names: the classes in the order of their numbers; not given: the labels, sorted.
        lower: make texts lower case.

    Raises:
        DataError: it is something else; the message says what was expected.
    """
    if isinstance(data, TextSet):
        return data
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(f"texts cannot be made of a {type(data).__name__}. Give a pair (texts, labels) of lists.")
    texts, (labels, several, class_names) = list(data[0]), list_each_labels(data[1], class_names)
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise DataError(f"a text must be a string, got {wrong!r:.60}.")
    if len(texts) != len(labels) or not texts:
        raise DataError(f"{len(texts)} texts need as many labels, and at least one; got {len(labels)} labels.")
    names = name_label_classes([label for each in labels for label in each], class_names, "the data", "texts")
    unknown = sorted({label for each in labels for label in each} - set(names))
    if unknown:
        raise DataError(f"the labels {', '.join(unknown[:5])} are no class; the classes are {', '.join(names[:10])}.")
    items = list_text_items(texts, [f"data[{number}]" for number in range(len(texts))])
    tokens = tuple(tokenize(text, lower) for text in texts)
    return TextSet(tokens, number_label_names(labels, names, several), names, items, RawTexts(tuple(texts), lower))


def _stack_items(items: Any) -> tuple[NDArray[Any], list[Any]]:
    """The images and labels of a torch ``Dataset``, in its order."""
    import numpy as np

    images, labels = [], []
    for index in range(len(items)):
        item = items[index]
        if not (isinstance(item, (tuple, list)) and len(item) == 2):
            raise DataError(f"item {index} of the data is no pair of an image and a label: {item!r:.60}. {EXPECTED}")
        images.append(_convert_image(item[0], index))
        labels.append(_convert_label(item[1]))
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"all images must be of one shape, but item 0 has {images[0].shape} and item {index} "
                f"{images[-1].shape}. Resize them first."
            )
    if not images:
        raise DataError(f"the data is empty. {EXPECTED}")
    return np.stack(images), labels


def _convert_label(label: Any) -> Any:
    """A number or a text as it is; flags of one item as an array."""
    import numpy as np

    if isinstance(label, Tensor):
        label = label.detach().cpu().numpy()
    if isinstance(label, np.ndarray) and label.size != 1:
        return label
    return label.item() if isinstance(label, (np.ndarray, np.generic)) else label


def _convert_image(image: Any, index: int) -> NDArray[Any]:
    """An image as an array ``[H, W]`` or ``[C, H, W]``, from an array also ``[H, W, C]``."""
    import numpy as np

    if isinstance(image, Tensor):
        array: NDArray[Any] = image.detach().cpu().numpy()
        # A tensor of torchvision has its channels first, whatever its width.
        return array.transpose(1, 2, 0) if array.ndim == 3 and array.shape[0] in (1, 3) else array
    if hasattr(image, "convert"):  # a PIL image
        grey = image.mode in ("1", "L")
        return np.asarray(image.convert("L" if grey else "RGB"))
    if isinstance(image, np.ndarray):
        return image
    raise DataError(
        f"image {index} must be a PIL image, an array or a tensor, got a {type(image).__name__}. {EXPECTED}"
    )


def _to_array(values: Any, what: str, expected: str = EXPECTED) -> NDArray[Any]:
    import numpy as np

    if isinstance(values, Tensor):
        return np.asarray(values.detach().cpu().numpy())
    if isinstance(values, np.ndarray):
        return values
    raise DataError(f"{what} must be an array or a tensor, got a {type(values).__name__}. {expected}")


def _to_labels(labels: Any) -> NDArray[Any]:
    import numpy as np

    if isinstance(labels, (list, tuple)):
        if labels and all(isinstance(label, np.ndarray) and label.shape == labels[0].shape for label in labels):
            return np.stack(labels)
        kinds = {str if isinstance(label, str) else int for label in labels}
        if len(kinds) > 1:
            raise DataError("labels must be all strings or all whole numbers, got both.")
        return np.array(labels)
    return _to_array(labels, "the labels")


def make_memory_dataset(
    data: Any, test: Any = None, kind: Kind | None = None, class_names: Sequence[str] | None = None
) -> MemoryImages | MemoryTexts:
    """A data set of data in memory: images, or texts if the data has strings.

    Args:
        data: to train on, as :func:`make_image_set` or :func:`make_text_set` takes it.
        test: to test on; not given: a fifth of each class.
        kind: images or texts; not given: as the data looks.
        class_names: the classes in the order of their numbers; not given: the data's own.
    """
    if kind == "texts" or (kind is None and _has_texts(data)):
        texts = make_text_set(data, class_names)
        return MemoryTexts(texts, None if test is None else make_text_set(test, texts.class_names))
    images = make_image_set(data, class_names)
    return MemoryImages(images, None if test is None else make_image_set(test, images.class_names))


def is_picture(item: Any) -> bool:
    """Whether something is an image of Pillow, which need not be installed."""
    return hasattr(item, "convert") and hasattr(item, "getbands")


def list_pixels(images: Any) -> list[Tensor]:
    """An array or a tensor of images as single ones, uint8 ``[C, H, W]``; one image ``[H, W]`` is taken, too."""
    array = _to_array(images, "the images", "Give files, Pillow's images, an array or a tensor.")
    return list(to_pixels(array[None] if array.ndim == 2 else array, "the images"))


def _has_texts(data: Any) -> bool:
    if isinstance(data, TextSet):
        return True
    pair = isinstance(data, (tuple, list)) and len(data) == 2
    return pair and isinstance(data[0], (list, tuple)) and any(isinstance(text, str) for text in data[0][:1])
