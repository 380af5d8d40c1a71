"""What every answer carries and what no request may exceed: one piece of ASGI around the whole app, and all numbers.

What a client does before its request is complete is in :mod:`torchcaps.explorer.connections`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchcaps.explorer.subjects import MOST_SIDE

MOST_JSON = 4 * MOST_SIDE**2 + 65_536
"""Bytes: the largest picture that there can be, RGB in base64, and some room."""
MOST_UPLOAD = 8_000_000
UPLOAD_ENDING = "/upload"
MOST_HELD, MOST_HELD_EACH = 100_000_000, 40_000_000
"""Bytes of bodies that are in memory, of all clients together and of one."""
MOST_REQUESTS, MOST_REQUESTS_EACH = 600, 300
"""Requests that are being answered, of all clients together and of one; further ones are told to come back."""

MOST_CONNECTIONS, MOST_CONNECTIONS_EACH = 500, 250
"""Open connections; for one more the one that has waited for its client longest is dropped."""
HEAD_SECONDS, BODY_SECONDS, REQUEST_SECONDS, IDLE_SECONDS = 10.0, 20.0, 60.0, 30
"""For the head of a request, for its body, for all of it until the answer is sent, and between two requests."""
READ_AT_ONCE = 16_384
"""Bytes that are read from a connection before others have their turn: many tiny chunks take long to be told apart."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",
}


class _Refusal(NamedTuple):
    """Status and sentence; ``leave`` closes the connection, as the rest of the request is not waited for."""

    code: int
    detail: str
    leave: bool = False

    def response(self) -> JSONResponse:
        return JSONResponse({"detail": self.detail}, self.code, {"Connection": "close"} if self.leave else None)


class Shares:
    """How much of something each client has, which is limited for one and for all together.

    Args:
        most: for all together.
        each: for one; clients whose address is not known are not told apart, so not limited.
    """

    def __init__(self, most: int, each: int) -> None:
        self.most, self.each = most, each
        self._taken: Counter[str] = Counter()

    def take(self, client: str, amount: int = 1) -> bool:
        """Whether there is so much; then it is taken."""
        mine = self._taken[client] + amount if client else 0
        if mine > self.each or self._taken.total() + amount > self.most:
            return False
        self._taken[client] += amount
        return True

    def give_back(self, client: str, amount: int = 1) -> None:
        """As much as was taken."""
        self._taken[client] -= amount
        if not self._taken[client]:
            del self._taken[client]


class Guard:
    """Refuse foreign names and pages, too much at once, too large and too slow bodies; add security headers.

    A page elsewhere can make a browser ask a server on loopback under the page's own name (DNS rebinding), so a server
    answers to its own names only. And it can make a browser send a form to any server; browsers say where from.

    Names are not left to Starlette's TrustedHostMiddleware: its list is fixed, while the address that was reached
    depends on the request; and releases that Python 3.10 gets (1.3) cut a Host header at its first colon, which leaves
    nothing of an IPv6 address and takes ``localhost:80:elsewhere`` for localhost.

    Args:
        app: what is guarded.
        hosts: names that the server answers to, beside the address that it was reached at; None for all.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] | None = None) -> None:
        self.app, self.hosts = app, None if hosts is None else {host.lower() for host in hosts}
        self._requests = Shares(MOST_REQUESTS, MOST_REQUESTS_EACH)
        self._held = Shares(MOST_HELD, MOST_HELD_EACH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        client = find_client(scope)
        refusal = self._refuse_unwanted(scope)
        if refusal is None and not self._requests.take(client):
            refusal = _Refusal(429, "Too many requests at once; try again in a second.")
        if refusal is not None:
            await refusal.response()(scope, receive, send_with_headers)
            return
        try:
            await self._answer(scope, receive, send_with_headers, client)
        finally:
            self._requests.give_back(client)

    def _refuse_unwanted(self, scope: Scope) -> _Refusal | None:
        """The refusal of a request that comes from another site or is meant for another host; None if it is welcome."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host_name(host)
        if self.hosts is not None and name not in self.hosts and name not in reached_at(scope):
            return _Refusal(
                421,
                f"this server does not answer to the name {name[:100]!r}; whoever started it can allow a name "
                "(hosts of create_app, allow_hosts of serve).",
            )
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and comes_from_elsewhere(headers, host):
            return _Refusal(403, "This request comes from a page of another server, so it is refused.")
        return None

    async def _answer(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        body = bytearray()
        try:
            refusal = await asyncio.wait_for(self._read(scope, receive, client, body), BODY_SECONDS)
        except asyncio.TimeoutError:
            refusal = _Refusal(408, f"The request was not complete after {BODY_SECONDS:.0f} seconds.", leave=True)
        held, content = len(body), bytes(body)
        body.clear()
        try:
            app = refusal.response() if refusal is not None else self.app
            await app(scope, _replay(content, receive), send)
        finally:
            self._held.give_back(client, held)

    async def _read(self, scope: Scope, receive: Receive, client: str, body: bytearray) -> _Refusal | None:
        """Append the whole body to ``body``, unless it has more bytes than may be, or than there is room for."""
        most = MOST_UPLOAD if scope["path"].endswith(UPLOAD_ENDING) else MOST_JSON
        too_large = _Refusal(413, f"at most {most:,} bytes can be sent here.")
        length = Headers(scope=scope).get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > most:
            return too_large
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return _Refusal(400, "The request is not complete.")  # which nobody hears: the client has gone
            piece = message.get("body", b"")
            if len(body) + len(piece) > most:
                return too_large
            if not self._held.take(client, len(piece)):
                return _Refusal(429, "Too much is being sent at once; try again in a second.")
            body += piece
            more = message.get("more_body", False)
        return None


def find_client(scope: Scope) -> str:
    """The address that a request comes from, empty if it is not known."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdigit() else header).strip("[]").lower()


def reached_at(scope: Scope) -> tuple[str, ...]:
    """This machine's own address, at which a client has reached it: a page elsewhere cannot have it for a name."""
    server: tuple[str, int | None] | None = scope.get("server")
    return (server[0].removeprefix("::ffff:").lower(),) if server and server[0] else ()


def comes_from_elsewhere(headers: Headers, host: str) -> bool:
    """Whether a browser says that a page of another server has made it ask."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    try:
        return origin is not None and urlsplit(origin).netloc.lower() != host.lower()
    except ValueError:  # brackets that do not match
        return True


def _replay(body: bytes, receive: Receive) -> Receive:
    """What gives the body in one piece, and after it whatever the server has to say."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
