"""Requests as they go over the line, hostile and odd."""

from http_server import post

from torchcaps.explorer.limits import MOST_JSON

LOOK, DECODE, ROUTING, UPLOAD = (f"/api/models/mnist/{what}" for what in ("look", "decode", "routing", "upload"))
CLOSE = "Connection: close"


def get(path="/", *headers, version="HTTP/1.1", host="Host: localhost", method="GET"):
    lines = [f"{method} {path} {version}", *([host] if host else []), CLOSE, *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def chunked(*chunks, path=LOOK, end=b"0\r\n\r\n", headers=()):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", CLOSE, *headers]
    head = "\r\n".join([*lines, "Transfer-Encoding: chunked"]).encode() + b"\r\n\r\n"
    return head + b"".join(chunks) + end


REFUSED = {
    "no HTTP at all": b"\x00\x01\x02\x03" * 10 + b"\r\n\r\n",
    "the beginning of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "the beginning of SSH": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "no version": b"GET / \r\nHost: localhost\r\n\r\n",
    "a line of JSON": b'{"pixels": "AAAA"}\r\n\r\n',
    "tabs in the first line": b"GET\t/\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space first": b" " + get(),
    "carriage returns alone": get().replace(b"\r\n", b"\r"),
    "100,000 empty lines": b"\r\n" * 100_000,
    "a method of 10,000 letters": get(method="A" * 10_000),
    "a method with a colon": get(method="GE:T"),
    "a method in small letters": get(method="get"),
    "TRACE": get(method="TRACE"),
    "OPTIONS of everything": get("*", method="OPTIONS"),
    "CONNECT": get("localhost:22", method="CONNECT"),
    "HEAD of the interface": get("/api/models", method="HEAD"),
    "DELETE": get("/api/models/mnist/samples", method="DELETE"),
    "PROPFIND": get(method="PROPFIND"),
    "a path of 15,000 letters": get("/" + "a" * 15_000),
    "a path of 70,000 letters": get("/" + "a" * 70_000),
    "a path of a million letters": get("/" + "a" * 1_000_000),
    "a path of 5,000 folders": get("/a" * 5_000),
    "a NUL in the path": get("/main.js\0"),
    "an escaped NUL in the path": get("/main.js%00"),
    "escaped dots": get("/%2e%2e/%2e%2e/etc/passwd"),
    "twice escaped dots": get("/%252e%252e/app.py"),
    "dots in too many bytes": get("/%c0%ae%c0%ae/app.py"),
    "an escaped byte that is no letter": get("/%ff%fe"),
    "an escape that is none": get("/%zz%"),
    "letters that are not ASCII": get("/\xe4\xf6"),
    "backslashes": get("/..\\app.py"),
    "a path without a slash": get("main.js"),
    "another server's address": get("http://evil.example/", host="Host: evil.example"),
    "a model with an escaped slash": get("/api/models/mnist%2f..%2fmnist/samples"),
    "a model of 10,000 letters": get("/api/models/" + "m" * 10_000 + "/samples"),
    "no Host": get(host=""),
    "an empty Host": get(host="Host:"),
    "two Hosts": get("/", "Host: evil.example"),
    "a Host of 10,000 letters": get(host="Host: " + "a" * 10_000),
    "a Host with a path": get(host="Host: localhost/evil"),
    "a Host with a user": get(host="Host: localhost@evil.example"),
    "a Host in HTTP/1.0 that is foreign": get(host="Host: evil.example", version="HTTP/1.0"),
    "10,000 headers": get("/", *[f"A{number}: b" for number in range(10_000)]),
    "the same header 30,000 times": get("/", *["A: b"] * 30_000),
    "a header of a million letters": get("/", "A: " + "a" * 1_000_000),
    "a header without a colon": get("/", "nothing"),
    "a header with a space before the colon": get("/", "A : b"),
    "a header with a NUL": get("/", "A: \0"),
    "a name of a header with a NUL": get("/", "A\0: b"),
    "a header without a name": get("/", ": b"),
    "a body with a negative length": post(LOOK, b"{}", length=-2),
    "a body with a length in hexadecimal": post(LOOK, b"{}", length="0x2"),
    "a body with a length of 20 digits": post(LOOK, b"{}", length="9" * 20),
    "a body with a length of 5,000 digits": post(LOOK, b"{}", length="9" * 5_000),
    "a body with two lengths": post(LOOK, b"{}", "Content-Length: 3"),
    "a body with a list of lengths": post(LOOK, b"{}", length="2, 3"),
    "a body that is longer than it says": post(LOOK, b"{}" + b"a" * 100_000, length=2),
    "a body that is shorter than it says": post(LOOK, b"{", length=100),
    "a body that does not come": post(UPLOAD, length=8_000_000),
    "a body of an unknown coding": post(LOOK, b"{}", "Transfer-Encoding: gzip"),
    "a body that is chunked twice": post(LOOK, b"{}", "Transfer-Encoding: chunked, chunked"),
    "a body that says that it is packed": post(LOOK, b"\x1f\x8b\x08\x00", "Content-Encoding: gzip"),
    "chunks and a length": chunked(b"2\r\n{}\r\n", headers=["Content-Length: 5000"]),
    "a chunk without a size": chunked(b"\r\n"),
    "a chunk of a negative size": chunked(b"-2\r\n{}\r\n"),
    "a chunk of 2⁸⁰ bytes": chunked(b"f" * 20 + b"\r\n{}"),
    "a chunk that is longer than it says": chunked(b"2\r\n{}{}{}\r\n"),
    "a chunk that does not come": chunked(b"5\r\n{}", end=b""),
    "a chunk with a remark of a million letters": chunked(b"2;" + b"a" * 1_000_000 + b"\r\n{}\r\n"),
    "30,000 chunks of one letter": chunked(b"1\r\n[\r\n" * 30_000),
    "200,000 chunks of one letter": chunked(b"1\r\n[\r\n" * 200_000, path=UPLOAD),
    "5,000 headers behind the chunks": chunked(b"2\r\n{}\r\n", end=b"0\r\n" + b"A: b\r\n" * 5_000 + b"\r\n"),
    "a form": post(LOOK, b"pixels=AAAA", kind="application/x-www-form-urlencoded"),
    "a form with 10,000 parts": post(
        UPLOAD,
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n' * 10_000,
        kind="multipart/form-data; boundary=x",
    ),
    "a kind of 10,000 letters": post(LOOK, b"{}", kind="a/" + "b" * 10_000),
    "a post to the page": post("/", b"{}"),
    "garbage behind a request": get("/nothing").replace(b"Connection: close\r\n", b"") + b"\0garbage\r\n\r\n",
    "another client's address": post(LOOK, b"{}", "X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4"),
    "a page of another server": post(UPLOAD, b"a", "Origin: http://elsewhere.example", kind="text/plain"),
}
"""Each is answered with 4xx, or not at all."""

ODD = {
    "200 headers": get("/", *[f"A{number}: b" for number in range(200)]),
    "a cookie of 8,000 letters": get("/", "Cookie: a=" + "b" * 8_000),
    "a query of 10,000 letters": get("/?" + "a=b&" * 2_500),
    "HTTP/9.9": get(version="HTTP/9.9"),
    "HTTP/1.0": get(version="HTTP/1.0"),
    "lines without carriage return": get().replace(b"\r\n", b"\n"),
    "ranges": get("/", "Range: bytes=" + ",".join(f"{number}-" for number in range(1_000))),
    "an upgrade to a web socket": get(
        "/", "Upgrade: websocket", "Sec-WebSocket-Key: AAAA", "Sec-WebSocket-Version: 13"
    ),
    "an upgrade to HTTP/2": get("/", "Upgrade: h2c", "HTTP2-Settings: AAAA"),
    "another method in a header": get("/", "X-HTTP-Method-Override: DELETE"),
    "a body that nobody asked for": get("/", "Content-Length: 2") + b"{}",
    "a folded header": get("/", "A: b\r\n c"),
    "the same address twice": get("/api/models", "Host-Again: localhost"),
    "an unknown expectation": get("/", "Expect: 999-nothing"),
    "200 requests at once": get("/main.js").replace(b"Connection: close\r\n", b"") * 200 + get(),
}
"""Each may be answered well: it is odd, but says what it wants."""


def many(form, most=MOST_JSON - 100):
    """As many different parts as fit into a body."""
    length = len(form.format(99_999)) + 1
    return ",".join(form.format(number) for number in range(10_000, 10_000 + min(most // length, 89_999)))


BODIES = {
    "unknown keys": "{" + many('"{}":0') + "}",
    "unknown keys beside a picture": '{"pixels":"AAAA",' + many('"{}":0') + "}",
    "unknown keys that are lists": "{" + many('"{}":[]') + "}",
    "the same key again and again": "{" + many('"a":{}') + "}",
    "a key of 300,000 letters": '{"' + "k" * 300_000 + '":1}',
    "a pose of texts": '{"label":0,"pose":[' + many('"{}"') + "]}",
    "a pose of lists": '{"label":0,"pose":[' + "[]," * 100_000 + "[]]}",
    "a pose of numbers": '{"label":0,"pose":[' + "9," * 160_000 + "9]}",
    "a pose of maps": '{"label":0,"pose":[' + "{}," * 100_000 + "{}]}",
    "a pose of NaN": '{"label":0,"pose":[' + "NaN," * 80_000 + "NaN]}",
    "a picture of numbers": '{"pixels":[' + "1," * 160_000 + "1]}",
    "a picture of exclamation marks": '{"pixels":"' + "!" * 260_000 + '"}',
    "a picture that is too long": '{"pixels":"' + "A" * 300_000 + '"}',
    "a picture of escapes": '{"pixels":"' + "\\u0041" * 54_000 + '"}',
    "a picture of equal signs": '{"pixels":"' + "=" * 260_000 + '"}',
    "a list of maps": "[" + "{}," * 100_000 + "{}]",
    "lists in lists": "[" * (MOST_JSON - 10),
    "maps in maps": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "a number of 300,000 digits": '{"label":' + "1" * 300_000 + ',"pose":[0]}',
    "a fraction of 300,000 digits": '{"label":0,"pose":[0.' + "1" * 300_000 + "]}",
    "an exponent of 300,000 digits": '{"label":0,"pose":[1e' + "1" * 300_000 + "]}",
    "spaces": " " * (MOST_JSON - 10) + "{}",
    "halves of characters": '{"pixels":"' + "\\ud800" * 50_000 + '"}',
    "bytes that are no text": "\xff" * 100_000,
    "more than may be": '{"pixels":"' + "A" * MOST_JSON + '"}',
}
"""Of JSON; each is refused."""

ELSEWHERE = {
    "another server": {"Origin": "http://elsewhere.example"},
    "another server, as text": {"Origin": "http://elsewhere.example", "Content-Type": "text/plain"},
    "another port": {"Origin": "http://localhost:9999"},
    "nowhere": {"Origin": "null"},
    "an empty address": {"Origin": ""},
    "a name that begins like this one": {"Origin": "http://localhost.elsewhere.example"},
    "a user of this name": {"Origin": "http://localhost@elsewhere.example"},
    "brackets that do not match": {"Origin": "http://[localhost"},
    "a file": {"Origin": "file://"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "the same site": {"Sec-Fetch-Site": "same-site"},
    "another site that claims to be this one": {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
    "something unknown": {"Sec-Fetch-Site": "somewhere"},
}
"""Where a browser says that a request comes from; each is refused."""
