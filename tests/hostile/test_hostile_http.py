"""What clients can send over HTTP: always an answer with 4xx or a closed connection, and all others are served."""

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient
from http_requests import BODIES, DECODE, ELSEWHERE, LOOK, ODD, REFUSED, ROUTING, UPLOAD
from http_server import Server, heard, post, statuses
from image_files import SMALL, striped
from uvicorn.server import ServerState
from watching import assert_sentence, watched

from torchcaps.data import picture_files
from torchcaps.explorer import create_app, interface, limits, server
from torchcaps.explorer.connections import Connection
from torchcaps.explorer.limits import MOST_JSON, Shares
from torchcaps.explorer.uploads import MOST_PIXELS
from torchcaps.training.specs import RunError

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals")
SHORT = {"HEAD_SECONDS": 0.7, "BODY_SECONDS": 0.7, "REQUEST_SECONDS": 2, "IDLE_SECONDS": 1}
FEW = {"MOST_CONNECTIONS": 60, "MOST_CONNECTIONS_EACH": 40, "MOST_HELD": 3_000_000, "MOST_HELD_EACH": 2_000_000}


@pytest.fixture(scope="module")
def running():
    """An explorer that loses its patience sooner than others."""
    found = Server(**SHORT, **FEW)
    yield found
    code, err, _ = found.end()
    assert code == 130
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def client():
    return TestClient(create_app(hosts=server.LOOPBACK), base_url="http://localhost", raise_server_exceptions=False)


def refused(answer, *codes):
    assert answer.status_code in codes, (answer.status_code, answer.text[:200])
    detail = answer.json()["detail"]
    assert_sentence(detail if detail.endswith(".") else f"{detail}.")
    assert len(detail) < 500


# ---------------------------------------------------------------- bytes


@POSIX
@pytest.mark.parametrize("name", REFUSED)
def test_hostile_bytes(running, name):
    begin = time.perf_counter()
    codes = statuses(running.say(REFUSED[name]))
    assert all(400 <= code < 500 for code in codes), codes
    assert time.perf_counter() - begin < 2
    assert running.get()[0] == [200]


@POSIX
@pytest.mark.parametrize("name", ODD)
def test_odd_bytes(running, name):
    codes = statuses(running.say(ODD[name]))
    assert codes
    assert all(200 <= code < 500 for code in codes), codes
    assert running.get()[0] == [200]


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("path", [LOOK, DECODE, ROUTING])
@pytest.mark.parametrize("name", BODIES)
def test_hostile_json(client, tmp_path, name, path):
    body = BODIES[name].encode("latin-1")
    taken = []
    while not taken or (min(taken) > 0.6 and len(taken) < 3):  # the least of three, as other tests run beside
        with watched(tmp_path):
            begin = time.process_time()
            answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
            taken.append(time.process_time() - begin)
        refused(answer, 400, 413, 422)
    assert min(taken) < 0.6, "in which nobody else is served; it takes 100 ms on a machine that does nothing else"


def test_the_limit_of_json_leaves_room_for_the_largest_picture():
    assert 4 * 256 * 256 < MOST_JSON < 400_000


# ---------------------------------------------------------------- pages of other servers


@pytest.mark.parametrize("path", [UPLOAD, LOOK, DECODE])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_pages_of_other_servers_are_refused(client, monkeypatch, name, path):
    monkeypatch.setattr("torchcaps.explorer.interface.read_upload", None)  # which is not reached
    refused(client.post(path, content=SMALL, headers=ELSEWHERE[name]), 403)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost"},
        {"Origin": "http://LOCALHOST", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_the_own_page_is_served(client, headers):
    assert client.post(UPLOAD, content=SMALL, headers=headers).status_code == 200


def test_a_link_from_elsewhere_can_be_followed(client):
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


# ---------------------------------------------------------------- names


def reached(app, host, at="192.0.2.7"):
    """Status of a request for a name, from a client that has reached the server at an address."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/api/models", "raw_path": b"/", "query_string": b"", "root_path": "",
        "headers": [(b"host", host.encode())], "server": (at, 8650), "client": ("192.0.2.9", 5), "scheme": "http",
        "http_version": "1.1",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"]


@pytest.fixture(scope="module")
def everywhere():
    """The app of a server that listens on all addresses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "Desk.example")
        return create_app(hosts=server.list_own_names("0.0.0.0", ["lecture.example", "two.example:80"]))


