"""What the package itself has, and what it says to those who look there for something else."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import torchcaps
from torchcaps.names import public_names

NEEDED = [
    "Capsules", "CapsuleLinear", "CapsuleConv1d", "CapsuleConv2d", "ClassCapsules", "PrimaryCapsules1d",
    "PrimaryCapsules2d", "MatrixPrimaryCapsules2d", "ReconstructionDecoder", "CapsuleLoss", "margin_loss",
    "spread_loss", "ModelOutput", "create_model", "list_models", "register_model", "list_routings",
    "register_routing", "list_pretrained", "Run", "Prediction", "load", "fit", "register_dataset", "list_datasets",
    "check_finite", "use_backend", "squash",
    "TorchcapsError", "__version__",
]  # fmt: skip


def python(*lines):
    return subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)


def imported(name):
    exec(f"from torchcaps import {name}", {})


@pytest.mark.parametrize("name", NEEDED)
def test_what_users_need_is_at_the_top(name):
    imported(name)
    assert name in torchcaps.__all__
    assert name in dir(torchcaps)


def test_that_is_all_and_the_type_checker_knows_it():
    assert sorted(torchcaps.__all__) == sorted(NEEDED)
    tree = ast.parse(Path(torchcaps.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    told = {alias.name for node in checked.body for alias in node.names}
    assert told == {*torchcaps._HOMES, *torchcaps._ROOMS}
    assert {*torchcaps._HOMES, "TorchcapsError", "__version__"} == set(torchcaps.__all__)


def test_a_light_import_stays_light():
    done = python("import sys, torchcaps", "torchcaps.TorchcapsError, dir(torchcaps)", "print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("routed_linear", "torchcaps.ops"),
        ("dynamic_routing", "torchcaps.ops"),
        ("EMRouting", "torchcaps.routing"),
        ("CapsNet", "torchcaps.models"),
        ("reconstruction_loss", "torchcaps.losses"),
        ("assert_routing", "torchcaps.testing"),
        ("pretrained_card", "torchcaps.pretrained"),
        ("InputError", "torchcaps.errors"),
        ("train", "torchcaps.training.fit"),
        ("fgsm", "torchcaps.analysis.attacks"),
    ],
)
def test_what_lives_elsewhere_is_told_where(name, home):
    sentence = f"{name} lives in {home}: from {home} import {name}"
    with pytest.raises(ImportError) as caught:
        imported(name)
    assert str(caught.value) == sentence
    with pytest.raises(AttributeError) as caught:
        getattr(torchcaps, name)
    assert str(caught.value) == sentence
    assert not hasattr(torchcaps, name)
    assert hasattr(importlib.import_module(home), name)


def test_every_name_that_is_told_of_is_there():
    """All homes of public names can be imported and have them."""
    for name, home in public_names(torchcaps._ROOMS).items():
        assert hasattr(importlib.import_module(home), name), f"{home}.{name}"


def test_every_public_name_of_a_room_is_told_of():
    for room in torchcaps._ROOMS:
        for name in getattr(importlib.import_module(f"torchcaps.{room}"), "__all__", ()):
            assert name in torchcaps.__all__ or name in public_names(torchcaps._ROOMS), f"{room}.{name}"


def test_looking_for_a_name_imports_nothing():
    done = python(
        "import sys",
        "try: from torchcaps import routed_linear",
        "except ImportError as error: print(error)",
        "print('torch' in sys.modules, 'numpy' in sys.modules)",
    )
    assert done.stdout.splitlines() == [
        "routed_linear lives in torchcaps.ops: from torchcaps.ops import routed_linear",
        "False False",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("create_modle", ". Did you mean 'create_model'?"),
        ("CapsuleLiner", ". Did you mean 'CapsuleLinear'?"),
        ("layer", ". Did you mean 'layers'?"),
        ("routed_liner", ". Did you mean 'routed_linear', which lives in torchcaps.ops?"),
        ("nonsense", ""),
        ("__wrapped__", ""),
        ("_private", ""),
    ],
)
def test_unknown_names_get_a_hint(name, hint):
    sentence = f"module 'torchcaps' has no attribute {name!r}{hint}"
    with pytest.raises(AttributeError) as caught:
        getattr(torchcaps, name)
    assert str(caught.value) == sentence
    with pytest.raises(ImportError) as caught:
        imported(name)
    assert str(caught.value) == sentence


EXTRAS = ("yaml", "PIL", "pytorch_lightning", "rich", "safetensors", "tensorboardX", "torchmetrics",
          "tqdm", "scipy", "matplotlib", "jinja2", "fastapi", "uvicorn", "pydantic")  # fmt: skip
USES = [
    ("from torchcaps import load; load('mnist')", "safetensors", "train"),
    ("from torchcaps.training.runs import load_weights; load_weights('x')", "safetensors", "train"),
    ("from torchcaps.training.fit import train", "pytorch_lightning", "train"),
    ("import torchcaps.training.module", "pytorch_lightning", "train"),
    ("import torchcaps.training.callbacks", "pytorch_lightning", "train"),
    ("import torchcaps.training.checkpoints", "pytorch_lightning", "train"),
    ("from torchcaps.training.recipes import read_values; read_values('quickstart')", "yaml", "train"),
    ("import torchcaps.report.pictures", "PIL", "train"),
    ("del sys.modules['PIL']; import torchcaps.report.charts", "jinja2", "train"),
    ("del sys.modules['jinja2']; import torchcaps.report.charts", "matplotlib", "explain"),
    ("from torchcaps.explorer import create_app", "fastapi", "explore"),
]


def test_a_missing_extra_is_named_with_what_to_type():
    done = python(
        "import sys",
        f"for name in {EXTRAS}: sys.modules[name] = None",
        "from torchcaps import *",  # all of this needs none of them
        "import torchcaps",
        "print(list_pretrained()[0], [getattr(torchcaps, name) is None for name in dir(torchcaps)].count(True))",
        f"for use in {[use for use, _, _ in USES]}:",
        "    try: exec(use)",
        "    except torchcaps.TorchcapsError as error: print(isinstance(error, ModuleNotFoundError), error)",
    )
    sentence = 'True this needs {!r}, which is not installed: pip install "torchcaps[{}]"'
    assert done.stdout.splitlines() == ["mnist 0", *(sentence.format(*missing) for _, *missing in USES)], done.stderr


# ---------------------------------------------------------------- names of classes, modules and options

PACKAGE = Path(torchcaps.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z]")
PIP = re.compile(r"pip install [^`.]*")


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


def test_no_two_public_classes_have_the_same_name():
    names = Counter(
        node.name
        for _, text in sources()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_no_two_modules_are_called_words():
    names = Counter(Path(name).name for name, _ in sources())
    assert {name for name in ("words.py", "utils.py") if names[name] > 1} == set()


def test_only_the_commands_speak_command_line():
    """In no text, docstring or comment: an error names an option as Python does, the command adds how it is typed."""
    speaking = {name for name, text in sources() if OPTION.search(PIP.sub("", text))}
    assert {name for name in speaking if not name.startswith("commands/") and name != "cli.py"} == set()


ASKS_FOR_TEXT = re.compile(r"isinstance\([^)]*(Texts|TextSpec|TextSet|TextTask)|is_text\(|model_reads")


def test_nothing_but_tasks_and_data_asks_whether_it_is_text():
    asking = [name for name, text in sources() if ASKS_FOR_TEXT.search(text)]
    assert [name for name in asking if not name.startswith(("training/tasks/", "data/"))] == []
