"""Word vectors for a vocabulary: from a GloVe or word2vec text file or an .npz, or at random."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.checks import require_count
from torchcaps.data.npz import read_arrays, read_headers
from torchcaps.data.options import TextOptions
from torchcaps.data.randomness import Stream, random_uniform, sub_seed
from torchcaps.data.text.vocabulary import PADDING, Vocabulary
from torchcaps.errors import DataError
from torchcaps.machine import require_memory

RANDOM_RANGE = 0.25
MOST_LINE = 1_000_000
EXPECTED = "Expected lines of a word and its numbers, as GloVe has them, or an .npz with words and vectors."
Found = dict[str, list[float]]


def make_initial_vectors(text: TextOptions, vocabulary: Vocabulary, seed: int) -> tuple[Tensor, int | None]:
    """Vectors ``[V, D]`` to begin with, and how many words the file of vectors had; None without a file."""
    if text.vectors is None:
        return draw_vectors(vocabulary, text.vector_size, sub_seed(seed, Stream.WORD_VECTORS)), None
    return read_word_vectors(text.vectors, vocabulary, seed=sub_seed(seed, Stream.WORD_VECTORS))


def draw_vectors(vocabulary: Vocabulary, dim: int, seed: int = 0) -> Tensor:
    """Vectors uniform in ±0.25 (Kim 2014), float32 ``[V, dim]``; that of padding is zero."""
    require_count("dim", dim)
    return _uniform(len(vocabulary), dim, RANDOM_RANGE, seed)


def read_word_vectors(
    path: str | os.PathLike[str], vocabulary: Vocabulary, dim: int | None = None, seed: int = 0
) -> tuple[Tensor, int]:
    """The vectors of a vocabulary's words.

    A word that the file lacks is looked up in lower case too. Words that are not found, and the unknown word, get
    uniform random vectors of mean zero with the variance of all numbers found; padding is zero.

    Args:
        path: a text file (also ``.gz``) with lines of a word and its numbers, parted by spaces; a first line "count
            dim", as word2vec has it, is skipped. Or an .npz with ``words``, unicode ``[N]``, and ``vectors``, float
            ``[N, D]``; pickled objects are never loaded.
        vocabulary: V rows come out.
        dim: the length D that the vectors must have; as in the file if not given.
        seed: of the random vectors.

    Returns:
        Vectors float32 ``[V, D]``, and how many words of the vocabulary were found.

    Raises:
        DataError: the file is not as described, or has none of the words; the message says what to do.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}. {EXPECTED}")
    wanted = {form for word in vocabulary.words for form in (word, word.lower())}
    known = _read_from_arrays(path, wanted) if path.suffix == ".npz" else _read_from_lines(path, wanted, dim)
    matches = {token_id: known.get(word, known.get(word.lower())) for word, token_id in vocabulary.token_ids.items()}
    rows = {token_id: vector for token_id, vector in matches.items() if vector is not None}
    if not rows:
        raise DataError(
            f"{path} has none of the {len(vocabulary.words)} words of the vocabulary. Is it of another language, or "
            "are the texts not tokenised?"
        )
    values = torch.tensor(list(rows.values()), dtype=torch.float32)
    if dim is not None and values.shape[1] != dim:
        raise DataError(f"the vectors in {path} have {values.shape[1]} numbers, expected {dim}. Give dim as it is.")
    if not bool(values.isfinite().all()):
        raise DataError(f"{path} has vectors with numbers that are not finite. Get the file again.")
    spread = float((3 * values.double().var(correction=0)).sqrt())  # the variance of ±a is a²/3
    vectors = _uniform(len(vocabulary), values.shape[1], spread, seed)
    vectors[torch.tensor(list(rows))] = values
    return vectors, len(rows)


def _uniform(count: int, dim: int, spread: float, seed: int) -> Tensor:
    """Numbers in ±spread ``[count, dim]``, the row of padding zero. A row depends on the seed and its number alone."""
    require_memory(16 * count * dim, f"{count:,} word vectors of {dim:,} numbers", "Choose a smaller vector_size.")
    vectors = (2 * random_uniform(seed, torch.arange(count), dim) - 1) * spread
    vectors[PADDING] = 0
    return vectors


def _read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; large files are never in memory as a whole."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE):
                number += 1
                if len(line) == MOST_LINE:
                    raise DataError(f"line {number} of {path} has more than {MOST_LINE:,} bytes. {EXPECTED}")
                if line.strip():
                    yield number, line.rstrip()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. If it is damaged, get it again.") from error


def _read_from_lines(path: Path, wanted: set[str], dim: int | None) -> Found:
    encoded = {word.encode("utf-8"): word for word in wanted}  # lines stay bytes: broken words elsewhere do not matter
    vectors: Found = {}
    size: int | None = None
    for number, line in _read_lines(path):
        if size is None:
            if line.startswith(b"PK"):
                raise DataError(f"{path} is a zip archive. Unpack it and give the text file in it. {EXPECTED}")
            pieces = line.split()
            if number == 1 and len(pieces) == 2 and all(piece.isdigit() for piece in pieces) and dim != 1:
                size = int(pieces[1])  # word2vec's first line
                continue
            size = len(pieces) - 1
            _parse_numbers(path, number, pieces[1:], size)  # so that a file of another kind is noticed at once
        word, _, rest = line.partition(b" ")
        if rest.count(b" ") == size - 1 and word not in encoded:
            continue  # most lines of a large file
        pieces = line.split()
        extra = pieces[1 : len(pieces) - size]  # some words of GloVe 840B have spaces, ". . ." for one
        if len(pieces) <= size or any(_is_number(piece) for piece in extra):
            raise DataError(
                f"line {number} of {path} has {len(pieces) - 1} numbers, the lines before have {size}. All vectors "
                "must have one length; is the file cut short?"
            )
        if not extra and word in encoded:
            vectors.setdefault(encoded[word], _parse_numbers(path, number, pieces[1:], size))
    if size is None:
        raise DataError(f"{path} is empty. {EXPECTED}")
    return vectors


def _is_number(piece: bytes) -> bool:
    try:
        float(piece)
    except ValueError:
        return False
    return True


def _parse_numbers(path: Path, line: int, pieces: list[bytes], size: int) -> list[float]:
    if size < 1:
        raise DataError(f"line {line} of {path} has a single word and no numbers. {EXPECTED}")
    try:
        return [float(piece) for piece in pieces]
    except ValueError as error:
        raise DataError(f"line {line} of {path} has something that is no number: {error}. {EXPECTED}") from error


def _read_from_arrays(path: Path, wanted: set[str]) -> Found:
    advice = "Save it with np.savez(file, words=words, vectors=vectors)."
    headers = read_headers(path, advice)
    if not {"words", "vectors"} <= headers.keys():
        raise DataError(f"{path} cannot be read: an .npz with the arrays words and vectors is needed. {advice}")
    words, vectors = read_arrays(path, ("words", "vectors"), headers, advice).values()
    if words.dtype.kind != "U" or words.ndim != 1:
        raise DataError(f"words in {path} must be unicode strings [N], got {words.dtype} of shape {words.shape}.")
    if vectors.dtype.kind != "f" or vectors.ndim != 2 or len(vectors) != len(words) or not vectors.shape[1]:
        raise DataError(
            f"vectors in {path} must be floats [{len(words)}, D] for {len(words)} words, got {vectors.dtype} of shape "
            f"{vectors.shape}."
        )
    if not len(words):
        raise DataError(f"{path} is empty: it has no words.")
    return {word: vectors[row].tolist() for row, word in enumerate(words.tolist()) if word in wanted}
