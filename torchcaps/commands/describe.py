"""``torchcaps info`` and ``torchcaps models``."""

from __future__ import annotations

import argparse
import inspect
import platform
from typing import Any

from torchcaps.commands.base import Command, say, say_json


def collect_info() -> dict[str, str]:
    """Versions, and which path serves routing and why."""
    import torch

    from torchcaps import __version__, list_models, list_routings
    from torchcaps.data.files import data_folders

    return {
        "torchcaps": __version__,
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **_describe_backends(),
        "routings": ", ".join(list_routings()),
        "models": ", ".join(list_models()),
        "data is looked for in": ", ".join(map(str, data_folders())),
    }


def _describe_backends() -> dict[str, str]:
    """Who can compute each fused routing and convolutions, in the order in which they are asked, and why one is not."""
    from torchcaps.ops.backends import list_backends, wanted_backend

    backends = {}
    for algorithm in dict.fromkeys(one.algorithm for one in list_backends()):
        lines = []
        last_first = list_backends()[::-1]
        for one in sorted(last_first, key=lambda one: one.device is None):
            if one.algorithm == algorithm:
                asked = wanted_backend()
                other = None if asked in (None, one.backend.name) else f"{asked} was asked for"
                reason = one.backend.unavailable() or other
                where = "every device" if one.device is None else f"{one.device} tensors"
                lines.append(f"{one.backend.describe()} ({where}{f'; not used: {reason}' if reason else ''})")
        what = algorithm if algorithm == "convolution" else f"{algorithm} routing"
        backends[f"{what} by"] = ", else ".join(lines)
    return backends


def describe_models() -> dict[str, dict[str, Any]]:
    """Every model with its parameters for MNIST, or for 10,000 words, and its first line."""
    from torchcaps import create_model, list_models
    from torchcaps.models.cnn import parameter_count
    from torchcaps.models.registry import model_factory

    return {
        name: {
            "parameters": parameter_count(create_model(name)),
            "description": (inspect.getdoc(model_factory(name)) or "").split("\n")[0],
        }
        for name in list_models()
    }


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print as JSON")


def _print_info(arguments: argparse.Namespace) -> int:
    lines = collect_info()
    if arguments.json:
        say_json(lines)
        return 0
    width = max(map(len, lines))
    for name, value in lines.items():
        say(f"{name:<{width}}  {value}")
    return 0


def _print_models(arguments: argparse.Namespace) -> int:
    entries = describe_models()
    if arguments.json:
        say_json(entries)
        return 0
    for name, entry in entries.items():
        say(f"{name:<22}{entry['parameters']:>12,}  {entry['description']}")
    return 0


INFO = Command("versions, and which path serves routing and why", "  torchcaps info", _add_json, _print_info)
MODELS = Command(
    "the models, with their parameters for MNIST or 10,000 words", "  torchcaps models", _add_json, _print_models
)
