"""Words that decide as coloured text, in a terminal and as a page of its own."""

from __future__ import annotations

import html
from collections.abc import Sequence

from torchcaps.analysis.pages import COLOURS, WORDS_STYLE
from torchcaps.analysis.words import By, DecidingWords, top_ngrams
from torchcaps.extras import comes_with_an_extra

with comes_with_an_extra():
    from rich.style import Style
    from rich.text import Text

FOR, AGAINST = (46, 160, 67), (218, 54, 51)


def strengths(words: DecidingWords) -> list[float]:
    """The relevances in −1 … 1, the strongest word of the text at one end."""
    most = float(words.relevance.abs().max()) if len(words.relevance) else 0.0
    return [float(value) / most if most > 0 else 0.0 for value in words.relevance]


def terminal_text(words: DecidingWords) -> Text:
    """Green speaks for the class, red against it; unknown words are in italics."""
    line = Text(f"{words.label} {words.score:.3f}  ", style="bold")
    for token, known, strength in zip(words.tokens, words.known, strengths(words), strict=True):
        red, green, blue = (
            round(40 + abs(strength) * (channel - 40)) for channel in (FOR if strength > 0 else AGAINST)
        )
        style = Style(color="white", bgcolor=f"rgb({red},{green},{blue})", italic=not known)
        line.append(token, style if abs(strength) >= 0.05 else Style(italic=not known))
        line.append(" ")
    if not words.tokens:
        line.append("(no word)", style="italic")
    return line


MEANING = {
    "couplings": "A class capsule's length is shared out along the couplings among n-grams, and then among words.",
    "leaving-out": "The stronger the colour, the more would the class capsule's length change without the word.",
}


def page(found: Sequence[DecidingWords], title: str, by: By = "couplings") -> str:
    """A complete HTML page, without scripts and without anything from elsewhere."""
    texts = "\n".join(article(words) for words in found)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{html.escape(title)}</h1>
{key(by)}
{texts}
</main>
</body>
</html>
"""


def key(by: By = "couplings") -> str:
    """What the colours mean, as HTML."""
    return f"""<p class="key"><span class="word" style="--s:100%" data-side="for">speaks for</span>
<span class="word" style="--s:100%" data-side="against">speaks against</span>
the class; <i>unknown words</i> are in italics. {MEANING[by]}</p>"""


def article(words: DecidingWords, remark: str = "", level: int = 2) -> str:
    """One text as HTML.

    Args:
        words: of the text.
        remark: HTML behind the class and its score.
        level: of the heading.
    """
    spans = []
    for token, known, value, strength in zip(
        words.tokens, words.known, words.relevance.tolist(), strengths(words), strict=True
    ):
        side, inner = "for" if strength > 0 else "against", html.escape(token)
        spans.append(
            f'<span class="word" data-side="{side}" style="--s:{abs(strength):.0%}" title="{value:+.4f}">'
            f"{inner if known else f'<i>{inner}</i>'}</span>"
        )
    rows = "".join(f"<tr><td>{html.escape(text)}</td><td>{value:+.4f}</td></tr>" for text, value in top_ngrams(words))
    table = f"<table><caption>strongest n-grams, by couplings</caption>{rows}</table>" if rows else ""
    return (
        f"<article><h{level}>{html.escape(words.label)} <small>{words.score:.3f}{remark}</small></h{level}>"
        f"<p>{' '.join(spans) or '<i>(no word)</i>'}</p>{table}</article>"
    )


STYLE = (
    COLOURS
    + """
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; }
"""
    + WORDS_STYLE
)
