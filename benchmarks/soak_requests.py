"""Requests that are almost right, many of them: the explorer has an answer to each, and keeps nothing of them.

    python -m benchmarks.soak_requests [--requests 100000] [--seed 0] [--clients 6] [--record]

The explorer runs in a process of its own. Valid requests are changed at random: bytes, JSON, headers, images.
Counted are the answers of each kind; one with 5xx, or none within five seconds, is a failure. The server's memory is
looked at after a tenth of the requests and at the end. ``--record`` puts a row into results/soak.csv.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

from benchmarks.explorer import memory_mb
from benchmarks.soak_record import record

LONGEST, QUIET = 5.0, 0.4  # seconds for an answer, and after it for another one
# Requests that are not complete are given up soon, as many here are.
SERVE = """
from torchcaps.explorer import limits, server
limits.HEAD_SECONDS = limits.BODY_SECONDS = 0.3
server.serve(port=0, browser=False, say=lambda line: print(line, flush=True))
"""
PAGES = ("/", "/main.js", "/api/models", "/api/models/mnist/samples", "/openapi.json", "/none")
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    "",
    "A" * 5000,
    "\ud800",
    "AAAA",
    [],
    {},
    [[[[]]]],
    {"a": {"a": 1}},
    [0.1] * 70,
)
ODD_HEADERS = (
    "Content-Length: 5", "Content-Length: -1", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Host:",
    "Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Expect: 100-continue",
    "Upgrade: websocket", "Connection: upgrade", "Content-Type: text/plain", "Content-Encoding: gzip",
    "A" * 9000 + ": b", "A: " + "b" * 9000, "Range: bytes=0-1", "A: \x00", ": b", "A", " A: b",
)  # fmt: skip


@contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """The explorer in a process of its own: port and number of the process."""
    server = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        yield int(line.split("localhost:")[1].split("/")[0]), server.pid
    finally:
        server.terminate()
        server.wait(timeout=10)


def pictures() -> list[bytes]:
    """Small image files of all kinds that are read."""
    image = Image.new("RGBA", (40, 30))
    image.paste((255, 200, 100, 255), (15, 5, 20, 25))
    found = []
    for kind, mode, options in (
        ("PNG", "RGBA", {}), ("PNG", "P", {}), ("PNG", "I;16", {}), ("PNG", "1", {}), ("BMP", "L", {}),
        ("GIF", "L", {}), ("JPEG", "RGB", {}), ("JPEG", "L", {"progressive": True}),
        ("WEBP", "RGBA", {"lossless": True}),
    ):  # fmt: skip
        content = io.BytesIO()
        made = image.convert("L").convert("I").convert(mode) if mode == "I;16" else image.convert(mode)
        made.save(content, kind, **options)
        found.append(content.getvalue())
    return found


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A few places of it changed, left out, doubled or cut off."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, length = rng.randrange(len(changed) + 1), rng.choice((1, 1, 4, 50))
        how = rng.randrange(5)
        if how == 0:
            changed[at : at + length] = rng.randbytes(length)
        elif how == 1:
            del changed[at : at + length]
        elif how == 2:
            changed[at:at] = changed[at : at + length] * rng.choice((1, 1, 100))
        elif how == 3:
            changed[at : at + 1] = rng.choice((b"\x00", b"\xff", b"\r\n", b"%", b"{", b"\x7f", b" "))
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def json_body(rng: random.Random, change: bool) -> tuple[str, bytes]:
    """What is asked, and the body of the request."""
    what = rng.choice(("look", "decode", "routing"))
    request: dict[str, Any] = {"pixels": base64.b64encode(rng.randbytes(784)).decode()}
    if what == "decode":
        request = {"label": rng.randrange(10), "pose": [rng.uniform(-1, 1) for _ in range(16)]}
    if what == "routing" and rng.random() < 0.5:
        request["iterations"] = rng.choice((1, 3, 5))
    if change:
        key = rng.choice([*request, "more", "x" * rng.choice((1, 1000))])
        request[key] = rng.choice(ODD_VALUES)
        if rng.random() < 0.1:
            request |= {str(number): 0 for number in range(2000)}
    return what, json.dumps(request).encode()


def request(rng: random.Random, images: list[bytes]) -> tuple[bytes, bool]:
    """A request as it goes over the line, mostly not quite right; and whether its head is, so that one answer comes."""
    change = rng.choice(("nothing", "body", "body", "header", "bytes"))
    kind = rng.choice(("page", "json", "json", "upload", "upload"))
    model = rng.choice(("mnist", "mnist", "fashion-mnist", "multi-mnist", "nobody"))
    body, lines = b"", [f"GET {rng.choice(PAGES)} HTTP/1.1"]
    if kind == "json":
        what, body = json_body(rng, change == "body")
        lines = [f"POST /api/models/{model}/{what} HTTP/1.1", "Content-Type: application/json"]
    elif kind == "upload":
        body = rng.choice(images)
        body = mutated(body, rng) if change == "body" else body
        lines = [f"POST /api/models/{model}/upload?invert={rng.choice(('auto', 'yes', 'no', 'x'))} HTTP/1.1"]
    lines += ["Host: localhost", *([f"Content-Length: {len(body)}"] if body else [])]
    sound = change in ("nothing", "body")
    if not sound:
        lines.append("Connection: close")
    if change == "header":
        lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(ODD_HEADERS))
    content = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    return mutated(content, rng) if change == "bytes" else content, sound


async def one_answer(reader: asyncio.StreamReader) -> list[int]:
    """The status of the next answer, which is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    length = next(line.split(b":")[1] for line in head if line.lower().startswith(b"content-length:"))
    await reader.readexactly(int(length))
    return [int(head[0].split()[1])]


