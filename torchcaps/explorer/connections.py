"""Connections whose clients have only so much time, and of which there are only so many.

uvicorn waits without end for a request to be complete and for an answer to be read, and takes as many connections as
the system gives it: a client that does nothing could hold all of them.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from torchcaps.explorer import limits


class Connection(H11Protocol):
    """A connection that is dropped when it takes too long, or when there are too many that wait for their clients."""

    _timer: asyncio.TimerHandle | None = None
    _stage: tuple[str, object] = ("", None)
    _since = 0.0

    @property
    def waits_for_client(self) -> bool:
        """Whether nothing can be done until the client sends more."""
        return self._stage[0] != "request" or self.conn.their_state is h11.SEND_BODY

    def drop(self) -> None:
        """End it at once, whatever is still to be sent."""
        self.connections.discard(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See ``asyncio.Protocol``."""
        if hasattr(transport, "max_size"):  # of asyncio's own transports
            transport.max_size = limits.READ_AT_ONCE
        super().connection_made(transport)
        self._watch()
        everyone = [other for other in self.connections if isinstance(other, Connection)]
        address = self.client[0] if self.client else None
        mine = [other for other in everyone if other.client and other.client[0] == address]
        for others, most in ((mine, limits.MOST_CONNECTIONS_EACH), (everyone, limits.MOST_CONNECTIONS)):
            if len(others) > most:
                waiting = [other for other in others if other is not self and other.waits_for_client]
                min(waiting, key=lambda other: other._since, default=self).drop()
                return

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """See ``H11Protocol``."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Begin to count the time anew if something else is going on than before."""
        stage, seconds = self._stage_now()
        if (stage, self.cycle) == self._stage:
            return
        self._stage, self._since = (stage, self.cycle), self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.drop)

    def _stage_now(self) -> tuple[str, float]:
        if self.conn.their_state is not h11.IDLE:
            return "request", limits.REQUEST_SECONDS
        if self.cycle is None or self.conn.trailing_data[0]:
            return "head", limits.HEAD_SECONDS
        return "idle", 1.5 * limits.IDLE_SECONDS  # uvicorn closes it before, but lets the client read first
