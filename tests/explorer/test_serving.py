"""``torchcaps explore`` as a process that listens, and the socket under it."""

import errno
import http.client
import ipaddress
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from torchcaps.cli import main
from torchcaps.explorer import server
from torchcaps.explorer.server import FIRST_PORT, PORTS, is_loopback, listen
from torchcaps.training.specs import RunError

COMMAND = [sys.executable, "-m", "torchcaps", "explore"]
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals")


def call(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def python(*lines):
    """What a fresh Python says."""
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read()


# ---------------------------------------------------------------- the socket


def test_any_free_port_is_found():
    with listen("127.0.0.1", 0) as found:
        assert found.getsockname()[1] > 0


def test_a_taken_port_is_told():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(RunError, match=rf"port {port} is taken on 127\.0\.0\.1\. Give another port"):
            listen("127.0.0.1", port)


def test_without_a_port_taken_ones_are_skipped():
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        ports = {first.getsockname()[1], second.getsockname()[1]}
    assert len(ports) == 2
    assert ports <= set(range(FIRST_PORT, FIRST_PORT + PORTS))


def test_when_all_ports_are_taken_that_is_told(monkeypatch):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(server, "FIRST_PORT", port)
        monkeypatch.setattr(server, "PORTS", 1)
        with pytest.raises(RunError, match=f"the ports {port} to {port} are taken"):
            listen("127.0.0.1", None)


@pytest.mark.parametrize("port", [70000, 65536, -1])
def test_what_is_no_port_is_told(port):
    with pytest.raises(RunError, match=f"a port is a number from 0 to 65535, got {port}"):
        listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.5", False), ("lecture.example", False)],
)  # fmt: skip
def test_loopback_is_told_from_the_rest(host, local):
    assert is_loopback(host) == local


def test_a_port_that_needs_rights_is_named(monkeypatch):
    def refuse(self, address):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(RunError, match="above 1023"):
        listen("127.0.0.1", 80)
    with pytest.raises(RunError, match="are taken"):
        listen("127.0.0.1", None)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "::ffff:zz", "", "a" * 70, "127.0.0.1\0", "ä.."])
def test_an_address_that_is_not_this_machines_is_told(host):
    try:
        listen(host, 0).close()
    except RunError as error:
        assert str(error).startswith("cannot listen on")  # noqa: PT017
    else:
        assert host == "", "which is all addresses"


def test_answers_are_not_held_back():
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP, "else asyncio leaves Nagle's algorithm on"


# ---------------------------------------------------------------- the process


