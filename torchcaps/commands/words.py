"""The words that decide, for ``torchcaps predict --words`` and ``--html``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.analysis.words import By


def show_words(
    run: str, texts: Sequence[str], of_class: str | None, by: By, terminal: bool, page_file: str | None
) -> int:
    """Print them coloured, write a page, or both."""
    from rich.console import Console

    from torchcaps.analysis.coloured import page, terminal_text
    from torchcaps.analysis.words import deciding_words
    from torchcaps.io import write_text
    from torchcaps.progress import bars

    found = deciding_words(run, texts, of_class, by, progress=bars())
    console = Console(highlight=False)
    if terminal:
        for words in found:
            console.print(terminal_text(words), soft_wrap=True)
    if page_file:
        write_text(Path(page_file), page(found, "Which words decide", by))
        console.print(f"Page: {page_file}", soft_wrap=True, markup=False)
    return 0
