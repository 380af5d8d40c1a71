"""News of Reuters-21578, the ModApte split, from JSON lines in ``text/reuters/`` of a data folder.

A label that a document repeats counts once. Texts without words are kept as empty tuples: a few are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchcaps.data.dataset import Files
from torchcaps.data.datasets.text_benchmarks import TextBenchmark
from torchcaps.data.labels import make_flags
from torchcaps.data.options import Units
from torchcaps.data.registry import register_dataset
from torchcaps.data.text.sets import TextSet, read_utf8
from torchcaps.data.text.tokens import tokenize
from torchcaps.errors import DataError

# fmt: off
REUTERS_CLASSES = (
    "acq", "alum", "barley", "bop", "carcass", "castor-oil", "cocoa", "coconut", "coconut-oil", "coffee", "copper",
    "copra-cake", "corn", "cotton", "cotton-oil", "cpi", "cpu", "crude", "dfl", "dlr", "dmk", "earn", "fuel", "gas",
    "gnp", "gold", "grain", "groundnut", "groundnut-oil", "heat", "hog", "housing", "income", "instal-debt",
    "interest", "ipi", "iron-steel", "jet", "jobs", "l-cattle", "lead", "lei", "lin-oil", "livestock", "lumber",
    "meal-feed", "money-fx", "money-supply", "naphtha", "nat-gas", "nickel", "nkr", "nzdlr", "oat", "oilseed",
    "orange", "palladium", "palm-oil", "palmkernel", "pet-chem", "platinum", "potato", "propane", "rand", "rape-oil",
    "rapeseed", "reserves", "retail", "rice", "rubber", "rye", "ship", "silver", "sorghum", "soy-meal", "soy-oil",
    "soybean", "strategic-metal", "sugar", "sun-meal", "sun-oil", "sunseed", "tea", "tin", "trade", "veg-oil", "wheat",
    "wpi", "yen", "zinc",
)
# fmt: on
EIGHT_CLASSES = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
"""Those of the ten most frequent that occur alone; Zhao et al. 2018 use them."""
Document = tuple[str, frozenset[str]]
"""Title and body, and the labels."""


@dataclass(frozen=True)
class ReutersNews(TextBenchmark):
    """News with any number of labels, bool ``[N, classes]``."""

    files_by_split: ClassVar[dict[str, str]] = {
        "train": "reuters/modapte90_train.jsonl",
        "test": "reuters/modapte90_test.jsonl",
    }

    def read_split(self, split: str, files: Files, lower: bool) -> TextSet:
        """The documents of a split, in the order of the files."""
        return _label_texts(self.choose_documents(split, files), self.class_names, lower, files.units)

    def choose_documents(self, split: str, files: Files) -> list[Document]:
        """The documents of a split."""
        raise NotImplementedError


@register_dataset("reuters")
@dataclass(frozen=True)
class Reuters(ReutersNews):
    """6,578 news with one label / 436 with several, 90 classes.

    As in Zhao et al. 2018, "train" has the training documents with exactly one label and "test" the test documents with
    more than one; "train-all" and "test-all" have all 7,770 and 3,019 documents. The columns of the labels are always
    all 90 classes, of which 58 occur in "train".
    """

    splits: ClassVar[tuple[str, ...]] = ("train", "test", "train-all", "test-all")
    class_names: ClassVar[tuple[str, ...]] = REUTERS_CLASSES

    def choose_documents(self, split: str, files: Files) -> list[Document]:
        """Those with one label to train on, those with several to test on, or all."""
        documents = _read_documents(self.require_file(split.removesuffix("-all"), files))
        if split == "train":
            return [document for document in documents if len(document[1]) == 1]
        if split == "test":
            return [document for document in documents if len(document[1]) > 1]
        return documents


@register_dataset("reuters8")
@dataclass(frozen=True)
class ReutersEight(ReutersNews):
    """5,502 news with one label / 339 with several, 8 classes.

    Cut as the code of Zhao et al. 2018 does: the eight classes that are among the ten most frequent and occur alone;
    "train" has the training documents with exactly one label, "test" those of both files with more than one, all of the
    eight.
    """

    class_names: ClassVar[tuple[str, ...]] = EIGHT_CLASSES

    def choose_documents(self, split: str, files: Files) -> list[Document]:
        """Of both files those that have no label but the eight."""
        paths = [self.require_file(part, files) for part in self.files_by_split]
        train, test = (
            [document for document in _read_documents(path) if document[1] <= set(EIGHT_CLASSES)] for path in paths
        )
        if split == "train":
            return [document for document in train if len(document[1]) == 1]
        return [document for document in [*train, *test] if len(document[1]) > 1]


def _read_documents(path: Path) -> list[Document]:
    lines = enumerate(read_utf8(path).split("\n"), 1)
    return [_read_document(line, number, path) for number, line in lines if line.strip()]


def _label_texts(entries: list[Document], class_names: tuple[str, ...], lower: bool, units: Units) -> TextSet:
    labels = make_flags([tuple(names) for _, names in entries], class_names)
    return TextSet(tuple(tokenize(text, lower, units) for text, _ in entries), labels, class_names)


def _read_document(line: str, number: int, path: Path) -> Document:
    """Title and body as one text, and the labels, of a line of JSON."""
    try:
        entry = json.loads(line)
        text, labels = "\n".join((entry["title"], entry["body"])), frozenset(entry["labels"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"line {number} of {path} must be a JSON object with labels (a list), title and body: {error!r}."
        ) from error
    unknown = sorted(str(label) for label in labels - set(REUTERS_CLASSES))
    if unknown or not labels:
        problem = f"the labels {', '.join(unknown)}, which are none of" if unknown else "no label, expected some of"
        raise DataError(f"line {number} of {path} has {problem} the 90 classes of the ModApte split.")
    return text, labels
