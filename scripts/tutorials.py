"""Runs the tutorials and checks what they print: python scripts/tutorials.py [--write] [PAGE …].

A page's python blocks run from top to bottom in one namespace, in a process of their own and in a temporary folder. A
text block right after a python block is what it prints. Words must be the same, and so must whole numbers; numbers
with a decimal point may differ by 2 % or 0.002, whichever is more, because other machines round differently.

--write puts the real outputs into the text blocks, and the pictures that the blocks save as images/NAME.png into
docs/tutorials/images.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
RELATIVE, ABSOLUTE = 0.02, 0.002
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
PICTURE = re.compile(r"!\[[^\]]+\]\((images/[^)]+)\)")


class Block(NamedTuple):
    """Python code, the line of the page on which it starts, and what the page says that it prints."""

    code: str
    line: int
    output: str


def pages() -> list[Path]:
    """The tutorials in their order."""
    return sorted(FOLDER.glob("[0-9]-*.md"))


def blocks_of(text: str) -> list[Block]:
    """The python blocks of a page with the text blocks that belong to them."""
    return [
        Block(found["code"], text.count("\n", 0, found.start("code")), found["output"] or "")
        for found in BLOCK.finditer(text)
    ]


def execute(page: Path) -> list[str]:
    """Run a page's blocks in this process and the current folder; what each one prints."""
    module = ModuleType("tutorial")
    sys.modules["tutorial"] = module  # torch.compile looks a function's globals up by the name of its module
    outputs = []
    for block in blocks_of(page.read_text(encoding="utf-8")):
        code = compile("\n" * block.line + block.code, str(page), "exec")  # an error names the page's own line
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, vars(module))
        lines = [line.rstrip() for line in printed.getvalue().rstrip().splitlines()]
        outputs.append("".join(f"{line}\n" for line in lines))
    return outputs


def run(page: Path, folder: Path) -> list[str]:
    """The outputs of a page's blocks, run by a fresh Python in that folder, where its pictures stay."""
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(Path(__file__).resolve()), "--execute", str(page.resolve())]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{page.name} does not run:\n{done.stderr}")
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def difference(expected: str, actual: str) -> str | None:
    """The first line of a printed text that is not as expected, or None."""
    old, new = expected.splitlines(), actual.splitlines()
    for was, now in zip(old, new, strict=False):
        if not _same_line(was, now):
            return f"expected {was!r}, got {now!r}"
    if len(old) != len(new):
        return f"expected {len(old)} lines, got {len(new)}: {(old + new)[min(len(old), len(new))]!r}"
    return None


def _same_line(expected: str, actual: str) -> bool:
    if NUMBER.sub("#", expected).split() != NUMBER.sub("#", actual).split():
        return False
    return all(map(_same_number, NUMBER.findall(expected), NUMBER.findall(actual)))


def _same_number(expected: str, actual: str) -> bool:
    if expected == actual:
        return True
    if "." not in expected + actual:
        return False
    a, b = float(expected), float(actual)
    return abs(a - b) <= max(ABSOLUTE, RELATIVE * abs(a))


def differences(page: Path, outputs: list[str]) -> list[str]:
    """Where a page does not show what its blocks print."""
    found = []
    for block, output in zip(blocks_of(page.read_text(encoding="utf-8")), outputs, strict=True):
        wrong = difference(block.output, output)
        if wrong:
            found.append(f"{page.name}, block at line {block.line}: {wrong}")
    return found


def pictures(page: Path) -> set[str]:
    """The pictures that a page shows, as images/NAME.png."""
    return set(PICTURE.findall(page.read_text(encoding="utf-8")))


def rewritten(text: str, outputs: list[str]) -> str:
    """The page with its text blocks replaced by these outputs."""
    remaining = iter(outputs)

    def replace(found: re.Match[str]) -> str:
        output = next(remaining)
        return f"```python\n{found['code']}```\n" + (f"\n```text\n{output}```\n" if output else "")

    return BLOCK.sub(replace, text)


def main() -> int:
    """Run pages, and compare or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages (default: all tutorials)")
    parser.add_argument("--write", action="store_true", help="write outputs and pictures instead of comparing them")
    parser.add_argument("--execute", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.execute:
        print(json.dumps(execute(arguments.pages[0])))
        return 0
    wrong = []
    for page in arguments.pages or pages():
        with tempfile.TemporaryDirectory() as name:
            started = time.perf_counter()
            outputs = run(page, Path(name))
            print(f"{page.name}: {len(outputs)} blocks, {time.perf_counter() - started:.1f} s", flush=True)
            if arguments.write:
                page.write_text(rewritten(page.read_text(encoding="utf-8"), outputs), encoding="utf-8")
                (page.parent / "images").mkdir(exist_ok=True)
                for picture in sorted(pictures(page)):
                    shutil.copy(Path(name) / picture, page.parent / picture)
            wrong += differences(page, outputs)
    print("\n".join(wrong), end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
