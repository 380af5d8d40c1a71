"""The package as it is installed."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchcaps

PACKAGE = Path(torchcaps.__file__).parent


def test_import_costs_little_more_than_torch():
    """At most 0.3 s beyond torch, the least of five fresh processes, measured inside each."""
    code = (
        "import time, torch; start = time.perf_counter(); import torchcaps; torchcaps.create_model, torchcaps.Capsules;"
        "print(time.perf_counter() - start)"
    )
    times = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(5)]
    assert min(times) < 0.3, times


def test_import_needs_torch_only():
    code = (
        "import sys, torch; before = set(sys.modules); import torchcaps; torchcaps.create_model;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    new = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    outside = {name for name in new if name not in sys.stdlib_module_names}
    assert outside <= {"torchcaps", "torch"}, outside


def test_every_public_name_exists():
    import torchcaps.layers
    import torchcaps.models
    import torchcaps.ops
    import torchcaps.routing
    import torchcaps.testing

    for module in (torchcaps, torchcaps.ops, torchcaps.routing, torchcaps.layers, torchcaps.models, torchcaps.testing):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_ops_know_nothing_of_modules_and_layers_nothing_of_models():
    forbidden = {
        "ops": ("torchcaps.routing", "torchcaps.layers", "torchcaps.models", "torchcaps.capsules", "torch.nn"),
        "routing": ("torchcaps.layers", "torchcaps.models"),
        "layers": ("torchcaps.models", "torchcaps.losses"),
        "models": ("torchcaps.losses", "torchcaps.testing", "torchcaps.data", "torchcaps.training"),
        "data": ("torchcaps.models", "torchcaps.layers", "torchcaps.routing", "torchcaps.losses", "torchcaps.training"),
    }
    for room, walls in forbidden.items():
        for path in (PACKAGE / room).rglob("*.py"):
            imported = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                elif isinstance(node, ast.Import):
                    imported |= {alias.name for alias in node.names}
            imported.discard("torch.nn.functional")  # functions, not modules
            for wall in walls:
                assert not any(f"{name}.".startswith(f"{wall}.") for name in imported), f"{path} imports {wall}"


def test_what_a_user_looks_for_is_listed_and_nothing_else():
    shown = dir(torchcaps)
    assert {"layers", "losses", "models", "ops", "routing", "pretrained", "testing", "create_model", "Capsules"} <= set(
        shown
    )
    assert not {"importlib", "Any", "annotations", "TYPE_CHECKING"} & set(shown)
    assert all(getattr(torchcaps, name) is not None for name in shown)


def test_all_errors_have_one_base():
    """Python's own are raised by nobody, but as what they are besides."""
    for path in Path(torchcaps.__file__).parent.rglob("*.py"):
        assert not re.search(r"raise (ValueError|TypeError|RuntimeError)\(", path.read_text(encoding="utf-8")), path
    for call, kind in ((lambda: torchcaps.create_model("x"), ValueError), (lambda: torchcaps.ops.squash(1), TypeError)):
        with pytest.raises(torchcaps.TorchcapsError) as caught:
            call()
        assert isinstance(caught.value, kind)