@pytest.mark.parametrize(
    ("host", "at"),
    [
        ("192.0.2.7:8650", "192.0.2.7"),
        ("192.0.2.7", "::ffff:192.0.2.7"),
        ("[2001:db8::1]:8650", "2001:db8::1"),
        ("localhost:8650", "127.0.0.1"),
        ("desk:8650", "192.0.2.7"),
        ("desk.example", "192.0.2.7"),
        ("DESK.local:8650", "192.0.2.7"),
        ("lecture.example", "192.0.2.7"),
        ("two.example:8650", "192.0.2.7"),
    ],
)
def test_this_machines_names_and_allowed_ones_are_answered(everywhere, host, at):
    assert reached(everywhere, host, at) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:8650", "192.0.2.8", "0.0.0.0", "[::]", "", "192.0.2.7.evil.example", "lecture.example.evil.example",
     "desk.evil.example", "a" * 10_000],
)  # fmt: skip
def test_no_other_name_is_answered_by_a_server_for_others(everywhere, host):
    assert reached(everywhere, host) == 421


@pytest.mark.parametrize("name", ["http://a.example", "", "a b", "*", "a.example/", "ä.example", "a\nb"])
def test_what_is_no_name_cannot_be_allowed(name):
    with pytest.raises(RunError, match="a name to allow is one such as"):
        server.list_own_names("0.0.0.0", [name])


@POSIX
def test_the_command_takes_names(monkeypatch):
    from torchcaps.cli import main

    hosts = []
    monkeypatch.setattr(server._Server, "run", lambda self, sockets: hosts.append(self.config.app))
    with pytest.raises(SystemExit):
        main(["explore", "--no-browser", "--port", "0", "--allow-host", "one.example", "--allow-host", "two.example"])
    assert [reached(hosts[0], host, "127.0.0.1") for host in ("two.example", "three.example")] == [200, 421]


# ---------------------------------------------------------------- connections


@contextlib.contextmanager
def opened(running, number, content, source=""):
    """So many connections, over each of which the same bytes were sent."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(running.connect(source)) for _ in range(number)]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(content)
        yield connections


HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b"
NO_BODY = post(UPLOAD, length=8_000_000)


@POSIX
@pytest.mark.parametrize(
    "content", [HALF, b"", NO_BODY, NO_BODY + bytes(1000)], ids=["half a head", "nothing", "no body", "half a body"]
)
def test_those_who_wait_are_dropped_and_others_are_served(running, content):
    with opened(running, 200, content) as connections:
        code, seconds = running.get()
        assert code == [200], "from the same address"
        assert seconds < 1
        assert running.get(source="127.0.0.2")[0] == [200]
        begin = time.perf_counter()
        answers = [heard(connection) for connection in connections]
        assert time.perf_counter() - begin < 2.5
    assert {code for answer in answers for code in statuses(answer)} <= {408}


@POSIX
@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ", post(LOOK, length=300_000), NO_BODY],
    ids=["head", "JSON", "upload"],
)
def test_letter_by_letter_takes_no_longer(running, start):
    with running.connect() as connection:
        connection.sendall(start)
        begin = time.perf_counter()
        with contextlib.suppress(OSError):
            while time.perf_counter() - begin < 5:
                connection.sendall(b"a")
                time.sleep(0.05)
        assert time.perf_counter() - begin < 3
        assert set(statuses(heard(connection))) <= {408}


@POSIX
def test_a_client_that_does_not_read_is_dropped(running):
    asked = b"GET /api/models/multi-mnist/samples HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running.connect() as connection:
        begin = time.perf_counter()
        with contextlib.suppress(OSError):
            while time.perf_counter() - begin < 8:
                connection.sendall(asked * 50)
                time.sleep(0.05)
        assert time.perf_counter() - begin < 6


@POSIX
def test_one_client_does_not_hold_all_memory_for_bodies(running):
    before = running.megabytes
    with opened(running, 30, post(UPLOAD, bytes(1_000_000), length=2_000_000)) as connections:
        assert running.get()[0] == [200]
        other = running.say(post(UPLOAD, SMALL, kind="image/png"), source="127.0.0.2")
        assert statuses(other) == [200], "there is room for others"
        assert running.megabytes - before < 60
        codes = [code for connection in connections for code in statuses(heard(connection))]
    assert set(codes) <= {408, 429}
    assert statuses(running.say(post(UPLOAD, SMALL, kind="image/png"))) == [200], "and all of it is given back"


def test_shares_are_given_back():
    shares = Shares(5, 3)
    assert [shares.take("a"), shares.take("a", 2), shares.take("a"), shares.take("b", 2), shares.take("c")] == [
        True, True, False, True, False,
    ]  # fmt: skip
    shares.give_back("a", 3)
    assert shares.take("c", 3)
    shares.give_back("b", 2)
    shares.give_back("c", 3)
    assert not shares._taken, "nothing is kept of clients that have gone"
    assert shares.take("", 5), "who cannot be told apart is not limited each"


class Line(asyncio.Transport):
    """Stands for a connection's socket."""

    def __init__(self, address):
        super().__init__({"peername": (address, 5), "sockname": ("127.0.0.1", 80)})
        self.open = True

    def abort(self):
        self.open = False

    def is_closing(self):
        return not self.open

    def pause_reading(self):
        pass

    def write(self, data):
        pass


