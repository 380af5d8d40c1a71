"""torchcaps: capsule networks for PyTorch."""

from torchcaps.capsules import Capsules
from torchcaps.checks import check_finite
from torchcaps.models.registry import create_model, list_models
from torchcaps.routing.base import list_routings, register_routing
from torchcaps.version import __version__

from torchcaps import models as models  # registers the models  # isort: skip

__all__ = [
    "Capsules",
    "__version__",
    "check_finite",
    "create_model",
    "list_models",
    "list_routings",
    "register_routing",
]
