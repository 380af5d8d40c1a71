"""Models, each in a few lines from the library's layers, behind a registry."""

from torchcaps.models.capsnet import CapsNet, capsnet, capsnet_small
from torchcaps.models.cnn import CNN, cnn_baseline, cnn_small, parameter_count
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import create_model, list_models, register_model

__all__ = [
    "CNN",
    "CapsNet",
    "ModelOutput",
    "capsnet",
    "capsnet_small",
    "cnn_baseline",
    "cnn_small",
    "create_model",
    "list_models",
    "parameter_count",
    "register_model",
]