def test_of_too_many_the_one_that_waits_longest_is_dropped(monkeypatch):
    """Not one that is being answered, and not another client's."""
    monkeypatch.setattr(limits, "MOST_CONNECTIONS_EACH", 3)
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 5)

    async def never(scope, receive, send):
        await asyncio.sleep(3600)

    async def crowd():
        config = uvicorn.Config(never, http=Connection, ws="none", lifespan="off", log_level="error")
        config.load()
        state, lines = ServerState(), []
        for address, sent in (
            ("a", post(LOOK, b"{}")), ("a", post(LOOK, length=5)), ("a", b""), ("a", b""), ("b", b""), ("a", HALF),
            ("b", post(LOOK, b"{}")), ("a", b""),
        ):  # fmt: skip
            lines.append(Line(address))
            connection = Connection(config, state, {})
            connection.connection_made(lines[-1])
            if sent:
                connection.data_received(sent)
            await asyncio.sleep(0.002)
        for task in state.tasks:
            task.cancel()
        return [line.open for line in lines]

    assert asyncio.run(crowd()) == [True, False, False, False, True, True, True, True]


# ---------------------------------------------------------------- the end


@POSIX
def test_nothing_keeps_it_from_ending():
    running = Server()
    slow = striped(4000, 4000, 16, 6)
    with (
        opened(running, 20, HALF),
        opened(running, 20, NO_BODY),
        opened(running, 8, post(UPLOAD, slow, kind="image/png")),
        opened(running, 20, post(ROUTING, b'{"pixels": "' + b"AAAA" * 262 + b'"}')),
    ):
        time.sleep(0.3)
        code, err, seconds = running.end()
    assert code == 130
    assert err == "torchcaps: stopped.\n"
    assert seconds < 2


def test_the_documentation_tells_the_limits():
    text = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text(encoding="utf-8")
    for numbers in (
        f"| {limits.MOST_CONNECTIONS_EACH} | {limits.MOST_CONNECTIONS} |",
        f"| {limits.MOST_REQUESTS_EACH} | {limits.MOST_REQUESTS} |",
        f"| {interface.MOST_UPLOADS_EACH} | {interface.MOST_UPLOADS} |",
        f"| {limits.MOST_HELD_EACH // 10**6} MB | {limits.MOST_HELD // 10**6} MB |",
        f"{limits.HEAD_SECONDS:.0f} s for its head, {limits.BODY_SECONDS:.0f} s for its body",
        f"{limits.REQUEST_SECONDS:.0f} s until its answer is sent; a connection may idle for {limits.IDLE_SECONDS} s",
        f"{MOST_JSON // 1024} kB",
        f"uploads {limits.MOST_UPLOAD // 10**6} MB and {MOST_PIXELS // 10**6} million pixels",
        f"more than {picture_files.MOST_BYTES // 10**6} MB of memory",
        f"more than {picture_files.MOST_SCANS} times",
    ):
        assert numbers in text


def test_the_numbers_leave_room_for_others():
    """One client can hold neither all connections nor all memory; the system lets a process open 1,024 files."""
    assert 2 * limits.MOST_CONNECTIONS_EACH <= limits.MOST_CONNECTIONS < 700
    assert 2 * limits.MOST_HELD_EACH <= limits.MOST_HELD <= 100_000_000
    assert 2 * limits.MOST_REQUESTS_EACH <= limits.MOST_REQUESTS
