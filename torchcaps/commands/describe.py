"""``torchcaps info`` and ``torchcaps models``."""

from __future__ import annotations

import argparse
import inspect
import platform

from torchcaps.commands.base import Command


def info() -> str:
    """Versions, and which path serves routing and why."""
    import torch

    from torchcaps import __version__, list_models, list_routings
    from torchcaps.data.files import data_folders
    from torchcaps.ops import routed_path

    lines = {
        "torchcaps": __version__,
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "routing on the CPU": routed_path(),
        "routing elsewhere": "torch, in chunks of children (the kernel is for CPUs)",
        "routings": ", ".join(list_routings()),
        "models": ", ".join(list_models()),
        "data is looked for in": ", ".join(map(str, data_folders())),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def models() -> str:
    """Every model with its first line and its parameters for MNIST, or for 10,000 words."""
    from torchcaps import create_model, list_models
    from torchcaps.models.cnn import parameter_count
    from torchcaps.models.registry import model_factory

    lines = []
    for name in list_models():
        text = (inspect.getdoc(model_factory(name)) or "").split("\n")[0]
        lines.append(f"{name:<22}{parameter_count(create_model(name)):>12,}  {text}")
    return "\n".join(lines)


def _no_arguments(_: argparse.ArgumentParser) -> None:
    return None


def _print_info(_: argparse.Namespace) -> int:
    print(info())
    return 0


def _print_models(_: argparse.Namespace) -> int:
    print(models())
    return 0


INFO = Command("versions, and which path serves routing and why", "  torchcaps info", _no_arguments, _print_info)
MODELS = Command(
    "the models, with their parameters for MNIST or 10,000 words", "  torchcaps models", _no_arguments, _print_models
)
