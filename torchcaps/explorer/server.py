"""Serve the explorer on this machine."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import re
import socket
import threading
import warnings
import webbrowser
from collections.abc import Callable, Sequence

import torch
import uvicorn
from fastapi import FastAPI

from torchcaps.explorer import limits
from torchcaps.explorer.app import create_app
from torchcaps.explorer.connections import Connection
from torchcaps.explorer.limits import host_name
from torchcaps.training.errors import RunError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
FIRST_PORT, PORTS = 8650, 50
LAST_ANSWERS = 0.3
"""Seconds for answers that are being made when the server is stopped."""


class _Server(uvicorn.Server):
    """A server that says when it listens, and that nobody keeps from ending."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # of tasks that end early it shows tracebacks
        connections = [one for one in self.server_state.connections if isinstance(one, Connection)]
        answering = [one for one in connections if not one.waits_for_client]
        if answering and self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=LAST_ANSWERS)
        for connection in connections:
            connection.drop()
        await asyncio.sleep(0)  # in which they learn of it
        await super().shutdown(sockets)


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port given on the first free one from 8650."""
    ports = range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in ports:
        # With the protocol named, asyncio turns off Nagle's algorithm, which would hold answers back for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name != "nt":  # there it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(1024)
            return listener
        except OSError as error:
            listener.close()
            free_choice = port is None and error.errno == errno.EACCES  # a system may keep ports for itself
            if error.errno != errno.EADDRINUSE and not free_choice:
                advice = " Choose a port above 1023." if error.errno == errno.EACCES else ""
                raise RunError(f"cannot listen on {host} port {number}: {error.strerror or error}.{advice}") from error
        except OverflowError:
            listener.close()
            raise RunError(f"a port is a number from 0 to 65535, got {number}.") from None
        except (TypeError, UnicodeError):  # so says Python of a name that cannot be one
            listener.close()
            raise RunError(f"cannot listen on {host!r}: that is no name of a machine.") from None
    taken = f"port {port} is" if port is not None else f"the ports {ports[0]} to {ports[-1]} are"
    raise RunError(f"{taken} taken on {host}. Give another port, or 0 for any that is free.")


def _format_address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def find_own_address() -> str | None:
    """Under which others reach this machine, None if it is in no network; nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation, of nobody; UDP only chooses a route
        except OSError:
            return None
        own: str = probe.getsockname()[0]
    return None if own == "0.0.0.0" else own


def list_own_names(host: str, allowed: Sequence[str] = ()) -> tuple[str, ...]:
    """Names that a server on ``host`` answers to; at which address of its own it is reached, it sees for itself."""
    if not host.strip():
        raise RunError("host is empty: give an address to listen on, such as 127.0.0.1.", option="host")
    for name in allowed:
        if not re.fullmatch(r"[A-Za-z0-9._:-]+", name):
            raise RunError(f"a name to allow is one such as lecture.example, without http://; got {name!r}.")
    machine = socket.gethostname().lower().split(".")
    shared = () if is_loopback(host) else (".".join(machine), machine[0], f"{machine[0]}.local")
    return (*LOOPBACK, *(() if host in EVERYWHERE else (host,)), *shared, *map(host_name, allowed))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(
    runs: Sequence[str | os.PathLike[str]] = (),
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    data_dir: str | None = None,
    browser: bool = True,
    allow_hosts: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the explorer until Ctrl-C.

    Args:
        runs: run folders or weights files, beside the shipped models.
        host: address to listen on; anything but loopback lets others in.
        port: to listen on, 0 for any; not given: the first free one from 8650.
        data_dir: folder with the data sets whose test images are offered.
        browser: open a browser.
        allow_hosts: names that it answers to beside this machine's own, such as one of a proxy in front of it.
        say: receives lines of text for the user.
    """
    names = list_own_names(host, allow_hosts)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of each odd image there would be a line, too
    torch.set_num_threads(1)  # one image gains nothing from several; not in create_app, as it is for all of a process
    listening = listen(host, port)
    with listening:
        app = create_app(runs, data_dir=data_dir, hosts=names)
        everywhere, bound = host in EVERYWHERE, listening.getsockname()[1]
        address = _format_address("localhost" if everywhere or host == "127.0.0.1" else host, bound)

        def ready() -> None:
            say(f"The explorer is at {address}  (Ctrl-C stops it)")
            if not is_loopback(host):
                say(f"It listens on {host}: others on your network can use it. There is no password.")
            if everywhere and (own := find_own_address()) is not None:
                theirs = _format_address(own, bound)
                say(f"Their address for it: {theirs}  (links that you share are to begin with it, too)")
            if browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        _Server(_make_config(app), ready).run(sockets=[listening])


def _make_config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="error",  # of each odd request there would be a line
        access_log=False,
        server_header=False,
        proxy_headers=False,  # with which a client could say that it is another one
        backlog=256,  # that are accepted before the next look at how many there are
        timeout_keep_alive=limits.IDLE_SECONDS,
        timeout_graceful_shutdown=0,
    )
