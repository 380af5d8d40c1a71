"""Models, each in a few lines from the library's layers, behind a registry."""

from torchcaps.models.base import Model
from torchcaps.models.capsnet import CapsNet, capsnet, capsnet_small
from torchcaps.models.cnn import CNN, cnn_baseline, cnn_small, parameter_count
from torchcaps.models.config import ModelConfig
from torchcaps.models.embedding import WordVectors
from torchcaps.models.matrix_capsnet import MatrixCapsNet, cnn_matched, matrix_capsnet, matrix_capsnet_small
from torchcaps.models.output import ModelOutput
from torchcaps.models.registry import create_model, list_models, register_model
from torchcaps.models.text import TextCapsConfig, TextCapsNet, text_capsnet_a, text_capsnet_b
from torchcaps.models.text_baselines import TextCNN, TextLSTM, text_bilstm, text_cnn, text_lstm

__all__ = [
    "CNN",
    "CapsNet",
    "MatrixCapsNet",
    "Model",
    "ModelConfig",
    "ModelOutput",
    "TextCNN",
    "TextCapsConfig",
    "TextCapsNet",
    "TextLSTM",
    "WordVectors",
    "capsnet",
    "capsnet_small",
    "cnn_baseline",
    "cnn_matched",
    "cnn_small",
    "create_model",
    "list_models",
    "matrix_capsnet",
    "matrix_capsnet_small",
    "parameter_count",
    "register_model",
    "text_bilstm",
    "text_capsnet_a",
    "text_capsnet_b",
    "text_cnn",
    "text_lstm",
]
