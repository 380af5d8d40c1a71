"""A user's type checker knows the package: mypy at strict settings, and pyright by basedpyright, which ships whole."""

import ast
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import torchcaps

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
RIGHT, WRONG = FOLDER / "user_script.py", FOLDER / "wrong_uses.py"
MARK = "# wrong: "


def run(*command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy():
    """Where mypy finds an error: file and line."""
    out = run("mypy", "--strict", "--show-absolute-path", "--no-error-summary", str(RIGHT), str(WRONG))
    errors = [line.split(":") for line in out.splitlines() if ": error: " in line]
    return [(Path(name).name, int(line)) for name, line, *_ in errors], out


def pyright():
    """Where pyright finds an error: file and line."""
    out = run("basedpyright", "--project", str(FOLDER), "--pythonpath", sys.executable, "--outputjson")
    errors = [one for one in json.loads(out)["generalDiagnostics"] if one["severity"] == "error"]
    return [(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors], out


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_users_script_is_typed_and_mistakes_are_found(checker):
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    marked = [(WRONG.name, number) for number, line in enumerate(lines, 1) if MARK in line]
    assert len(marked) > 30
    found, out = checker()
    assert sorted(set(found)) == marked, out


def test_the_script_runs_with_the_types_that_it_asserts():
    runpy.run_path(str(RIGHT), run_name="__main__")


def calls():
    for path in sorted(Path(torchcaps.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            methods = {child.name: child for child in ast.walk(node) if isinstance(child, ast.FunctionDef)}
            if isinstance(node, ast.ClassDef) and {"__call__", "forward"} <= methods.keys():
                yield pytest.param(methods["__call__"], methods["forward"], id=f"{path.stem}.{node.name}")


@pytest.mark.parametrize(("call", "forward"), list(calls()))
def test_a_call_is_typed_as_what_it_calls(call, forward):
    assert ast.unparse(call.args) == ast.unparse(forward.args)
    assert ast.unparse(call.returns) == ast.unparse(forward.returns)
