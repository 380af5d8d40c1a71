"""Where public names live, for those who look for them at the top of the package."""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Collection, Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent


def hint(name: str, top: Collection[str], rooms: Sequence[str]) -> str:
    """A sentence for somebody who asked the package for a name that it does not have.

    Args:
        name: that was asked for.
        top: names that it has.
        rooms: modules of the package in which to look for it.
    """
    lacking = f"module 'torchcaps' has no attribute {name!r}"
    if name.startswith("_"):  # asked for by tools
        return lacking
    homes = public_names(tuple(rooms))
    if name in homes:
        return f"{name} lives in {homes[name]}: from {homes[name]} import {name}"
    near = difflib.get_close_matches(name, {*top, *homes}, n=1, cutoff=0.7)
    if not near:
        return lacking
    (meant,) = near
    where = f", which lives in {homes[meant]}" if meant in homes and meant not in top else ""
    return f"{lacking}. Did you mean {meant!r}{where}?"


@functools.lru_cache(maxsize=1)
def public_names(rooms: tuple[str, ...]) -> dict[str, str]:
    """The public names of some modules of the package and where to import them from, the shortest way for each.

    The sources are read, and nothing is imported: a room may need what is not installed.
    """
    files = [file for room in rooms for file in (PACKAGE / f"{room}.py", *(PACKAGE / room).rglob("*.py"))]
    modules: dict[str, str] = {}
    for module, file in sorted((_module(file), file) for file in files if file.is_file()):
        for name in _public(ast.parse(file.read_bytes())):
            if name not in modules or module.count(".") < modules[name].count("."):
                modules[name] = module
    return modules


def _module(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _public(module: ast.Module) -> list[str]:
    """What a module's ``__all__`` lists; without one the functions, classes and values that it defines."""
    names: list[str] = []
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
            if names[-1:] == ["__all__"] and node.value is not None:
                return list(ast.literal_eval(node.value))
    return [name for name in names if not name.startswith("_")]
