"""The explorer as a process of its own, and what is said to it byte by byte."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SERVE = """
import sys
from torchcaps.explorer import limits, server

for setting in sys.argv[1:]:
    name, value = setting.split("=")
    setattr(limits, name, type(getattr(limits, name))(value))
try:
    server.serve(port=0, browser=False, say=lambda line: print(line, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


def _hear_ctrl_c():
    """What a shell starts in the background ignores Ctrl-C, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Server:
    """A running explorer; ``settings`` are numbers of ``torchcaps.explorer.limits``."""

    def __init__(self, **settings):
        words = [sys.executable, "-c", SERVE, *(f"{name}={value}" for name, value in settings.items())]
        if not settings:  # then it is the command itself
            words = [sys.executable, "-m", "torchcaps", "explore", "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            preexec_fn=_hear_ctrl_c if os.name == "posix" else None,
        )
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if ready else ""
        found = re.search(r"http://localhost:(\d+)/", line)
        assert found, (line, self.end())
        self.port = int(found[1])

    def connect(self, source=""):
        """A connection to it, from another address of this machine if one is given."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=5, source_address=(source, 0))

    def say(self, *pieces, source="", seconds=3):
        """All that it answers to these bytes, until it closes the connection or has nothing more to say."""
        with self.connect(source) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
            except OSError:
                pass  # it does not listen to all of it
            return heard(connection, seconds)

    def get(self, path="/api/models", source=""):
        """Status of an ordinary request, and the seconds that it took."""
        begin = time.perf_counter()
        answer = self.say(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(), source=source
        )
        return statuses(answer), time.perf_counter() - begin

    @property
    def megabytes(self):
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def end(self, how=signal.SIGINT):
        """Exit code, what it said to stderr, and the seconds that it took to end."""
        begin = time.perf_counter()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            _, err = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
        return self.process.returncode, err, time.perf_counter() - begin


def heard(connection, seconds=3):
    """What comes over a connection until it is closed, or complete, or until so many seconds have passed."""
    content, until = b"", time.perf_counter() + seconds
    while time.perf_counter() < until:
        connection.settimeout(max(0.01, until - time.perf_counter()))
        try:
            piece = connection.recv(1 << 20)
        except OSError:
            break
        if not piece:
            break
        content += piece
    return content


def statuses(answer):
    """The numbers of all answers."""
    return [int(code) for code in re.findall(rb"(?:^|[\r\n}>])HTTP/1\.1 (\d{3}) ", answer)]


def post(path, body=b"", *headers, length=None, kind="application/json"):
    """A request as it goes over the line."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