async def all_answers(reader: asyncio.StreamReader) -> list[int]:
    """The statuses of all answers until the connection is closed, or nothing more comes."""
    content = b""
    while True:
        try:
            piece = await asyncio.wait_for(reader.read(1 << 16), LONGEST if not content else QUIET)
        except asyncio.TimeoutError:
            if not content:
                raise
            piece = b""
        content += piece
        if not piece:
            return [int(code) for code in re.findall(rb"(?:^|[\r\n}>])HTTP/1\.1 (\d{3}) ", content)]


async def client(
    port: int, rng: random.Random, images: list[bytes], counts: Counter[str], more: Callable[[], bool]
) -> None:
    """Send one request after the other, over one connection as long as both can tell where a request ends."""
    writer: asyncio.StreamWriter | None = None
    while more():
        content, sound = request(rng, images)
        codes, hung = [], False
        try:
            if writer is not None and not sound:  # it may be no request at all, for which an idle connection waits
                writer.transport.abort()
            if writer is None or not sound:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(content)
            codes = await asyncio.wait_for(one_answer(reader), LONGEST) if sound else await all_answers(reader)
        except asyncio.TimeoutError:
            hung = True
        except (OSError, asyncio.IncompleteReadError):
            pass  # closed
        if writer is not None and (not sound or not codes):
            writer.transport.abort()
            writer = None
        counts["hung" if hung else f"{max(codes) // 100}xx" if codes else "closed"] += 1
        if hung or (codes and max(codes) >= 500):
            print(f"{codes or 'nothing'} for {content[:300]!r}")


async def soak(port: int, process: int, requests: int, clients: int, seed: int) -> tuple[Counter[str], float, float]:
    """Answers of each kind; the server's megabytes after a tenth of the requests, and at the end."""
    images, counts, memory = pictures(), Counter[str](), [0.0]
    begun = 0

    def more() -> bool:
        nonlocal begun
        begun += 1
        if begun == requests // 10:
            memory[0] = memory_mb(process)
        if begun % 10_000 == 0:
            print(f"{begun:,}: {dict(counts)}, {memory_mb(process):.0f} MB")
        return begun <= requests

    await asyncio.gather(
        *(client(port, random.Random(f"{seed} {number}"), images, counts, more) for number in range(clients))
    )
    return counts, memory[0], memory_mb(process)


def main() -> None:
    """Send the requests and say what came back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    with serving() as (port, process):
        counts, early, late = asyncio.run(soak(port, process, arguments.requests, arguments.clients, arguments.seed))
    failures = counts["5xx"] + counts["hung"]
    detail = ", ".join(f"{kind}: {number}" for kind, number in sorted(counts.items()))
    detail += f"; {early:.0f} MB after a tenth, {late:.0f} MB at the end"
    print(detail)
    if arguments.record:
        record("requests", arguments.requests, failures, detail, arguments.seed)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
