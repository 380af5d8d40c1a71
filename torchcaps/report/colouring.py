"""Words that decide as coloured text, in a terminal and as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchcaps.analysis.relevance import By, DecidingWords, top_ngrams
from torchcaps.extras import comes_with_an_extra

with comes_with_an_extra():
    from rich.style import Style
    from rich.text import Text

FOR, AGAINST = (46, 160, 67), (218, 54, 51)


def scale_relevance(words: DecidingWords) -> list[float]:
    """The relevances in −1 … 1, the strongest word of the text at one end."""
    most = float(words.relevance.abs().max()) if len(words.relevance) else 0.0
    return [float(value) / most if most > 0 else 0.0 for value in words.relevance]


def colour_terminal(words: DecidingWords) -> Text:
    """Green speaks for the class, red against it; unknown words are in italics."""
    line = Text(f"{words.label} {words.score:.3f}  ", style="bold")
    for token, known, strength in zip(words.tokens, words.known, scale_relevance(words), strict=True):
        red, green, blue = (
            round(40 + abs(strength) * (channel - 40)) for channel in (FOR if strength > 0 else AGAINST)
        )
        style = Style(color="white", bgcolor=f"rgb({red},{green},{blue})", italic=not known)
        line.append(token, style if abs(strength) >= 0.05 else Style(italic=not known))
        line.append(" ")
    if not words.tokens:
        line.append("(no word)", style="italic")
    return line


def show_text(words: DecidingWords, remark: str = "") -> dict[str, Any]:
    """One text as a template shows it; the remark stands behind the class and its score."""
    parts = zip(words.tokens, words.known, words.relevance.tolist(), scale_relevance(words), strict=True)
    shown = [
        {
            "token": token,
            "known": known,
            "side": "for" if strength > 0 else "against",
            "strength": f"{abs(strength):.0%}",
            "value": f"{value:+.4f}",
        }
        for token, known, value, strength in parts
    ]
    ngrams = [(text, f"{value:+.4f}") for text, value in top_ngrams(words)]
    return {"label": words.label, "note": f"{words.score:.3f}{remark}", "words": shown, "ngrams": ngrams}


def render_words(decided: Sequence[DecidingWords], title: str, by: By = "couplings") -> str:
    """A complete HTML page, without scripts and without anything from elsewhere."""
    from torchcaps.report.rendering import render

    return render("words_page.html", title=title, by=by, texts=[show_text(words) for words in decided])
