"""torchcaps: capsule networks for PyTorch."""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING
from typing import Any as _Any

from torchcaps.errors import TorchcapsError
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
# What a user looks for besides: imported when it is first used, too.
_ROOMS = ("analysis", "capsules", "data", "errors", "layers", "losses", "models", "ops", "pretrained", "routing",
          "testing", "training")  # fmt: skip
__all__ = [
    "Capsules",
    "TorchcapsError",
    "__version__",
    "check_finite",
    "create_model",
    "list_models",
    "list_routings",
    "register_routing",
]


def __getattr__(name: str) -> _Any:
    if name in _HOMES:
        value = getattr(_importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    try:
        return _importlib.import_module(f"torchcaps.{name}")  # torchcaps.losses, as after an import
    except ModuleNotFoundError as error:
        if error.name != f"torchcaps.{name}":
            raise
        raise AttributeError(f"module 'torchcaps' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
