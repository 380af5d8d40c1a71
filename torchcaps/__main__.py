"""``python -m torchcaps`` is the ``torchcaps`` command."""

from torchcaps.cli import main

main()
