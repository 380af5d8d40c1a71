"""torchcaps: capsule networks for PyTorch."""

from __future__ import annotations

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING
from typing import Any as _Any

from torchcaps.errors import TorchcapsError
from torchcaps.version import __version__

if TYPE_CHECKING:
    from torchcaps import analysis as analysis
    from torchcaps import capsules as capsules
    from torchcaps import data as data
    from torchcaps import errors as errors
    from torchcaps import layers as layers
    from torchcaps import losses as losses
    from torchcaps import models as models
    from torchcaps import ops as ops
    from torchcaps import pretrained as pretrained
    from torchcaps import report as report
    from torchcaps import routing as routing
    from torchcaps import testing as testing
    from torchcaps import training as training
    from torchcaps.capsules import Capsules
    from torchcaps.checks import check_finite
    from torchcaps.data.registry import list_datasets, register_dataset
    from torchcaps.layers import (
        CapsuleConv1d,
        CapsuleConv2d,
        CapsuleLinear,
        ClassCapsules,
        MatrixPrimaryCapsules2d,
        PrimaryCapsules1d,
        PrimaryCapsules2d,
        ReconstructionDecoder,
    )
    from torchcaps.losses import CapsuleLoss, margin_loss, spread_loss
    from torchcaps.models import ModelOutput, create_model, list_models, register_model
    from torchcaps.ops import squash
    from torchcaps.ops.backends import use_backend
    from torchcaps.pretrained import list_pretrained
    from torchcaps.routing import list_routings, register_routing
    from torchcaps.run import Prediction, Run, fit, load

# Names are imported when they are first used, so that the help of the command need not wait for torch.
_HOMES = {
    "Capsules": "torchcaps.capsules",
    "CapsuleConv1d": "torchcaps.layers",
    "CapsuleConv2d": "torchcaps.layers",
    "CapsuleLinear": "torchcaps.layers",
    "CapsuleLoss": "torchcaps.losses",
    "ClassCapsules": "torchcaps.layers",
    "MatrixPrimaryCapsules2d": "torchcaps.layers",
    "ModelOutput": "torchcaps.models",
    "Prediction": "torchcaps.run",
    "PrimaryCapsules1d": "torchcaps.layers",
    "PrimaryCapsules2d": "torchcaps.layers",
    "ReconstructionDecoder": "torchcaps.layers",
    "Run": "torchcaps.run",
    "check_finite": "torchcaps.checks",
    "create_model": "torchcaps.models",
    "fit": "torchcaps.run",
    "list_datasets": "torchcaps.data.registry",
    "list_models": "torchcaps.models",
    "list_pretrained": "torchcaps.pretrained",
    "list_routings": "torchcaps.routing",
    "load": "torchcaps.run",
    "margin_loss": "torchcaps.losses",
    "register_dataset": "torchcaps.data.registry",
    "register_model": "torchcaps.models",
    "register_routing": "torchcaps.routing",
    "spread_loss": "torchcaps.losses",
    "squash": "torchcaps.ops",
    "use_backend": "torchcaps.ops.backends",
}
# What a user looks for besides: imported when it is first used, too.
_ROOMS = ("analysis", "capsules", "data", "errors", "layers", "losses", "models", "ops", "pretrained", "report",
          "routing", "testing", "training")  # fmt: skip
__all__ = [
    "CapsuleConv1d",
    "CapsuleConv2d",
    "CapsuleLinear",
    "CapsuleLoss",
    "Capsules",
    "ClassCapsules",
    "MatrixPrimaryCapsules2d",
    "ModelOutput",
    "Prediction",
    "PrimaryCapsules1d",
    "PrimaryCapsules2d",
    "ReconstructionDecoder",
    "Run",
    "TorchcapsError",
    "__version__",
    "check_finite",
    "create_model",
    "fit",
    "list_datasets",
    "list_models",
    "list_pretrained",
    "list_routings",
    "load",
    "margin_loss",
    "register_dataset",
    "register_model",
    "register_routing",
    "spread_loss",
    "squash",
    "use_backend",
]

if not TYPE_CHECKING:  # else every name would pass for one of ours

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
        from torchcaps.names import hint

        sentence = hint(name, [*__all__, *_ROOMS], _ROOMS)
        if _sys._getframe(1).f_code.co_name == "_handle_fromlist":  # of an import, which replaces an AttributeError
            raise ImportError(sentence, name="torchcaps")
        raise AttributeError(sentence)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
