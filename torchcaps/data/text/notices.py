"""What a user should know about texts before a model is trained on them, or judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from torchcaps.data.options import Units
from torchcaps.data.text.sets import TextSet, Tokens
from torchcaps.data.text.tokens import find_scripts

Tell = Callable[[str], None]
NOTICEABLE = 0.01
"""The share of texts from which on a script is told of."""


def tell_losses(data: TextSet, max_length: int, tell: Tell, kind: str = "texts") -> None:
    """Tell of texts without any word, and of those that are cut: the model does not see what they say.

    Args:
        data: the texts.
        max_length: they are cut after so many words.
        tell: receives a sentence for each.
        kind: what the texts are called.
    """
    total = len(data)
    empty = [number for number, text in enumerate(data.texts) if not text]
    if empty:
        which = "" if data.items is None else f" (such as {data.items[empty[0]].name})"
        tell(f"{_count(len(empty), total, kind)} have no words{which}: to the model they are all alike.")
    cut = sum(len(text) > max_length for text in data.texts)
    if cut:
        longest = max(map(len, data.texts))
        tell(
            f"{_count(cut, total, kind)} are longer than {max_length:,} words and are cut there, the longest has "
            f"{longest:,}: text.max_length."
        )


def tell_scripts(texts: Sequence[Tokens], units: Units, tell: Tell) -> None:
    """Tell how texts in scripts without spaces between words are read, where there are not only a few."""
    scripts = [found for text in texts if (found := find_scripts(text))]
    if not scripts or len(scripts) < NOTICEABLE * len(texts) or units == "characters":
        return
    names = [name for name, _ in Counter(name for found in scripts for name in sorted(found)).most_common()]
    have = f"{_count(len(scripts), len(texts))} have {_join(names)} characters"
    if units == "auto":
        tell(
            f"{have}, which are read one by one, as these scripts have no spaces between words. For texts whose words "
            "are parted by spaces already: text.units=words."
        )
    else:
        tell(
            f"{have}, and with text.units=words all that is between two spaces is one word. If no spaces are between "
            "words: text.units=auto."
        )


def _count(some: int, total: int, kind: str = "texts") -> str:
    share = 100 * some / total
    return f"{some:,} of {total:,} {kind}" + (f" ({share:.0f} %)" if share >= 1 else "")


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
