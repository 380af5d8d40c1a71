"""The words that decide, for ``torchcaps predict --words`` and ``--html``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.analysis.relevance import By


def show_words(
    run: str, texts: Sequence[str], of_class: str | None, by: By, terminal: bool, page_file: str | None
) -> int:
    """Print them coloured, write a page, or both."""
    from rich.console import Console

    from torchcaps.analysis.relevance import find_deciding_words
    from torchcaps.io import write_text
    from torchcaps.progress import bars
    from torchcaps.report.colouring import colour_terminal, render_words
    from torchcaps.report.stand_ins import as_task
    from torchcaps.training.runs import load_model

    model, spec = load_model(run)
    decided = find_deciding_words(model, as_task(spec), texts, of_class, by, bars())  # type: ignore[arg-type]
    console = Console(highlight=False)
    if terminal:
        for words in decided:
            console.print(colour_terminal(words), soft_wrap=True)
    if page_file:
        write_text(Path(page_file), render_words(decided, "Which words decide", by))
        console.print(f"Page: {page_file}", soft_wrap=True, markup=False)
    return 0
