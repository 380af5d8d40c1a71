"""What all errors of the package have in common."""


class TorchcapsError(Exception):
    """Something that a user can do something about; the message says what was expected, what came and what to do.

    Args:
        message: the sentence.
        option: the name of the option that is wrong, as Python spells it; a command adds how it is spelled there.
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