class Running:
    """A process of the command; ``address`` is what it prints."""

    def __init__(self, *words):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, "--no-browser", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        self.line = self.process.stdout.readline() if ready else ""
        found = re.search(r"http://\S+/", self.line)
        self.address = found and found[0]

    def end(self, how=signal.SIGINT):
        """Exit code, and what was said at last."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            out, err = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
        return self.process.returncode, out, err


@pytest.fixture(scope="module")
def running():
    process = Running("--port", "0")
    yield process
    process.end()


@POSIX
def test_it_says_where_it_is_and_answers(running):
    assert running.address, running.line
    assert running.line.strip().endswith("(Ctrl-C stops it)")
    assert b"<!doctype html>" in get(running.address)
    models = json.loads(get(f"{running.address}api/models"))["models"]
    assert [model["id"] for model in models] == ["mnist", "fashion-mnist", "multi-mnist"]


@POSIX
def test_it_answers_under_its_number_too(running):
    port = int(running.address.rsplit(":", 1)[1].rstrip("/"))
    assert get(f"http://127.0.0.1:{port}/")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        assert b" 421 " in connection.recv(100)


@POSIX
@pytest.mark.parametrize(
    "request_",
    [
        b"GET /../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"POST /api/models/mnist/look HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST /api/models/mnist/look HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/models/mnist/look HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=lambda request_: request_[:30].decode("latin-1"),
)
def test_odd_requests_are_refused_and_it_lives_on(running, request_):
    port = int(running.address.rsplit(":", 1)[1].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request_)
        answer = connection.recv(100)
    assert re.match(rb"HTTP/1\.1 4\d\d ", answer), answer
    assert get(running.address)


@POSIX
def test_a_body_in_chunks_that_is_too_large_is_refused(running):
    port = int(running.address.rsplit(":", 1)[1].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        head = b"POST /api/models/mnist/look HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(30):
                connection.sendall(b"%x\r\n" % 100_000 + bytes(100_000) + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it does not listen to all of it
        answer = connection.recv(100)
    assert b" 413 " in answer


@POSIX
def test_an_answer_takes_no_forty_milliseconds(running):
    connection = http.client.HTTPConnection("127.0.0.1", int(running.address.rsplit(":", 1)[1].rstrip("/")), timeout=10)
    times = []
    for _ in range(60):
        begin = time.perf_counter()
        connection.request("GET", "/api/models/nobody/samples")
        assert connection.getresponse().read()
        times.append(time.perf_counter() - begin)
    connection.close()
    assert sorted(times)[20] < 0.035, "Nagle's algorithm holds the body back until the head is acknowledged"


@POSIX
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_peace(how):
    process = Running("--port", "0")
    assert get(process.address)
    code, _, err = process.end(how)
    assert code in ({0, 130} if how == signal.SIGINT else {0, -signal.SIGTERM, 143})
    assert "Traceback" not in err
    with pytest.raises(urllib.error.URLError):
        get(process.address)


@POSIX
def test_an_open_connection_does_not_keep_it_alive():
    process = Running("--port", "0")
    port = int(process.address.rsplit(":", 1)[1].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.recv(1000)
        begin = time.perf_counter()
        code, _, err = process.end()
    assert time.perf_counter() - begin < 10
    assert code in (0, 130)
    assert "Traceback" not in err


# ---------------------------------------------------------------- what the command refuses


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere/at-all"], "is not there"),
        (["--port", "70000"], "a port is a number from 0 to 65535, got 70000."),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_what_explore_refuses(words, said, capsys):
    assert call("explore", "--no-browser", *words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.startswith("torchcaps: ")
    assert err.count("\n") == 1
    assert not out


def test_a_taken_port_is_one_line(capsys):
    with listen("127.0.0.1", 0) as taken:
        assert call("explore", "--no-browser", "--port", taken.getsockname()[1]) == 2
    assert "is taken on 127.0.0.1. Give another port, or 0 for any" in capsys.readouterr().err


# ---------------------------------------------------------------- without it


@pytest.mark.parametrize(
    "use",
    [
        "import torchcaps",
        "import torchcaps.cli",
        "import torchcaps.pretrained",
        "from torchcaps.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass",
        "from torchcaps.cli import main\ntry:\n    main(['explore', '--help'])\nexcept SystemExit:\n    pass",
    ],
)
def test_fastapi_is_not_imported_before_it_is_needed(use):
    code, out, err = python(
        use,
        "import sys",
        "print('LOADED', [name for name in ('fastapi', 'uvicorn', 'pydantic', 'starlette') if name in sys.modules])",
    )
    assert code == 0, err
    assert out.strip().splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_the_extra_it_is_named(missing):
    code, _, err = python(
        "import sys",
        f"sys.modules['{missing}'] = None",
        "from torchcaps.cli import main",
        "main(['explore', '--no-browser'])",
    )
    assert code == 2
    assert 'pip install "torchcaps[explore]"' in err
    assert "Traceback" not in err


def test_help_shows_examples(capsys):
    assert call("explore", "--help") == 0
    out = capsys.readouterr().out
    assert "torchcaps explore runs/quickstart-1" in out
    assert "--port" in out


@POSIX
def test_others_are_told_their_address(capsys, monkeypatch):
    """Without a network there is none to tell."""
    monkeypatch.setattr(server._Server, "run", lambda self, sockets: self._ready())
    for own, told in (("192.0.2.7", True), (None, False)):
        monkeypatch.setattr(server, "find_own_address", lambda own=own: own)
        lines = []
        server.serve(host="0.0.0.0", port=0, browser=False, say=lines.append)
        assert "localhost" in lines[0]
        assert "There is no password" in lines[1]
        assert any("http://192.0.2.7:" in line for line in lines[2:]) == told
    lines = []
    server.serve(port=0, browser=False, say=lines.append)
    assert len(lines) == 1


def test_the_own_address_is_an_address_or_none():
    own = server.find_own_address()
    assert own is None or not ipaddress.ip_address(own).is_unspecified
