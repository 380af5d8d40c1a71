"""What every answer carries and what no request may exceed: one piece of ASGI around the whole app."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_JSON = 1_000_000
MOST_UPLOAD = 8_000_000
UPLOAD_ENDING = "/upload"
MOST_REQUESTS = 600
"""That are being answered; further ones are told to come back. Each may hold a body in memory."""

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


class Guard:
    """Refuse foreign names, too much at once and too large bodies; add security headers to everything.

    A page elsewhere can make a browser ask a server on loopback under the page's own name (DNS rebinding), so a server
    that is meant for this machine only answers to this machine's names.

    Args:
        app: what is guarded.
        hosts: names that the server answers to; None for all.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] | None = None) -> None:
        self.app, self.hosts = app, None if hosts is None else {host.lower() for host in hosts}
        self._answering = 0

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

        name = host_name(Headers(scope=scope).get("host", ""))
        if self.hosts is not None and name not in self.hosts:
            refusal = JSONResponse({"detail": f"this server does not answer to the name {name!r}."}, 421)
            await refusal(scope, receive, send_with_headers)
            return
        if self._answering >= MOST_REQUESTS:
            refusal = JSONResponse({"detail": "Too many requests at once; try again in a second."}, 429)
            await refusal(scope, receive, send_with_headers)
            return
        self._answering += 1
        try:
            await self._answer(scope, receive, send_with_headers)
        finally:
            self._answering -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = MOST_UPLOAD if scope["path"].endswith(UPLOAD_ENDING) else MOST_JSON
        body = await _body(scope, receive, most)
        if body is None:
            refusal = JSONResponse({"detail": f"at most {most:,} bytes can be sent here."}, 413)
            await refusal(scope, receive, send)
            return
        await self.app(scope, _replayed(body, receive), send)


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdigit() else header).strip("[]").lower()


async def _body(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """The whole body, or None if it has more bytes than may be."""
    length = Headers(scope=scope).get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > most:
        return None
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":  # the client has gone
            break
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What gives the body in one piece, and after it whatever the server has to say."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
