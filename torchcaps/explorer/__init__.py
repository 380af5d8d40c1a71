"""A page in the browser where one meets a trained capsule network; ``torchcaps explore`` starts it."""

from torchcaps.explorer.app import create_app

__all__ = ["create_app"]
