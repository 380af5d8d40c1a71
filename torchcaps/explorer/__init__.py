"""A page in the browser where one meets a trained capsule network; ``torchcaps explore`` starts it."""

from torchcaps.extras import comes_with_an_extra

with comes_with_an_extra():
    from torchcaps.explorer.app import create_app
    from torchcaps.explorer.subjects import make_subject

__all__ = ["create_app", "make_subject"]
