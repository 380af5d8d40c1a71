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


ROOMS = [
    {"checks", "errors", "extras", "io", "machine", "names", "plain", "plain_yaml", "processors", "progress", "recipes"}
    | {"typed", "version"},
    {"ops"},
    {"capsules", "indices"},
    {"targets"},
    {"routing"},
    {"layers"},
    {"models"},
    {"losses", "testing"},
    {"data"},
    {"training"},
    {"pretrained"},
    {"analysis"},
    {"report"},
    {"run"},
    {"experiments", "explorer"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
"""A room imports only those before it; nothing beside it, but for the first, which are small and belong together."""


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path):
    """Everything that a module imports, also inside of functions and for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the whole path"
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_room_has_its_place():
    there = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert there <= set().union(*ROOMS), "a new room needs a place among ROOMS"


def test_rooms_import_only_those_before_them():
    place = {name: number for number, names in enumerate(ROOMS) for name in names}
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        if room == "__init__":  # which gives everything, when it is asked for
            continue
        for name in imports_of(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package != "torchcaps" or other == room or other not in place:
                continue
            allowed = place[other] < place[room] or place[other] == place[room] == 0
            assert allowed, f"{path} imports {name}, and {other} comes after {room}"


def test_data_know_nothing_of_networks():
    networks = {"models", "layers", "routing", "losses"}
    for path in (PACKAGE / "data").rglob("*.py"):
        rooms = {name.split(".")[1] for name in imports_of(path) if name.startswith("torchcaps.")}
        assert not rooms & networks, path


def test_ops_know_nothing_of_modules():
    for path in (PACKAGE / "ops").rglob("*.py"):
        names = set(imports_of(path)) - {"torch.nn.functional"}  # functions, not modules
        assert not any(f"{name}.".startswith("torch.nn.") for name in names), path


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
