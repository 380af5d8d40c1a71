"""What all errors of the package have in common."""


class TorchcapsError(Exception):
    """Something that a user can do something about; the message says what was expected, what came and what to do."""


class FileError(TorchcapsError):
    """A file that cannot be read, or is not what it should be."""
