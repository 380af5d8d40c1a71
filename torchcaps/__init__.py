"""torchcaps: capsule networks for PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchcaps.version import __version__

if TYPE_CHECKING:
    from torchcaps.capsules import Capsules
    from torchcaps.checks import check_finite
    from torchcaps.models import create_model, list_models
    from torchcaps.routing import list_routings, register_routing

# Names are imported when they are first used, so that `torchcaps --help` need not wait for torch.
_HOMES = {
    "Capsules": "torchcaps.capsules",
    "check_finite": "torchcaps.checks",
    "create_model": "torchcaps.models",
    "list_models": "torchcaps.models",
    "list_routings": "torchcaps.routing",
    "register_routing": "torchcaps.routing",
}
__all__ = [
    "Capsules",
    "__version__",
    "check_finite",
    "create_model",
    "list_models",
    "list_routings",
    "register_routing",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    try:
        return importlib.import_module(f"torchcaps.{name}")  # torchcaps.losses, as after an import
    except ModuleNotFoundError as error:
        if error.name != f"torchcaps.{name}":
            raise
        raise AttributeError(f"module 'torchcaps' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
