"""The command line: thin. Parse, call, print."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence


def info() -> str:
    """Versions, and which path serves routing and why."""
    import torch

    from torchcaps import __version__, list_models, list_routings
    from torchcaps.ops import routed_path

    lines = {
        "torchcaps": __version__,
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "routing on the CPU": routed_path(),
        "routing elsewhere": "torch, in chunks of children (the kernel is for CPUs)",
        "routings": ", ".join(list_routings()),
        "models": ", ".join(list_models()),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``torchcaps`` command."""
    parser = argparse.ArgumentParser(prog="torchcaps", description="Capsule networks for PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, and which path serves routing and why")
    parser.parse_args(arguments)
    print(info())
