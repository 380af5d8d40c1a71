"""Words of a sentence, after the cleaning of Kim 2014 (Convolutional neural networks for sentence classification).

Scripts that put no spaces between words are read character by character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from torchcaps.data.options import UNITS, Units
from torchcaps.errors import DataError

KEPT = "'`"
ALONE = "(),!?"
APOSTROPHES = "’ʼ＇"
BOUNDARY = "_"
"""A token that stands between the words of a text that is read by characters; no word has this sign."""
SCRIPTS = {
    "Chinese or Japanese": "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff",
    "Thai": "\u0e01-\u0e7f",
    "Lao": "\u0e80-\u0eff",
    "Burmese": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f",
    "Khmer": "\u1780-\u17ff",
}
"""Scripts without spaces between words, and their letters: ranges of characters."""
_ENDINGS = re.compile(r"(n't|'(?:s|ve|re|d|ll|m))(?!\w)", re.IGNORECASE)
_LETTER = f"[{''.join(SCRIPTS.values())}]"
# In a text that is cleaned, what is no letter, digit, sign or space is a mark. Some letters are written as marks are:
# the vowel am of Thai and Lao, and the voicing of narrow katakana.
_MARKS = r"(?:[^\w\s'`(),!?]|[\u0e33\u0eb3\uff9e\uff9f])*"
_STACKED = rf"(?:(?<=[\u1039\u17d2]){_LETTER}{_MARKS})*"  # Burmese and Khmer write a consonant below another one
_WITHOUT_SPACES = re.compile(_LETTER)
_CHARACTER = re.compile(_LETTER + _MARKS + _STACKED)
_ANY_CHARACTER = re.compile(rf"{_CHARACTER.pattern}|\S{_MARKS}")
_WIDE = str.maketrans("（），！？", "(),!?")  # as wide as a Chinese character
_VARIANTS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""They choose the form in which the character before them is drawn."""


def tokenize(text: str, lower: bool = True, units: Units = "auto") -> tuple[str, ...]:
    """Split a text into words and signs.

    Letters, digits, ``'`` and ``````` make words; each of ``( ) , ! ?`` is a token of its own; all other characters
    separate words and are dropped: full stops, hyphens, control characters, emoji. The endings ``'s 've 're 'd 'll 'm``
    and ``n't`` are split off ("don't" gives "do", "n't"). Text that is tokenised already stays as it is. Different from
    the published code, letters of all alphabets are kept, not only a … z, typographic apostrophes are plain ones, and
    ``'m`` is an ending too, as word vectors have it.

    Chinese, Japanese, Thai, Lao, Khmer and Burmese have no spaces between words. Each of their characters is a token,
    with the marks that belong to it (vowels, tones, consonants written below); words of other scripts and numbers among
    them stay whole: "我用iPhone 15" gives "我", "用", "iphone", "15". Korean has spaces, and is read by words. The wide
    signs ``（ ） ， ！ ？`` are taken for the plain ones.

    Args:
        text: of any length; without a single word or sign, the result is empty.
        lower: make it lower case, as is done for every benchmark but TREC.
        units: "auto" as described; "words" takes what is between spaces for a word in every script, for texts that
            somebody has split before; "characters" reads every script by characters, with the token ``_`` between
            words.
    """
    if units not in UNITS:
        raise DataError(f"texts are split into {', '.join(UNITS)}, got {units!r:.60}.", option="text.units")
    if lower:
        text = text.lower()
    if units != "words":
        text = _VARIANTS.sub("", text).translate(_WIDE)
    text = unicodedata.normalize("NFC", text)  # one letter with its accent, not two characters
    text = text.translate({ord(sign): _replacement(sign) for sign in set(text)})
    if units == "characters":
        words = [_ANY_CHARACTER.findall(word) for word in text.split()]
        return tuple(token for number, word in enumerate(words) for token in ([BOUNDARY, *word] if number else word))
    if units == "auto":
        text = _CHARACTER.sub(r" \g<0> ", text)
    return tuple(_ENDINGS.sub(r" \1", text).split())


def _replacement(sign: str) -> str:
    if sign in APOSTROPHES:
        return "'"
    if sign in ALONE:
        return f" {sign} "
    # Marks are the vowels of many Indian scripts: without them words would fall apart.
    belongs = sign.isalnum() or sign in KEPT or unicodedata.category(sign)[0] == "M"
    return sign if belongs else " "


def find_scripts(tokens: Iterable[str]) -> set[str]:
    """Which of the :data:`SCRIPTS` without spaces between words a text has."""
    text = "".join(tokens)
    if _WITHOUT_SPACES.search(text) is None:
        return set()
    return {name for name, letters in SCRIPTS.items() if re.search(f"[{letters}]", text)}
