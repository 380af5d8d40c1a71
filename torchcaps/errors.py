"""What all errors of the package have in common."""

from __future__ import annotations


class TorchcapsError(Exception):
    """Something that a user can do something about; the message says what was expected, what came and what to do.

    Args:
        message: a sentence or two.
        option: which option is wrong, as Python and recipes spell it; the command line spells it in its own way.
    """

    def __init__(self, message: object = "", option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class InputError(TorchcapsError, ValueError):
    """A value that cannot be."""


class InputTypeError(TorchcapsError, TypeError):
    """A value of a kind that cannot be."""


class StateError(TorchcapsError, RuntimeError):
    """Something that cannot be done now, or not on this machine."""


class FileError(TorchcapsError):
    """A file that cannot be read, or is not what it should be."""


class DataError(TorchcapsError):
    """Something is wrong with data that a user has given or asked for; the message says what to do."""
