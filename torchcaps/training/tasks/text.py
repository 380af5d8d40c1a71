"""Texts of one class each, or of any number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import nn

from torchcaps.data.dataset import Dataset, Files, Kind, TextDataset
from torchcaps.data.options import UNITS, Units
from torchcaps.data.sources import text_sources
from torchcaps.data.text.notices import tell_losses
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.texts import Texts
from torchcaps.data.text.tokens import tokenize
from torchcaps.data.text.vectors import make_initial_vectors
from torchcaps.data.text.vocabulary import FIRST, Vocabulary
from torchcaps.errors import TorchcapsError
from torchcaps.io import require_inside, write_atomically
from torchcaps.models.registry import Reads
from torchcaps.training.errors import RunError
from torchcaps.training.recipe import Recipe
from torchcaps.training.tasks.base import Axis, InputBatch, OnBadItem, Prepared, Task
from torchcaps.training.tasks.headers import read_class_names, read_count, read_value

VOCABULARY = "vocabulary.txt"


@dataclass(frozen=True)
class TextTask(Task):
    """Which class does a text have, or which several?

    Args:
        class_names: what the classes are called.
        words: rows of the table of word vectors.
        vector_size: of a word.
        max_length: texts are cut after so many words.
        lower: texts are made lower case.
        multi_label: a text may have any number of classes.
        vocabulary: the words that are known, kept in a file of its own.
        units: what texts are split into.
        fingerprint: of the words that the weights are for; None where nobody wrote it down.
    """

    kind: ClassVar[Kind] = "texts"
    reads: ClassVar[Reads] = "words"
    item_name: ClassVar[str] = "text"
    at_a_time: ClassVar[int] = 500

    words: int
    vector_size: int
    max_length: int
    lower: bool = True
    multi_label: bool = False
    vocabulary: Vocabulary | None = None
    units: Units = "auto"
    fingerprint: str | None = None

    @property
    def input_shape(self) -> tuple[int, int]:
        """Rows of the table of word vectors, and their size."""
        return self.words, self.vector_size

    @property
    def known_words(self) -> Vocabulary:
        """The vocabulary, which a task that was opened has."""
        assert self.vocabulary is not None
        return self.vocabulary

    @classmethod
    def prepare(cls, recipe: Recipe, dataset: Dataset, files: Files) -> Prepared:
        """See :class:`Task`."""
        texts, seed = cast(TextDataset, dataset), recipe.training.seed
        # A model with weights for so many positions cannot see more.
        max_length = min(recipe.text.max_length, recipe.model.options.get("length") or recipe.text.max_length)
        text = replace(recipe.text, max_length=max_length)
        train, validation = text_sources(texts, recipe.data, text, seed, files)
        vocabulary = train.vocabulary
        vectors, covered = make_initial_vectors(text, vocabulary, seed)
        if covered is not None and files.notice:
            files.notice(f"{text.vectors} has {covered:,} of the {len(vocabulary.words):,} words.")
        task = cls(
            train.class_names, len(vocabulary), vectors.shape[1], max_length, texts.lower, train.multi_label,
            vocabulary, text.units,
        )  # fmt: skip

        def begin(model: nn.Module) -> None:
            model.load_vectors(vectors)  # type: ignore[operator] # every model that reads words has it

        return Prepared(task, train, validation, begin)

    def axes(self) -> tuple[Axis, ...]:
        """See :class:`Task`: also the words, before which padding and the unknown ones have a row each."""
        words = Axis("words", ("", " ", *self.known_words.words), replace(self, words=self.words + 1), FIRST)
        return (*super().axes(), words)

    def to_keys(self, data_options: Collection[str]) -> dict[str, Any]:
        """See :class:`Task`: vectors of the same size, and texts that are cut at the same length."""
        return {"text.vector_size": self.vector_size, "text.max_length": self.max_length}

    def to_header(self) -> dict[str, Any]:
        """See :class:`Task`."""
        known = self.fingerprint if self.vocabulary is None else self.vocabulary.fingerprint
        return {
            "reads": "words",
            "words": self.words,
            "vector_size": self.vector_size,
            "class_names": list(self.class_names),
            "longest": self.max_length,
            "lower": self.lower,
            "multi_label": self.multi_label,
            **({} if self.units == "words" else {"units": self.units}),  # 0.1 knew words alone
            **({} if known is None else {"vocabulary": known}),
        }

    @classmethod
    def from_header(cls, values: Mapping[str, Any]) -> TextTask:
        """See :class:`Task`."""
        words, size, longest = (read_count(values, key) for key in ("words", "vector_size", "longest"))
        lower, multi_label = (
            bool(read_value(values, key, bool, default)) for key, default in (("lower", True), ("multi_label", False))
        )
        units, known = read_value(values, "units", str, "words"), read_value(values, "vocabulary", str, "")
        if units not in UNITS:
            raise RunError(f"units must be one of {', '.join(UNITS)}, got {units!r:.60}.")
        names = read_class_names(values)
        return cls(names, words, size, longest, lower, multi_label, None, cast(Units, units), known or None)

    def write_files(self, folder: Path) -> None:
        """The words that the model knows, in the order of their ids."""
        write_atomically(folder / VOCABULARY, self.known_words.save)

    def read_files(self, folder: Path) -> TextTask:
        """See :class:`Task`."""
        try:
            require_inside(folder, VOCABULARY)
            vocabulary = Vocabulary.load(folder / VOCABULARY)
        except TorchcapsError as error:
            raise RunError(
                f"a text model needs its words, the file {VOCABULARY} beside its weights: {error}"
            ) from error
        if len(vocabulary) != self.words:
            raise RunError(
                f"{folder / VOCABULARY} is of another model: it has {len(vocabulary)} ids, the weights beside it "
                f"{self.words}."
            )
        if self.fingerprint not in (None, vocabulary.fingerprint):
            raise RunError(
                f"{folder / VOCABULARY} is not what it was when the model was trained: a word or their order was "
                "edited, and every word would be taken for another one. Put the file back, or train the run again."
            )
        return replace(self, vocabulary=vocabulary)

    def evaluation_source(
        self, dataset: Dataset, split: str, files: Files, crops: int | None = None, own: bool = True
    ) -> Texts:
        """See :class:`Task`."""
        if crops is not None:
            raise RunError("crops are of images; this is a text model.", option="crops")
        if dataset.kind != self.kind:
            raise RunError(f"{dataset.title} is no text, but this model reads words.")
        files = files._replace(units=self.units)
        data = cast(TextDataset, dataset).load(split, files, self.class_names, self.lower)
        if data.class_names != self.class_names or data.multi_label > self.multi_label:
            each = "any number of labels" if data.multi_label else "one label each"
            wanted = "any number of labels" if self.multi_label else "one label each"
            raise RunError(
                f"{dataset.title} has texts of {', '.join(data.class_names)} with {each}, but this model was trained "
                f"for {', '.join(self.class_names)} with {wanted}."
            )
        if files.notice:
            tell_losses(data, self.max_length, files.notice)
        return Texts(data.with_flags() if self.multi_label else data, self.known_words, self.max_length)

    def list_items(self, inputs: Any) -> list[str]:
        """A text, or several."""
        items = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        strangers = [item for item in items if not isinstance(item, str)]
        if strangers:
            what = type(strangers[0]).__name__
            raise RunError(f"this model reads words, not images: give it a text or a list of texts, got a {what}.")
        return list(items)

    def name_item(self, item: str, place: int) -> str:
        """The text itself."""
        return item

    def read_items(self, items: Sequence[str], on_error: OnBadItem | None = None) -> Iterator[InputBatch]:
        """By length, so that little is padding. A text without any known word is read, too."""
        tokens = tuple(tokenize(text, self.lower, self.units) for text in items)
        labels = torch.zeros((len(tokens), len(self.class_names)), dtype=torch.bool)  # which nobody looks at
        source = Texts(TextSet(tokens, labels, self.class_names), self.known_words, self.max_length)
        for part in source.evaluation_parts(torch.arange(len(tokens)), 500) if tokens else ():
            yield InputBatch(part.tolist(), source.batch(part).inputs)
