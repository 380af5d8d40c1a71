"""How fast the explorer answers: its start, 100 people dragging sliders at once, and a hand in a real browser.

    python -m benchmarks.explorer [--seconds 30] [--clients 100] [--strokes 40]

The load comes from a process of its own: every client sends the next pose as soon as it has the last drawing, which is
checked. In the browser time runs from the event (pen up, slider moved) to the frame that shows the effect. Writes
results/explorer.csv.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import math
import random
import statistics
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.browser import explorer, opened_browser
from torchcaps import __version__

RESULTS = Path(__file__).parent.parent / "results" / "explorer.csv"
COMMAND = "python -m benchmarks.explorer"
WARM_UP = 5.0  # seconds before memory is looked at
Row = tuple[str, str, float, str]  # what, bar, measured, unit


@dataclass
class Load:
    """What many clients saw."""

    seconds: list[float] = field(default_factory=list)  # of every answer
    errors: int = 0
    memory: list[float] = field(default_factory=list)  # MB of the server, once a second


def memory_mb(process: int) -> float:
    """What a process holds in memory now."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not say how much memory a process holds")


async def dragging(host: str, port: int, model: dict[str, Any], until: float, load: Load) -> None:
    """One client: a pose that wanders, a request at a time over one connection."""
    reader, writer = await asyncio.open_connection(host, port)
    rng = random.Random()
    pose = [rng.uniform(-0.3, 0.3) for _ in range(model["pose_size"])]
    label = rng.randrange(len(model["classes"]))
    shape = model["drawing"]
    characters = 4 * math.ceil(shape["channels"] * shape["height"] * shape["width"] / 3)
    while time.perf_counter() < until:
        pose[rng.randrange(len(pose))] = rng.uniform(-0.5, 0.5)
        body = json.dumps({"label": label, "pose": pose}).encode()
        head = (
            f"POST /api/models/{model['id']}/decode HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        start = time.perf_counter()
        writer.write(head.encode() + body)
        answered = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answered.lower().split(b"\r\n") if line.startswith(b"content-length"))
        content = await reader.readexactly(int(length.split(b":")[1]))
        load.seconds.append(time.perf_counter() - start)
        good = answered.startswith(b"HTTP/1.1 200") and len(json.loads(content)["pixels"]) == characters
        load.errors += not good
    writer.close()


async def loaded(address: str, process: int, model: dict[str, Any], clients: int, seconds: float) -> Load:
    """So many clients for so many seconds."""
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    load, until = Load(), time.perf_counter() + seconds
    tasks = [asyncio.create_task(dragging(host, int(port), model, until, load)) for _ in range(clients)]
    while time.perf_counter() < until:
        load.memory.append(memory_mb(process))
        await asyncio.sleep(1)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            print(f"a client broke off: {result!r}")
            load.errors += 1
    return load


def load_rows(address: str, process: int, clients: int, seconds: float) -> list[Row]:
    """Many people at once."""
    with urllib.request.urlopen(f"{address}api/models") as answer:
        model = json.load(answer)["models"][0]
    load = asyncio.run(loaded(address, process, model, clients, seconds))
    times = sorted(load.seconds)
    warm = load.memory[int(WARM_UP) :] or load.memory
    who = f"{clients} clients dragging sliders for {seconds:.0f} s"
    return [
        (f"{who}: errors", "0", load.errors, ""),
        (f"{who}: 99th percentile of an answer", "< 1000", 1000 * times[int(0.99 * len(times))], "ms"),
        (f"{who}: median of an answer", "", 1000 * statistics.median(times), "ms"),
        (f"{who}: answers", "", len(times) / seconds, "/s"),
        (f"{who}: memory of the server after {WARM_UP:.0f} s", "", warm[0], "MB"),
        (f"{who}: growth from then to the end", "≈ 0", warm[-1] - warm[0], "MB"),
    ]


def stroke(page: Any, rng: random.Random) -> None:
    """A bent line across the pad, as a hand draws it."""
    box = page.locator("#pad").bounding_box()
    x, y = box["x"] + box["width"] * rng.uniform(0.3, 0.6), box["y"] + box["height"] * 0.2
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(8):
        page.mouse.move(x + box["width"] * 0.1 * math.sin(step), y + box["height"] * 0.075 * (step + 1))
    page.mouse.up()


def measured(page: Any, name: str) -> float:
    """The page's own measurement, in milliseconds, as soon as there is one."""
    for _ in range(500):
        found = page.evaluate("name => performance.getEntriesByName(name).map(entry => entry.duration)", name)
        if found:
            return float(found[-1])
        page.wait_for_timeout(20)
    raise SystemExit(f"the page did not measure {name!r}")


def browser_rows(address: str, strokes: int) -> list[Row]:
    """A hand in a real browser."""
    rng, rows = random.Random(0), []
    with opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.wait_for_selector("#samples button")
        drawn = []
        for _ in range(strokes):
            page.click("#clear")
            page.evaluate("performance.clearMeasures('look')")
            stroke(page, rng)
            drawn.append(measured(page, "look"))
            page.wait_for_timeout(150)  # the pen is lifted; the picture of routing follows
        slider, moved = page.locator("#pose input[type=range]").nth(4), []
        for number in range(strokes):
            page.evaluate("performance.clearMeasures('decode')")
            slider.fill(str(round(0.4 * math.sin(number + 1), 2)))
            moved.append(measured(page, "decode"))
            page.wait_for_timeout(50)
    hands = (("pen up to bars and reconstruction", "< 100", drawn), ("slider to picture", "< 50", moved))
    for what, bar, times in hands:
        rows.append((f"{what}, median of {strokes}", bar, statistics.median(times), "ms"))
        rows.append((f"{what}, slowest", "", max(times), "ms"))
    return rows


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--strokes", type=int, default=40)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    begun = time.perf_counter()
    with explorer() as (address, server):
        with urllib.request.urlopen(address) as answer:
            answer.read()
        rows: list[Row] = [("from the command to the page's first answer", "< 5", time.perf_counter() - begun, "s")]
        rows += browser_rows(address, arguments.strokes)
        rows += load_rows(address, server.pid, arguments.clients, arguments.seconds)
    with arguments.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["what", "bar", "measured", "unit", "version", "command"])
        writer.writerows([what, bar, f"{value:.4g}", unit, __version__, COMMAND] for what, bar, value, unit in rows)
    for what, bar, value, unit in rows:
        print(f"{what}: {value:.4g} {unit}{f'   (bar: {bar})' if bar else ''}")


if __name__ == "__main__":
    main()
