"""Benchmarks of sentence classification by name, from their usual files in ``text/`` of a data folder.

The sentences of "mr-mini", which come with the package, are from the sentence polarity data set of Bo Pang and Lillian
Lee (Seeing stars: exploiting class relationships for sentiment categorization with respect to rating scales, ACL
2005), licensed CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/): 5,000 of its sentences were chosen and
tokenised (scripts/make_mr_mini.py).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.checks import require_choice
from torchcaps.data.files import data_folders, find_file
from torchcaps.data.images import DataError
from torchcaps.data.randomness import numbered_seed, random_bits
from torchcaps.data.text.sets import TextSet, read_content, read_utf8
from torchcaps.data.text.tokens import tokenize

FOLDS = 10
MINI_FILE = "mr_mini.txt.gz"
MINI_TRAIN = 4000
"""So many lines of the file are for training, those after them for the test."""
POLARITY = ("negative", "positive")
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


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's files by split ("all" where folds are cut from one file), its classes, and a line about it."""

    files: dict[str, str]
    class_names: tuple[str, ...]
    description: str
    lower: bool = True
    more_splits: tuple[str, ...] = field(default=())

    @property
    def folded(self) -> bool:
        """Whether it has no test of its own, so that cross-validation is usual."""
        return "all" in self.files

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be asked for."""
        return ("train", "test") if self.folded else (*self.files, *self.more_splits)


def _stanford(kind: str, class_names: tuple[str, ...], counts: str) -> Benchmark:
    files = {"train": "train", "validation": "dev", "test": "test"}
    description = f"{counts} sentences of movie reviews, {len(class_names)} classes (Stanford treebank)"
    return Benchmark({split: f"stsa.{kind}.{end}" for split, end in files.items()}, class_names, description)


BENCHMARKS = {
    "mr-mini": Benchmark({"train": MINI_FILE, "test": MINI_FILE}, POLARITY, "4,000 / 1,000 sentences of mr"),
    "mr": Benchmark({"all": "rt-polarity.all"}, POLARITY, "10,662 sentences of movie reviews, ten folds"),
    "subj": Benchmark({"all": "subj.all"}, ("subjective", "objective"), "10,000 sentences, ten folds"),
    "cr": Benchmark({"all": "custrev.all"}, POLARITY, "3,775 sentences of customer reviews, ten folds"),
    "mpqa": Benchmark({"all": "mpqa.all"}, POLARITY, "10,606 phrases of opinion, ten folds"),
    "trec": Benchmark(
        {"train": "TREC.train.all", "test": "TREC.test.all"},
        ("description", "entity", "abbreviation", "human", "location", "number"),
        "5,452 / 500 questions, 6 classes",
        lower=False,
    ),
    "sst1": _stanford("fine", ("very negative", "negative", "neutral", "positive", "very positive"), "8,544 / 2,210"),
    "sst2": _stanford("binary", POLARITY, "6,920 / 1,821"),
    "reuters": Benchmark(
        {"train": "reuters/modapte90_train.jsonl", "test": "reuters/modapte90_test.jsonl"},
        REUTERS_CLASSES,
        "6,578 news with one label / 436 with several, 90 classes",
        more_splits=("train-all", "test-all"),
    ),
    "reuters8": Benchmark(
        {"train": "reuters/modapte90_train.jsonl", "test": "reuters/modapte90_test.jsonl"},
        EIGHT_CLASSES,
        "5,502 news with one label / 339 with several, 8 classes",
    ),
}


def text_set(
    name: str,
    split: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    fold: int = 0,
    seed: int = 0,
    lower: bool | None = None,
) -> TextSet:
    """One split of a benchmark, in the order of its file. The files may be gzipped; only mr-mini needs none.

    ============ ==================================================== =====================================
    name         what                                                 files in ``text/``
    ============ ==================================================== =====================================
    mr           movie reviews, 10,662, 2 classes (Pang and Lee 2005) rt-polarity.all
    subj         subjectivity, 10,000, 2 (Pang and Lee 2004)          subj.all
    cr           customer reviews, 3,775, 2 (Hu and Liu 2004)         custrev.all
    mpqa         opinion polarity, 10,606, 2 (Wiebe et al. 2005)      mpqa.all
    trec         questions, 5,452 / 500, 6 (Li and Roth 2002)         TREC.train.all, TREC.test.all
    sst1, sst2   Stanford sentiment treebank, 8,544 / 1,101 / 2,210,  stsa.fine.train, .dev and .test;
                 5, and 6,920 / 872 / 1,821, 2 (Socher et al. 2013)   stsa.binary.train, .dev and .test
    reuters      Reuters-21578, ModApte, 7,770 / 3,019, 90            reuters/modapte90_train.jsonl, …_test
    reuters8     the same, 5,502 / 339, 8                             the same
    mr-mini      4,000 / 1,000 sentences of mr                        none: it is in the package
    ============ ==================================================== =====================================

    mr, subj, cr and mpqa have no test of their own: a tenth is the test of each of ten folds, see :func:`fold_numbers`.
    The sst sets have "validation" too. Labels of reuters are bool ``[N, 90]``, the columns always all 90 classes; as in
    Zhao et al. 2018, "train" has the training documents with exactly one label and "test" the test documents with more
    than one, "train-all" and "test-all" have all documents (58 classes occur in "train"). reuters8 is cut as the code
    of Zhao et al. does: the eight classes that are among the ten most frequent and occur alone; "train" has the
    training documents with exactly one label, "test" those of both files with more than one, all of the eight.

    All texts go through :func:`~torchcaps.data.text.tokens.tokenize`, and TREC keeps its capitals, as in Kim 2014.
    Texts without words are kept as empty tuples: a few of cr, mpqa and reuters are. A label that a document of reuters
    repeats counts once.

    Args:
        name: as above.
        split: "train" or "test"; for some names others too.
        data_dir: looked in before the usual folders.
        fold: which tenth is the test, 0 … 9; for benchmarks with a test of their own it must be 0.
        seed: of the cut into folds.
        lower: make texts lower case; not given: as is usual for the benchmark.

    Raises:
        DataError: an unknown name, split or fold, or files that are missing or not as described.
    """
    benchmark = _checked(name, split, fold)
    lower = benchmark.lower if lower is None else lower
    if name == "mr-mini":
        with resources.as_file(resources.files("torchcaps.data.text").joinpath(MINI_FILE)) as path:
            whole = read_lines(path, benchmark.class_names, lower)
        chosen = torch.arange(len(whole)) < MINI_TRAIN
        return whole[chosen if split == "train" else ~chosen]
    folders = [folder / "text" for folder in data_folders(data_dir)]
    if name == "reuters":
        return _reuters(split, _required(name, folders, benchmark.files[split.removesuffix("-all")]), lower)
    if name == "reuters8":
        return _reuters8(split, [_required(name, folders, file) for file in benchmark.files.values()], lower)
    file = benchmark.files["all" if benchmark.folded else split]
    whole = read_lines(_required(name, folders, file), benchmark.class_names, lower)
    if not benchmark.folded:
        return whole
    tested = fold_numbers(whole.labels, seed) == fold
    return whole[tested if split == "test" else ~tested]


def fold_numbers(labels: Tensor, seed: int, folds: int = FOLDS) -> Tensor:
    """Which fold every item is the test of, drawn by seed.

    In every fold a class has the same number of items, up to one, and so has the whole.

    Shapes:
        labels int64 ``[N]`` → int64 ``[N]`` in 0 … folds − 1.
    """
    order = []
    for label in sorted(set(labels.tolist())):
        items = (labels == label).nonzero().flatten()
        order.append(items[random_bits(numbered_seed(seed, label), items, 1)[:, 0].argsort(stable=True)])
    numbers = torch.empty(len(labels), dtype=torch.int64)
    # Dealt like cards, on from one class to the next: the first folds would else get all that is left over.
    numbers[torch.cat(order) if order else torch.empty(0, dtype=torch.int64)] = torch.arange(len(labels)) % folds
    return numbers


def read_lines(path: Path, class_names: tuple[str, ...], lower: bool = True) -> TextSet:
    """A file with a class number, a space and a sentence on every line; UTF-8, or else Latin-1 (both are about)."""
    content = read_content(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # which takes any bytes
    texts, labels = [], []
    # Only at newlines: other characters that Python takes for line ends are inside of sentences.
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        label, _, sentence = line.partition(" ")
        label = label.strip()
        if not (label.isascii() and label.isdigit()):
            problem = f"starts with {label[:40]!r}, which is no number" if label else "has no label"
            raise DataError(f"line {number} of {path} {problem}. Every line must be `label sentence`, as in `0 so so`.")
        if int(label[:9]) >= len(class_names):
            raise DataError(
                f"line {number} of {path} has the label {label[:40]}, expected 0 … {len(class_names) - 1} for "
                f"{', '.join(class_names)}."
            )
        texts.append(tokenize(sentence, lower))
        labels.append(int(label))
    return TextSet(tuple(texts), torch.tensor(labels, dtype=torch.int64), class_names)


def _checked(name: str, split: str, fold: int) -> Benchmark:
    try:
        require_choice("text data set", name, BENCHMARKS)
    except ValueError as error:
        raise DataError(str(error)) from error
    benchmark = BENCHMARKS[name]
    if split not in benchmark.splits:
        raise DataError(f"{name} has the splits {', '.join(benchmark.splits)}, not {split!r}.")
    if benchmark.folded and fold not in range(FOLDS):
        raise DataError(f"the fold of {name} must be in 0 … {FOLDS - 1}, got {fold!r}.")
    if not benchmark.folded and fold != 0:
        raise DataError(f"{name} has a test of its own and no folds: fold must be 0, got {fold!r}.")
    return benchmark


def _required(name: str, folders: list[Path], file: str) -> Path:
    found = find_file(folders, f"{file}.gz")
    if found is None:
        looked = "\n  ".join(str(folder / file) for folder in folders)
        needed = ", ".join(f"text/{needed}" for needed in sorted(set(BENCHMARKS[name].files.values())))
        raise DataError(
            f"{name} is not here: {Path(file).name} (or the same with .gz) was looked for as\n  {looked}\n"
            f"It is not downloaded automatically: put {needed} into a data folder and give that as data_dir or in "
            "TORCHCAPS_DATA. mr-mini needs no files."
        )
    return found


Document = tuple[str, frozenset[str]]


def _documents(path: Path) -> list[Document]:
    lines = enumerate(read_utf8(path).split("\n"), 1)
    return [_document(line, number, path) for number, line in lines if line.strip()]


def _reuters(split: str, path: Path, lower: bool) -> TextSet:
    entries = _documents(path)
    if split == "train":
        entries = [entry for entry in entries if len(entry[1]) == 1]
    elif split == "test":
        entries = [entry for entry in entries if len(entry[1]) > 1]
    return _labelled(entries, REUTERS_CLASSES, lower)


def _reuters8(split: str, paths: list[Path], lower: bool) -> TextSet:
    files = [[entry for entry in _documents(path) if entry[1] <= set(EIGHT_CLASSES)] for path in paths]
    if split == "train":
        return _labelled([entry for entry in files[0] if len(entry[1]) == 1], EIGHT_CLASSES, lower)
    return _labelled([entry for entries in files for entry in entries if len(entry[1]) > 1], EIGHT_CLASSES, lower)


def _labelled(entries: list[Document], class_names: tuple[str, ...], lower: bool) -> TextSet:
    column = {name: index for index, name in enumerate(class_names)}
    labels = torch.zeros(len(entries), len(class_names), dtype=torch.bool)
    for row, (_, names) in enumerate(entries):
        labels[row, [column[name] for name in names]] = True
    return TextSet(tuple(tokenize(text, lower) for text, _ in entries), labels, class_names)


def _document(line: str, number: int, path: Path) -> Document:
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
