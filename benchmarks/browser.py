"""Chromium for measurements and tests of the page."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Headless, without a sandbox (containers have none), and without anything that would ask the network on its own.
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


def chromium() -> str | None:
    """Where Chromium is, if it is installed."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A running Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        raise SystemExit("Chromium is not installed; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def explorer(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``torchcaps explore`` as a process of its own on a free port: its address, and the process."""
    command = [sys.executable, "-m", "torchcaps", "explore", "--no-browser", "--port", "0", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if "http://" not in line:
            raise RuntimeError(f"the explorer did not start; it said {line!r}")
        yield next(word for word in line.split() if word.startswith("http://")), server
    finally:
        server.terminate()
        server.wait(timeout=10)
