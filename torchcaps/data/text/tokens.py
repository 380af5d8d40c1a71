"""Words of a sentence, after the cleaning of Kim 2014 (Convolutional neural networks for sentence classification)."""

from __future__ import annotations

import re
import unicodedata

KEPT = "'`"
ALONE = "(),!?"
APOSTROPHES = "’ʼ＇"
_ENDINGS = re.compile(r"(n't|'(?:s|ve|re|d|ll|m))(?!\w)", re.IGNORECASE)


def tokenize(text: str, lower: bool = True) -> tuple[str, ...]:
    """Split a text into words and signs.

    Letters, digits, ``'`` and ``````` make words; each of ``( ) , ! ?`` is a token of its own; all other characters
    separate words and are dropped: full stops, hyphens, control characters. The endings ``'s 've 're 'd 'll 'm`` and
    ``n't`` are split off ("don't" gives "do", "n't"). Text that is tokenised already stays as it is. Different from the
    published code, letters of all alphabets are kept, not only a … z, typographic apostrophes are plain ones, and
    ``'m`` is an ending too, as word vectors have it. Languages without spaces between words need a tokeniser of their
    own.

    Args:
        text: of any length; without a single word or sign, the result is empty.
        lower: make it lower case, as is done for every benchmark but TREC.
    """
    if lower:
        text = text.lower()
    text = unicodedata.normalize("NFC", text)  # one letter with its accent, not two characters
    text = text.translate({ord(sign): _replacement(sign) for sign in set(text)})
    return tuple(_ENDINGS.sub(r" \1", text).split())


def _replacement(sign: str) -> str:
    if sign in APOSTROPHES:
        return "'"
    if sign in ALONE:
        return f" {sign} "
    # Marks are the vowels of many Indian scripts: without them words would fall apart.
    belongs = sign.isalnum() or sign in KEPT or unicodedata.category(sign)[0] == "M"
    return sign if belongs else " "
