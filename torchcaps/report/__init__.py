"""Pages that show what is measured in a trained model: the report of ``torchcaps explain``, and words that decide.

``explain(model, task, source, folder, facts=Facts(…))`` writes the report of any model, one's own included.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.report.facts import Facts as Facts
    from torchcaps.report.reports import Report as Report
    from torchcaps.report.reports import explain as explain

_HOMES = {"Facts": "facts", "Report": "reports", "explain": "reports"}

__all__ = ["Facts", "Report", "explain"]


def __getattr__(name: str) -> Any:
    """The names above, when they are asked for: text in a terminal needs no matplotlib."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
