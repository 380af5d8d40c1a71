"""Parts of the package that need more than torch, and what to type if that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.errors import TorchcapsError

EXTRAS = {
    "matplotlib": "explain",
    "fastapi": "explore",
    "pydantic": "explore",
    "starlette": "explore",
    "uvicorn": "explore",
    "scipy": "affnist",
}
"""By what is missing; all else belongs to ``train``."""


class MissingExtraError(TorchcapsError, ModuleNotFoundError):
    """Something is not installed that a part of the package needs; the message says what to type.

    Args:
        message: the sentence.
        name: the module that is missing.
    """

    def __init__(self, message: object = "", name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def missing_extra(error: ModuleNotFoundError) -> str:
    """What to do about a module that is not installed."""
    name = (error.name or "").partition(".")[0]
    return f'needs {name!r}, which is not installed: pip install "torchcaps[{EXTRAS.get(name, "train")}]"'


@contextmanager
def comes_with_an_extra() -> Iterator[None]:
    """Around imports of what not everybody has installed; if it is missing, the error says what to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "torchcaps").partition(".")[0] == "torchcaps" or isinstance(error, MissingExtraError):
            raise
        raise MissingExtraError(f"this {missing_extra(error)}", name=error.name) from error
