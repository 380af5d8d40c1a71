"""Numbers and names as a reader sees them."""

from __future__ import annotations

from collections.abc import Sequence


def format_percent(share: float, digits: int = 1) -> str:
    """A share as text, such as 97.2 %."""
    return f"{100 * share:.{digits}f}\u202f%"


def format_number(value: float | None, digits: int = 3) -> str:
    """A number with a real minus sign; a dash for one that is missing or no number."""
    if value is None or value != value:
        return "–"
    if abs(value) >= 1e5:
        return f"{value:.1e}".replace("-", "−")
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # + 0.0: there is no minus zero


def format_significant(value: float, digits: int = 3) -> str:
    """As :func:`format_number`, but what would be shown as hardly more than zero has two digits that count."""
    if value == value and 0 < abs(value) < 10 ** (1 - digits):
        return f"{value:.1e}".replace("-", "−")
    return format_number(value, digits)


def count_nouns(count: int, noun: str) -> str:
    """A number of things: 1 image, 2,000 images."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_names(names: Sequence[str], last: str = "and") -> str:
    """Names in a sentence: one, two and three."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def format_signed(value: float) -> str:
    """With a sign and two digits; zero has neither."""
    return f"{value:+.2f}".replace("-", "−") if value else "0"


def format_scientific(value: float) -> str:
    """Two digits and a power of ten; a dash for what is no number."""
    return "–" if value != value else f"{value:.1e}".replace("-", "−")
